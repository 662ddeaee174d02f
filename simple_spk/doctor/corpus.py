"""Is a copy of a corpus complete and sound? Which files are not, and why?"""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.corpora.inspection import AudioFacts, Depth, inspect_files
from simple_spk.data.audio import SHORTEST_SECONDS
from simple_spk.data.voxceleb_lists import TOTALS, part_of
from simple_spk.doctor.corpus_files import CorpusFile, files_of_voxceleb
from simple_spk.doctor.finding import Finding, Status, name_files, not_checked

# AAC comes in frames of 64 ms, of which decoders drop or keep a few at the ends.
SLACK_SECONDS = 0.2
CLIPPED_SHARE = 0.01
LEAST_SHARE_OF_HOURS = 0.99
GET_AGAIN = "fetch or convert these files again, or leave them out"


@dataclass(frozen=True)
class InspectionOptions:
    """How the files of a copy are inspected."""

    depth: Depth = Depth.ENDS
    shortest_seconds: float = SHORTEST_SECONDS  # less is too short to train on
    workers: int = 1

    def __post_init__(self) -> None:
        if not self.shortest_seconds >= 0.0 or self.workers < 1:
            raise ValueError(
                f"files of at least {self.shortest_seconds} s, {self.workers} processes: expected "
                "0 s or more, and at least one process (see --shortest and --processes)"
            )


def check_voxceleb(
    corpus: str, folder: Path, expected: Mapping[str, float] | None, options: InspectionOptions
) -> tuple[list[Finding], dict[str, float]]:
    """Findings about a copy of VoxCeleb1 or VoxCeleb2, and its usable names with seconds."""
    topic = f"{corpus} in {folder}"
    files = files_of_voxceleb(corpus, folder)
    # The list may be of the other corpus; parts that it does not name are not opened.
    part_of_name = {name: part_of(name[:7]) or "" for name in expected or ()}
    parts = {part for part in part_of_name.values() if part.startswith(corpus)}
    listed = {name: s for name, s in (expected or {}).items() if part_of_name[name] in parts}
    checked = [file for file in files if not parts or part_of(file.speaker) in parts]
    findings, usable = check_files(topic, checked, listed or None, options)
    names = [file.name for file in files]
    usable |= dict.fromkeys(set(names) - {file.name for file in checked}, np.nan)
    return [*voxceleb_extent(topic, corpus, names, usable, bool(parts)), *findings], usable


def check_files(
    topic: str,
    files: Sequence[CorpusFile],
    expected: Mapping[str, float] | None,
    options: InspectionOptions,
) -> tuple[list[Finding], dict[str, float]]:
    """Findings about a copy of a corpus, and the names of its usable files with their seconds.

    ``expected`` are the seconds of what should be there, by name (None: compare with no list).
    Seconds are nan where files were not opened.
    """
    present = [file for file in files if file.size_bytes >= 0]
    names = [file.name for file in present]
    promised = np.array([file.promised_seconds for file in present])
    wanted = None
    if expected is not None or not all(np.isnan(file.promised_seconds) for file in files):
        absent = {file.name for file in files}.difference(names)
        wanted = absent.union(names if expected is None else expected)  # a manifest is a list, too
    count_of_name = Counter(names)
    several = [file.path for file in present if count_of_name[file.name] > 1]
    what = "files of utterances that are there in several forms"
    cure = "name the folder of one form only (.../flac)"
    findings = [name_files(topic, "several forms", several, what, cure)] if several else []
    findings += compare_names(topic, names, wanted)
    if options.depth is Depth.NAMES:
        findings.append(not_checked(topic, "audio", "files were not opened (--names-only)"))
        return findings, dict.fromkeys(names, np.nan)
    if expected is not None:
        promised = np.fmax(promised, [expected.get(name, np.nan) for name in names])
    is_deep = options.depth is Depth.SAMPLES
    count_of_size = Counter(file.size_bytes for file in present)  # equal files have one size
    with_digest = [is_deep and count_of_size[file.size_bytes] > 1 for file in present]
    paths = [file.path for file in present]
    facts = [*inspect_files(paths, options.depth, options.workers, True, with_digest)]
    findings += _length_findings(topic, names, promised, facts, options.shortest_seconds)
    if is_deep:
        findings += _sound_findings(topic, present, facts)
    else:
        why = "silence, clipping, equal files: only with --deep"
        findings.append(not_checked(topic, "sound", why))
    usable = {name: fact.seconds for name, fact in zip(names, facts, strict=True) if not fact.fault}
    return findings, usable


