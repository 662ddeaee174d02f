"""Is a copy of a corpus complete and sound? Which files are not, and why?"""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.corpora.inspection import AudioFacts, inspect_audio
from simple_spk.data.voxceleb_lists import TOTALS, part_of
from simple_spk.doctor.corpus_copy import Copy, copy_of_voxceleb, rows_of
from simple_spk.doctor.finding import Finding, Verdict
from simple_spk.doctor.utterance_list import UtteranceList

# AAC comes in frames of 64 ms, of which decoders drop or keep a few at the ends.
SLACK_SECONDS = 0.2
# The noise of 16-bit samples alone has a standard deviation of 0.00001.
SILENT_DEVIATION = 1e-4
CLIPPED_SHARE = 0.01
LEAST_SHARE_OF_HOURS = 0.99
GET_AGAIN = "fetch or convert these files again, or leave them out"


class Depth(IntEnum):
    """How far files are looked into."""

    NAMES = 0
    HEADERS = 1  # and the end of each file
    SAMPLES = 2


@dataclass(frozen=True)
class Inspection:
    """How a copy is looked at."""

    depth: Depth = Depth.HEADERS
    shortest_seconds: float = 1.0  # less is too short to train on
    workers: int = 1
    progress: bool = True

    def __post_init__(self) -> None:
        if not self.shortest_seconds >= 0.0 or self.workers < 1:
            raise ValueError(
                f"files of at least {self.shortest_seconds} s, {self.workers} processes: expected "
                f"0 s or more, and at least one process (see --shortest and --processes)"
            )


def check_voxceleb(
    corpus: str, folder: Path, expected: UtteranceList | None, inspection: Inspection
) -> tuple[list[Finding], dict[str, float]]:
    """What is wrong with a copy of VoxCeleb1 or VoxCeleb2, and its usable names with seconds."""
    topic = f"{corpus} in {folder}"
    copy = copy_of_voxceleb(corpus, folder, inspection.progress)
    checked = copy
    if expected is not None:
        expected = _of_parts(expected, {part for part in TOTALS if part.startswith(corpus)})
        expected = expected if expected.names else None  # it may be of the other corpus
    if expected is not None:
        listed_parts = {part_of(speaker) for speaker in {name[:7] for name in expected.names}}
        checked = rows_of(copy, [part_of(name[:7]) in listed_parts for name in copy.names])
    findings, usable = check_copy(topic, checked, expected, inspection)
    # Parts that the list does not name were not opened: nothing speaks against them.
    usable |= dict.fromkeys(set(copy.names) - set(checked.names), np.nan)
    extent = voxceleb_extent(topic, corpus, copy.names, usable, expected is not None)
    return [*extent, *findings], usable


def check_copy(
    topic: str, copy: Copy, expected: UtteranceList | None, inspection: Inspection
) -> tuple[list[Finding], dict[str, float]]:
    """What is wrong with a copy, and the names of its usable files with their seconds.

    ``expected`` is the list of what should be there (None: compare with no list). Seconds are nan
    where files were not opened.
    """
    present = rows_of(copy, copy.sizes >= 0)
    wanted = None
    if expected is not None:
        wanted = set(expected.names) | (set(copy.names) - set(present.names))
    elif not np.isnan(copy.promised_seconds).all():  # a manifest, which is a list itself
        wanted = set(copy.names)
    findings = [*_twice(topic, present), *compare_names(topic, present.names, wanted)]
    if inspection.depth is Depth.NAMES:
        findings.append(_not_checked(topic, "audio", "files were not opened (--names-only)"))
        return findings, dict.fromkeys(present.names, np.nan)
    promised = present.promised_seconds
    if expected is not None:
        listed = dict(zip(expected.names, expected.seconds.tolist(), strict=True))
        promised = np.fmax(promised, [listed.get(name, np.nan) for name in present.names])
    decodes = inspection.depth is Depth.SAMPLES
    facts = inspect_audio(
        present.paths,
        decode=decodes,
        digest=_shared(present.sizes) if decodes else None,  # files of other sizes are not equal
        workers=inspection.workers,
        progress=inspection.progress,
    )
    findings += _length_findings(topic, present.names, promised, facts, inspection)
    if decodes:
        findings += _sound_findings(topic, present, facts)
    else:
        findings.append(
            _not_checked(topic, "sound", "silence, clipping, equal files: only with --deep")
        )
    usable = dict(zip(present.names, facts.seconds.tolist(), strict=True))
    for row in facts.faults:
        usable.pop(present.names[row], None)
    return findings, usable


