"""The official VoxCeleb1 trial lists, told by their content, whatever a file is called."""

import hashlib
from typing import NamedTuple

import numpy as np

from simple_spk.trials import Trials


class KnownList(NamedTuple):
    """An official list: what it is called, and how its content is recognised."""

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


def recognise(trials: Trials) -> KnownList | None:
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
    known = recognise(trials)
    if known is not None:
        return known.name
    return "trials" if trials.path is None else trials.path.name


def wrong_list_hint(trials: Trials) -> str | None:
    """A warning if figures on this list may be compared with those on another; else None."""
    known = recognise(trials)
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
    mixed = hashes[trials.enrol] * np.uint64(3) + hashes[trials.test] * np.uint64(5)
    mixed += trials.is_target
    # The scrambling of the generator splitmix64 (Steele et al., 2014); overflow is meant.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int(np.sum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64))
