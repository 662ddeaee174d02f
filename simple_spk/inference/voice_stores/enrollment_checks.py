"""Checks of recordings that are to be enrolled: are they of one speaker, and of a new one?

With a calibration, values are natural-log likelihood ratios. Recordings of one name disagree if two
speakers are ``CLEARLY`` times likelier than one. Somebody seems to be enrolled under another name
at the threshold at which this is wrong for a share of ``WRONG_NAME_RATE`` of new speakers, whatever
the number of voices. Without a calibration, values are scores, and both limits are the threshold of
the model.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from simple_spk.inference.model import Model
from simple_spk.inference.voice_stores.voice import Voice

# With the built-in model and validation speakers: a recording disagrees with 1 to 5 others of its
# speaker in 0 % (one session), across sessions in 14 % with 1, 4 % with 2 and 0 % with 5 others;
# with those of another speaker in 46 to 94 %, by corpus.
CLEARLY = 10.0
WRONG_NAME_RATE = 0.01


class EnrollmentLimits(NamedTuple):
    """Least values of one speaker."""

    within: float  # of a recording and the others of its name
    across: float  # of recordings and a voice of another name
    is_ratio: bool

    def shown(self, value: float) -> str:
        """A value in words."""
        return f"likelihood ratio e^{value:.1f}" if self.is_ratio else f"score {value:.2f}"


def limits_of(model: Model, voices: int) -> EnrollmentLimits | None:
    """The limits of a model beside so many voices; None if it has no threshold at all."""
    if model.calibration is not None:
        across = model.calibration.threshold_at(WRONG_NAME_RATE, max(1, voices))
        return EnrollmentLimits(-math.log(CLEARLY), across.log_likelihood_ratio, True)
    own = model.threshold
    return None if own is None else EnrollmentLimits(own, own, False)


def repeated(parts: Sequence[tuple[str, Voice]]) -> list[str]:
    """A sentence for each recording whose embedding equals that of an earlier one, bit by bit."""
    first_of: dict[bytes, str] = {}
    found = []
    for name, voice in parts:
        embedding = voice.embedding.tobytes()
        if embedding in first_of:
            found.append(f"{first_of[embedding]} and {name} are the same recording")
        first_of.setdefault(embedding, name)
    return found


def disagreeing(
    parts: Sequence[tuple[str, Voice]],
    limits: EnrollmentLimits,
    likeness: Callable[[Voice, Voice], float],
) -> list[str]:
    """A sentence for each recording that is unlike all the others together."""
    found = []
    for name, voice in parts if len(parts) > 1 else ():
        others = [other for _, other in parts if other is not voice]
        value = likeness(voice, functools.reduce(Voice.joined, others))
        if value < limits.within:
            found.append(f"{name} sounds unlike the other recordings ({limits.shown(value)})")
    return found
