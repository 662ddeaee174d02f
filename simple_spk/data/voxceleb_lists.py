"""The official VoxCeleb1 trial lists, recognized by their content, whatever a file is called."""

import functools
import hashlib
import re
from typing import NamedTuple

import numpy as np

from simple_spk.data.trials import Trials

# The test speakers; all others are in the dev part.
_VOXCELEB1_TEST = range(10270, 10310)
_VOXCELEB2_TEST = """
17 61 81 154 419 562 812 817 866 926 1000 1041 1066 1106 1224 1228 1298 1333 1437 1460 1509
1541 1567 1593 1618 1822 1892 1989 2019 2057 2086 2181 2286 2317 2445 2465 2542 2548 2576
2577 2685 2725 2745 3030 3041 3127 3178 3347 3382 3524 3677 3789 3839 3862 3969 3978 3980
3981 4006 4030 4094 4119 4170 4232 4253 4276 4295 4366 4478 4536 4570 4627 4656 4657 4862
4950 5015 5055 5124 5176 5202 5348 5459 5594 5654 5714 5816 5850 5999 6104 6209 6310 6484
6692 6811 6816 6913 7312 7354 7396 7414 7426 7494 7620 7621 7663 7802 7868 7874 7961 8149
8374 8392 8456 8548 8552 8696 8701 8911 9017
"""


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
    return "VoxCeleb2 test" if str(number) in _VOXCELEB2_TEST.split() else "VoxCeleb2 dev"


class KnownList(NamedTuple):
    """An official list: its name, and how its content is recognized."""

    name: str
    authors_file: str
    trials: int
    git_sha1: str  # the first digits of the file's
    fingerprint: int | None  # of its trials; None where it is not known

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names under which its authors and other toolkits distribute it."""
        stem = self.name.replace("Vox1-", "vox1_").replace(" (cleaned)", "_cleaned")
        suffixes = (".kaldi", ".trial") if stem.endswith("cleaned") else (".trl",)
        return (self.authors_file, *(stem + suffix for suffix in suffixes))


KNOWN_LISTS = (
    KnownList("Vox1-O", "veri_test.txt", 37720, "906755864e", 0x4BA19459EDCCE14F),
    KnownList("Vox1-O (cleaned)", "veri_test2.txt", 37611, "29516d7e9f", 0x190A0260F7B321B5),
    KnownList("Vox1-E", "list_test_all.txt", 581480, "2a18625493", 0x845FC879CFDF8892),
    KnownList("Vox1-E (cleaned)", "list_test_all2.txt", 579818, "a68828912a", None),
    KnownList("Vox1-H", "list_test_hard.txt", 552536, "c1bec58437", 0x7C5E2813B441838B),
    KnownList("Vox1-H (cleaned)", "list_test_hard2.txt", 550894, "271903c6df", None),
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
    """The official name of a list, or else the name of its file."""
    if (known := recognize(trials)) is not None:
        return known.name
    return "trials" if trials.path is None else trials.path.name


def wrong_list_hint(trials: Trials) -> str | None:
    """A warning if metrics on this list may be compared with those on another; else None."""
    if (published := recognize(trials)) is not None:
        for known in KNOWN_LISTS:
            if known.name == f"{published.name} (cleaned)":
                better = f"{known.name}, {known.authors_file}"
                return f"this is the list as first published; most papers report {better}"
        return None
    file_name = "" if trials.path is None else trials.path.name.removesuffix(".gz")
    for known in KNOWN_LISTS:
        if file_name in known.file_names:
            return (
                f"{trials.path} is called like {known.name} ({known.trials} trials), but its "
                f"{len(trials)} trials are others: metrics on it are not comparable"
            )
        if len(trials) == known.trials and trials.is_target is not None:
            return f"{trials.path} has as many trials as {known.name}, but is not known to be it"
    return None


def fingerprint(trials: Trials) -> int | None:
    """A number of 64 bits for a set of trials, whatever its order and format; None without labels.

    Names count without extension, and with - for /, as lists are often rewritten so. Each trial is
    hashed before the sum, so that exchanged partners or labels change it.
    """
    if trials.is_target is None:
        return None
    spelled = (name.rsplit(".", 1)[0].replace("/", "-").encode() for name in trials.ids)
    digests = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in spelled)
    hashes = np.frombuffer(digests, dtype="<u8").astype(np.uint64)
    mixed = hashes[trials.enroll] * np.uint64(3) + hashes[trials.test] * np.uint64(5)
    mixed += trials.is_target
    # The hash of the generator splitmix64 (Steele et al., 2014); overflow is intended.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int(np.sum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64))
