"""Which speakers train, which validate and which test: no speaker is in two of them."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

FEWEST_SPEAKERS = 2  # of a part: with one there is nobody to compare with


class SpeakerSplit(NamedTuple):
    """The speakers of each part, in alphabetical order."""

    train: list[str]
    valid: list[str]
    test: list[str]


def split_speakers(
    speakers: Iterable[str], valid_fraction: float = 0.1, test_fraction: float = 0.1, seed: int = 0
) -> SpeakerSplit:
    """Speakers split by a hash of their name into about those fractions; the rest trains.

    A speaker stays in its part when others come or go, as long as each part has more than its
    minimum of two speakers. A fraction of 0 leaves a part empty.

    >>> split_speakers("abcdef", valid_fraction=0.0, test_fraction=0.3).valid
    []
    """
    # Written so that nan is refused, too.
    if not (valid_fraction >= 0.0 and test_fraction >= 0.0 and valid_fraction + test_fraction <= 1):
        raise ValueError(
            f"valid_fraction {valid_fraction} and test_fraction {test_fraction} must be at least 0 "
            "and together at most 1"
        )
    digests = {name: hashlib.sha256(f"{seed}/{name}".encode()).digest() for name in speakers}
    place_of = {name: int.from_bytes(key[:6], "big") / 2**48 for name, key in digests.items()}
    ordered = sorted(place_of, key=lambda speaker: (place_of[speaker], speaker))
    test_end = sum(place < test_fraction for place in place_of.values())
    valid_end = sum(place < test_fraction + valid_fraction for place in place_of.values())
    first = max(test_end, FEWEST_SPEAKERS) if test_fraction > 0.0 else 0
    second = max(valid_end, first + FEWEST_SPEAKERS) if valid_fraction > 0.0 else first
    train, valid, test = ordered[second:], ordered[first:second], ordered[:first]
    fractions = (test_fraction, valid_fraction, 1.0 - valid_fraction - test_fraction)
    parts = zip(("test", "valid", "train"), (test, valid, train), fractions, strict=True)
    for name, part, fraction in parts:
        if fraction > 1e-9 and len(part) < FEWEST_SPEAKERS:
            raise ValueError(
                f"{len(ordered)} speakers are too few: {len(part)} are left for the part '{name}', "
                f"which needs {FEWEST_SPEAKERS}; add speakers, or set another part's fraction to 0"
            )
    return SpeakerSplit(sorted(train), sorted(valid), sorted(test))
