"""The official VoxCeleb1 trial lists, told by their content, whatever a file is called."""

import functools
import hashlib
import re
from typing import NamedTuple

import numpy as np

from simple_spk.data.trials import Trials

# VoxCeleb1 dev and test are told apart by these speakers; so are those of VoxCeleb2.
_VOXCELEB1_TEST = range(10270, 10310)
_VOXCELEB2_TEST_NUMBERS = """
17 61 81 154 419 562 812 817 866 926 1000 1041 1066 1106 1224 1228 1298 1333 1437 1460 1509
1541 1567 1593 1618 1822 1892 1989 2019 2057 2086 2181 2286 2317 2445 2465 2542 2548 2576
2577 2685 2725 2745 3030 3041 3127 3178 3347 3382 3524 3677 3789 3839 3862 3969 3978 3980
3981 4006 4030 4094 4119 4170 4232 4253 4276 4295 4366 4478 4536 4570 4627 4656 4657 4862
4950 5015 5055 5124 5176 5202 5348 5459 5594 5654 5714 5816 5850 5999 6104 6209 6310 6484
6692 6811 6816 6913 7312 7354 7396 7414 7426 7494 7620 7621 7663 7802 7868 7874 7961 8149
8374 8392 8456 8548 8552 8696 8701 8911 9017
"""
_VOXCELEB2_TEST = frozenset(map(int, _VOXCELEB2_TEST_NUMBERS.split()))


class Totals(NamedTuple):
    """What a whole part of VoxCeleb holds."""

    speakers: int
    utterances: int
    hours: float


TOTALS = {
    "VoxCeleb1 dev": Totals(1211, 148_642, 340.4),
    "VoxCeleb1 test": Totals(40, 4_874, 11.2),
    "VoxCeleb2 dev": Totals(5994, 1_092_009, 2360.2),
    "VoxCeleb2 test": Totals(118, 36_237, 79.9),
}


@functools.cache  # a million utterances have few speakers
def part_of(speaker: str) -> str | None:
    """The part of VoxCeleb that a speaker such as id10270 is in; None for other names.

    >>> part_of("id10270"), part_of("id00012"), part_of("kevin")
    ('VoxCeleb1 test', 'VoxCeleb2 dev', None)
    """
    if re.fullmatch(r"id\d{5}", speaker) is None:
        return None
    number = int(speaker[2:])
    if number > 10000:
        return "VoxCeleb1 test" if number in _VOXCELEB1_TEST else "VoxCeleb1 dev"
    return "VoxCeleb2 test" if number in _VOXCELEB2_TEST else "VoxCeleb2 dev"


class KnownList(NamedTuple):
    """An official list: what it is called, and how its content is recognized."""

    name: str
    file_names: tuple[str, ...]  # as it is distributed, first by its authors
    trials: int
    git_sha1: str  # of the file; the beginning is enough
    fingerprint: int | None  # of its trials; None where it is not known
    cleaned: str | None = None  # the list that papers use instead


KNOWN_LISTS = (
    KnownList(
        "Vox1-O",
        ("veri_test.txt", "vox1_O.trl"),
        37720,
        "906755864e1726e2ff8e9abef5871e86d16c5bcf",
        0x4BA19459EDCCE14F,
        "Vox1-O (cleaned), veri_test2.txt",
    ),
    KnownList(
        "Vox1-O (cleaned)",
        ("veri_test2.txt", "vox1_O_cleaned.kaldi", "vox1_O_cleaned.trial"),
        37611,
        "29516d7e9fc02d82ee48958d82af2475535d94c0",
        0x190A0260F7B321B5,
    ),
    KnownList(
        "Vox1-E",
        ("list_test_all.txt", "vox1_E.trl"),
        581480,
        "2a186254935ee03fe7d7c15fd6289bd07852a1c6",
        0x845FC879CFDF8892,
        "Vox1-E (cleaned), list_test_all2.txt",
    ),
    KnownList(
        "Vox1-E (cleaned)",
        ("list_test_all2.txt", "vox1_E_cleaned.kaldi", "vox1_E_cleaned.trial"),
        579818,
        "a68828912a",
        None,
    ),
    KnownList(
        "Vox1-H",
        ("list_test_hard.txt", "vox1_H.trl"),
        552536,
        "c1bec58437e73a04deee2374f75bd6414c7f13d0",
        0x7C5E2813B441838B,
        "Vox1-H (cleaned), list_test_hard2.txt",
    ),
    KnownList(
        "Vox1-H (cleaned)",
        ("list_test_hard2.txt", "vox1_H_cleaned.kaldi", "vox1_H_cleaned.trial"),
        550894,
        "271903c6df",
        None,
    ),
)


def recognize(trials: Trials) -> KnownList | None:
    """The official list that this one is, by the text of its file or else by its trials."""
    for known in KNOWN_LISTS:
        if len(trials) == known.trials and (
            (trials.git_sha1 or "").startswith(known.git_sha1)
            or (known.fingerprint is not None and fingerprint(trials) == known.fingerprint)
        ):
            return known
    return None


def list_name(trials: Trials) -> str:
    """What to call a list: its official name if it has one, else that of its file."""
    known = recognize(trials)
    if known is not None:
        return known.name
    return "trials" if trials.path is None else trials.path.name


def wrong_list_hint(trials: Trials) -> str | None:
    """A warning if figures on this list may be compared with those on another; else None."""
    known = recognize(trials)
    if known is not None:
        if known.cleaned is None:
            return None
        return f"this is the list as first published; most papers report {known.cleaned}"
    file_name = "" if trials.path is None else trials.path.name.removesuffix(".gz")
    for known in KNOWN_LISTS:
        if file_name in known.file_names:
            return (
                f"{trials.path} is called like {known.name} ({known.trials} trials), but its "
                f"{len(trials)} trials are others: figures on it are not comparable"
            )
        if len(trials) == known.trials and trials.is_target is not None:
            return f"{trials.path} has as many trials as {known.name}, but is not known to be it"
    return None


def fingerprint(trials: Trials) -> int | None:
    """A number of 64 bits that tells which trials a list has, whatever their order and format.

    Names count without their extension, and with - for /, as lists are often rewritten so. The
    sum over trials does not depend on order; each trial is scrambled before, so that exchanging
    partners or labels shows. None if there are no labels.
    """
    if trials.is_target is None:
        return None
    spelt = (name.rsplit(".", 1)[0].replace("/", "-").encode() for name in trials.ids)
    digests = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in spelt)
    hashes = np.frombuffer(digests, dtype="<u8").astype(np.uint64)
    mixed = hashes[trials.enroll] * np.uint64(3) + hashes[trials.test] * np.uint64(5)
    mixed += trials.is_target
    # The scrambling of the generator splitmix64 (Steele et al., 2014); overflow is meant.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int(np.sum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64))