def usable_in_folder(folder: Path, names: Sequence[str], inspection: Inspection) -> set[str]:
    """Those of the names (paths within a folder) whose files are there and can be read."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: correct the path")
    there = [name for name in names if os.path.isfile(os.path.join(folder, name))]
    if inspection.depth is Depth.NAMES:
        return set(there)
    facts = inspect_audio(
        [os.path.join(folder, name) for name in there],
        decode=inspection.depth is Depth.SAMPLES,
        workers=inspection.workers,
        progress=inspection.progress,
    )
    return set(there) - {there[row] for row in facts.faults}


def compare_names(topic: str, names: Sequence[str], wanted: set[str] | None) -> list[Finding]:
    """Which wanted names are not there, and which are there unwanted (None: anything may be)."""
    if wanted is None:
        return [_not_checked(topic, "missing", "give their --utterances LIST to learn which are")]
    there = set(names)
    missing = sorted(wanted - there)
    text = (
        f"of {len(wanted):,} files"
        if missing
        else f"files: all {len(wanted):,} are there, complete"
    )
    return [
        _count(
            topic,
            "missing",
            missing,
            text,
            "fetch these again, or convert again what is missing (simple-spk prepare)",
        ),
        _count(
            topic,
            "surplus",
            sorted(there - wanted),
            "files that are not on the list",
            "is the list of this part of the corpus? if so, remove these files",
        ),
    ]


def voxceleb_extent(
    topic: str, corpus: str, names: Sequence[str], usable: dict[str, float], has_list: bool
) -> list[Finding]:
    """Speakers, utterances and hours of each part of VoxCeleb, against what a whole part has.

    If there is a list, it decides what is missing, and other totals are only worth a note.
    """
    utterances_of_speaker = Counter(name[:7] for name in set(names))
    seconds_of_speaker: defaultdict[str, float] = defaultdict(float)
    for name, seconds in usable.items():
        seconds_of_speaker[name[:7]] += seconds
    findings = []
    for part, totals in TOTALS.items():
        if not part.startswith(corpus):
            continue
        speakers = [speaker for speaker in utterances_of_speaker if part_of(speaker) == part]
        if not speakers:
            findings.append(_not_checked(topic, part, "none of it is here"))
            continue
        utterances = sum(utterances_of_speaker[speaker] for speaker in speakers)
        hours = sum(seconds_of_speaker[speaker] for speaker in speakers) / 3600
        figures = {"speakers": len(speakers), "utterances": utterances, "hours": hours}
        text = (
            f"{len(speakers):,} of {totals.speakers:,} speakers, "
            f"{utterances:,} of {totals.utterances:,} utterances"
        )
        if np.isnan(hours):
            del figures["hours"]
        else:
            text += f", {hours:,.1f} of {totals.hours:,.1f} hours"
        is_whole = (len(speakers), utterances) == totals[:2]
        is_whole &= not hours < LEAST_SHARE_OF_HOURS * totals.hours
        otherwise = Verdict.NOTE if has_list else Verdict.PROBLEM
        verdict = Verdict.OK if is_whole else otherwise
        cure = "this is not the whole of it"
        if not has_list:
            cure += "; give --utterances LIST to learn which files are missing"
        findings.append(Finding(topic, part, verdict, text, cure, figures=figures))
    return findings


def _of_parts(utterances: UtteranceList, parts: set[str]) -> UtteranceList:
    """The utterances of a list whose speakers are in these parts of VoxCeleb."""
    speakers = {name[:7] for name in utterances.names}
    kept = {speaker for speaker in speakers if part_of(speaker) in parts}
    rows = [row for row, name in enumerate(utterances.names) if name[:7] in kept]
    return UtteranceList([utterances.names[row] for row in rows], utterances.seconds[rows])


def _twice(topic: str, copy: Copy) -> list[Finding]:
    """Utterances that are there in several forms (m4a and flac, say)."""
    if len(set(copy.names)) == len(copy.names):
        return []
    counts = Counter(copy.names)
    names = [path for path, name in zip(copy.paths, copy.names, strict=True) if counts[name] > 1]
    cure = "name the folder of one form only (.../flac)"
    return [_count(topic, "several forms", names, "files of utterances that have others", cure)]


def _length_findings(
    topic: str,
    names: Sequence[str],
    promised: NDArray[np.float64],
    facts: AudioFacts,
    inspection: Inspection,
) -> list[Finding]:
    """Files that cannot be read to their end, and those shorter than promised or than is useful."""
    seconds = facts.seconds
    unreadable = [f"{names[row]} ({fault})" for row, fault in facts.faults.items()]
    short = np.flatnonzero(seconds < promised - SLACK_SECONDS).tolist()
    brief = np.flatnonzero(seconds < inspection.shortest_seconds).tolist()
    hours = float(np.nansum(seconds)) / 3600
    least = f"files under {inspection.shortest_seconds:g} s, too short to train on"
    findings = [
        Finding(
            topic, "length", Verdict.OK, f"{hours:,.1f} hours of audio", figures={"hours": hours}
        ),
        _count(topic, "unreadable", unreadable, "files that cannot be read to the end", GET_AGAIN),
        _count(
            topic,
            "short",
            [f"{names[i]} ({seconds[i]:.2f} s of {promised[i]:.2f} s)" for i in short],
            "files with fewer seconds than promised",
            GET_AGAIN,
        ),
        _count(topic, "too short", [names[i] for i in brief], least, "leave them out"),
    ]
    if np.isnan(promised).all():
        findings[2] = _not_checked(topic, "short", "nothing says how long the files should be")
    return findings


def _sound_findings(topic: str, copy: Copy, facts: AudioFacts) -> list[Finding]:
    """Files without sound, files that are cut off at full scale, files with the same bytes."""
    silent = np.flatnonzero(facts.deviation < SILENT_DEVIATION).tolist()
    clipped = np.flatnonzero(facts.full_scale_share > CLIPPED_SHARE).tolist()
    names, groups = copy.names, _equal_groups(facts.digests)
    across = [group for group in groups if len({copy.speakers[i] for i in group}) > 1]
    within = [group for group in groups if len({copy.speakers[i] for i in group}) == 1]

    def joined(equal: list[list[int]]) -> list[str]:
        return [" = ".join(names[i] for i in group) for group in equal]

    return [
        _count(topic, "silent", [names[i] for i in silent], "files without sound", GET_AGAIN),
        _count(
            topic,
            "clipped",
            [names[i] for i in clipped],
            f"files of which more than {CLIPPED_SHARE:.0%} touches full scale",
            "they may stay: recordings of the world are sometimes clipped",
            Verdict.NOTE,
        ),
        _count(
            topic,
            "equal, two speakers",
            joined(across),
            "groups of equal files under several speakers",
            "one of the speakers is wrong: leave these files out",
        ),
        _count(
            topic,
            "equal, one speaker",
            joined(within),
            "groups of equal files of one speaker",
            "they may stay, but add nothing",
            Verdict.NOTE,
        ),
    ]


def _count(
    topic: str,
    kind: str,
    names: Sequence[str],
    what: str,
    cure: str,
    otherwise: Verdict = Verdict.PROBLEM,
) -> Finding:
    """A finding that is well if it names nothing."""
    verdict = otherwise if names else Verdict.OK
    figures = {"files": float(len(names))}
    return Finding(topic, kind, verdict, f"{len(names):,} {what}", cure, tuple(names), figures)


def _not_checked(topic: str, kind: str, why: str) -> Finding:
    """A check that was not made."""
    return Finding(topic, kind, Verdict.NOT_CHECKED, why)


def _shared(values: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each value (n,) stands there more than once."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[inverse] > 1


def _equal_groups(digests: NDArray[np.uint64]) -> list[list[int]]:
    """Indexes of files with one digest (n,), a group each; 0 is no digest."""
    order = np.argsort(digests, kind="stable")
    order = order[(digests[order] != 0) & _shared(digests[order])]
    groups = np.split(order, np.flatnonzero(np.diff(digests[order])) + 1)
    return [group.tolist() for group in groups if len(group)]