def usable_in_folder(folder: Path, names: Sequence[str], options: InspectionOptions) -> set[str]:
    """Those of the names (paths within a folder) whose files are there and can be read."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: correct the path")
    there = [name for name in names if os.path.isfile(os.path.join(folder, name))]
    if options.depth is Depth.NAMES:
        return set(there)
    paths = [os.path.join(folder, name) for name in there]
    facts = inspect_files(paths, options.depth, options.workers, in_processes=True)
    return {name for name, fact in zip(there, facts, strict=True) if fact.fault is None}


def compare_names(topic: str, names: Sequence[str], wanted: set[str] | None) -> list[Finding]:
    """Which wanted names are not there, and which are there unwanted (None: anything may be)."""
    if wanted is None:
        return [not_checked(topic, "missing", "give their --utterances LIST to learn which are")]
    missing, surplus = sorted(wanted.difference(names)), sorted(set(names) - wanted)
    total = f"{len(wanted):,}"
    text = f"of {total} files" if missing else f"files: all {total} are there, complete"
    fetch = "fetch these again, or convert again what is missing (simple-spk prepare)"
    remove = "is the list of this part of the corpus? if so, remove these files"
    return [
        name_files(topic, "missing", missing, text, fetch),
        name_files(topic, "surplus", surplus, "files that are not on the list", remove),
    ]


def voxceleb_extent(
    topic: str, corpus: str, names: Sequence[str], usable: Mapping[str, float], has_list: bool
) -> list[Finding]:
    """Speakers, utterances and hours of each part of VoxCeleb, against what a whole part has.

    If there is a list, it decides what is missing, and other totals are only worth a note.
    """
    findings = []
    for part in (part for part in TOTALS if part.startswith(corpus)):
        totals = TOTALS[part]
        found = {name for name in names if part_of(name[:7]) == part}
        if not found:
            findings.append(not_checked(topic, part, "none of it is here"))
            continue
        speakers, utterances = len({name[:7] for name in found}), len(found)
        hours = math.fsum(usable.get(name, 0.0) for name in found) / 3600  # nan if some are
        metrics = {"speakers": speakers, "utterances": utterances, "hours": hours}
        text = (
            f"{speakers:,} of {totals.speakers:,} speakers, "
            f"{utterances:,} of {totals.utterances:,} utterances"
        )
        if np.isnan(hours):
            del metrics["hours"]
        else:
            text += f", {hours:,.1f} of {totals.hours:,.1f} hours"
        is_whole = (speakers, utterances) == totals[:2]
        is_whole &= not hours < LEAST_SHARE_OF_HOURS * totals.hours
        status = Status.OK if is_whole else Status.NOTE if has_list else Status.PROBLEM
        learn = "" if has_list else "; give --utterances LIST to learn which files are missing"
        cure = f"this is not the whole of it{learn}"
        findings.append(Finding(topic, part, status, text, cure, metrics=metrics))
    return findings


def _length_findings(
    topic: str,
    names: Sequence[str],
    promised: NDArray[np.float64],
    facts: Sequence[AudioFacts],
    shortest: float,
) -> list[Finding]:
    """Files that cannot be read to their end, and those shorter than promised or than is useful."""
    seconds = np.array([fact.seconds for fact in facts])
    rows = [*zip(names, facts, strict=True)]
    unreadable = [f"{name} ({fact.fault[1]})" for name, fact in rows if fact.fault is not None]
    brief = [names[row] for row in np.flatnonzero(seconds < shortest).tolist()]
    other = [
        f"{name} ({fact.sample_rate} Hz, {fact.channels} channels)"
        for name, fact in rows
        if fact.fault is None and (fact.sample_rate, fact.channels) != (SAMPLE_RATE, 1)
    ]
    named = partial(name_files, topic)
    shorter = not_checked(topic, "short", "nothing says how long the files should be")
    if not np.isnan(promised).all():
        short = np.flatnonzero(seconds < promised - SLACK_SECONDS).tolist()
        lengths = [f"{names[row]} ({seconds[row]:.2f} s of {promised[row]:.2f} s)" for row in short]
        shorter = named("short", lengths, "files with fewer seconds than promised", GET_AGAIN)
    hours = float(np.nansum(seconds)) / 3600
    text, metrics = f"{hours:,.1f} hours of audio", {"hours": hours}
    least = f"files under {shortest:g} s, too short to train on"
    form = f"files that are not mono at {SAMPLE_RATE} Hz"
    cure = "they may stay, but reading converts them every time"
    return [
        Finding(topic, "length", Status.OK, text, metrics=metrics),
        named("unreadable", unreadable, "files that cannot be read to the end", GET_AGAIN),
        shorter,
        named("too short", brief, least, "leave them out"),
        named("format", other, form, cure, Status.NOTE),
    ]


def _sound_findings(
    topic: str, files: Sequence[CorpusFile], facts: Sequence[AudioFacts]
) -> list[Finding]:
    """Files without sound, files that touch full scale, files with the same bytes."""
    rows = [*zip(files, facts, strict=True)]
    silent = [file.name for file, fact in rows if fact.is_silent]
    clipped = [file.name for file, fact in rows if fact.full_scale_share > CLIPPED_SHARE]
    of_digest: defaultdict[int, list[CorpusFile]] = defaultdict(list)
    for file, fact in rows:
        if fact.digest:
            of_digest[fact.digest].append(file)
    within: list[str] = []
    across: list[str] = []
    for equal in of_digest.values():
        if len(equal) > 1:
            is_one_speaker = len({file.speaker for file in equal}) == 1
            (within if is_one_speaker else across).append(" = ".join(file.name for file in equal))
    named, equals = partial(name_files, topic), "groups of equal files"
    often = f"files of which more than {CLIPPED_SHARE:.0%} touches full scale"
    may_stay = "they may stay: recordings of the world are sometimes clipped"
    wrong = "one of the speakers is wrong: leave these files out"
    no_use = "they may stay, but add nothing"
    return [
        named("silent", silent, "files without sound", GET_AGAIN),
        named("clipped", clipped, often, may_stay, Status.NOTE),
        named("equal, two speakers", across, f"{equals} under several speakers", wrong),
        named("equal, one speaker", within, f"{equals} of one speaker", no_use, Status.NOTE),
    ]
