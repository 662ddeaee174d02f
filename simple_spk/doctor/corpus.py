"""Is a copy of a corpus complete and sound? Which files are not, and why?"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk import SAMPLE_RATE
from simple_spk.corpora.inspection import AudioFacts, Depth, inspect_files
from simple_spk.data.audio import AUDIO_SUFFIXES, SHORTEST_SECONDS
from simple_spk.data.manifest import read_manifest
from simple_spk.data.tar_store import fault_of_part, tar_part
from simple_spk.data.text_table import first_line, misfit, number_of, open_text, read_fields
from simple_spk.data.voxceleb_lists import TOTALS, part_of
from simple_spk.doctor.finding import Finding, Status, name_files, not_checked

# A file of each corpus, whose speakers all begin like this one, id1 or id0.
EXAMPLES = {
    "VoxCeleb1": "id10270/5r0dWxy17C8/00001.wav",
    "VoxCeleb2": "id00012/21Uxsk56VDQ/00001.m4a",
}
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


class CorpusFile(NamedTuple):
    """A file of a corpus that is there, or that a manifest promises."""

    name: str  # without suffix, as lists name utterances
    path: str
    speaker: str
    size_bytes: int  # -1: the file does not exist
    promised_seconds: float = np.nan  # nan: nothing is promised


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
    what, cure = (
        "files of utterances that have others",
        "name the folder of one form only (.../flac)",
    )
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


# ---- which files are there, and which should be -------------------------------------------------


def read_utterance_list(path: str | Path) -> dict[str, float]:
    """The utterances of a text file, plain or gzipped, without suffix, and their seconds.

    Each line has a name, or a name and seconds; seconds are nan where the list has none.
    """
    path = Path(path)
    with open_text(path, "utterance list") as file:
        first = first_line(file, path)
        if first is None:
            raise ValueError(f"{path} is empty; expected lines of 'utterance [seconds]'")
        columns = min(len(first.split()), 2)
        table = read_fields(file, path, columns, range(1, columns))

    def fits(fields: list[bytes]) -> bool:
        return len(fields) == columns and (columns == 1 or number_of(fields[1]) >= 0.0)

    if table is None or (columns == 2 and not (table.numbers(1) >= 0.0).all()):
        raise misfit(path, "utterance list", fits, "'utterance [seconds]'")
    distinct, (indexes,) = table.index(0)
    names = [without_suffix(distinct[index]) for index in indexes]
    seconds = table.numbers(1).tolist() if columns == 2 else [np.nan] * len(names)
    if len(set(names)) < len(names):
        ((name, count),) = Counter(names).most_common(1)
        raise ValueError(f"{path} names {name} {count} times; expected each utterance once")
    return dict(zip(names, seconds, strict=True))


def without_suffix(name: str) -> str:
    """A name without the suffix of an audio file, which a conversion changes.

    >>> without_suffix("id10270/5r0dWxy17C8/00001.wav"), without_suffix("dr.smith/1")
    ('id10270/5r0dWxy17C8/00001', 'dr.smith/1')
    """
    stem, _, suffix = name.rpartition(".")
    return stem if f".{suffix.lower()}" in AUDIO_SUFFIXES else name


def files_of_folder(folder: Path) -> list[CorpusFile]:
    """All audio files below a folder, named by their path in it; the first part is the speaker."""
    start = len(os.path.join(folder, ""))
    found = [(path[start:], path, size) for path, size in _walked(folder)]
    return [
        CorpusFile(without_suffix(name), path, os.path.dirname(name).partition("/")[0], size)
        for name, path, size in found
    ]


def files_of_voxceleb(corpus: str, folder: Path) -> list[CorpusFile]:
    """The files speaker/video/number of a corpus (VoxCeleb1, VoxCeleb2), wherever below a folder.

    Both the original tree (dev/aac/id00012/..., wav/id10001/...) and a converted one are found.
    """
    example = EXAMPLES[corpus]
    is_utterance = re.compile(example[:3] + r"\d{4}/[^/]+/\d+").fullmatch
    found = _walked(folder)
    named = (
        ("/".join(without_suffix(path).rsplit("/", 3)[1:]), path, size) for path, size in found
    )
    files = [
        CorpusFile(name, path, name[:7], size) for name, path, size in named if is_utterance(name)
    ]
    if not files:
        instead = f"the first audio file is {found[0][0]}" if found else "there is no audio file"
        raise ValueError(
            f"{folder} holds no recording of {corpus}: expected files such as .../{example} below "
            f"it, but {instead}"
        )
    return files


def files_of_manifest(path: Path) -> list[CorpusFile]:
    """The files that a manifest names, with the seconds that it promises."""
    manifest = read_manifest(path)
    speakers = [manifest.speakers[code] for code in manifest.speaker_of_row]
    columns = (manifest.row_of_id, manifest.files, speakers, manifest.durations_seconds.tolist())
    rows = tqdm(zip(*columns, strict=True), "look for files", len(manifest), unit="file")
    places = ((name, os.path.join(manifest.path.parent, wav), *rest) for name, wav, *rest in rows)
    return [
        CorpusFile(without_suffix(name), place, speaker, _size(place), seconds)
        for name, place, speaker, seconds in places
    ]


def _walked(folder: Path) -> list[tuple[str, int]]:
    """Paths and sizes of all audio files below a folder, in alphabetical order."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: correct the path")
    return sorted(tqdm(_walk(str(folder)), unit="file", desc="list files"))


def _walk(folder: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[tuple[str, int]]:
    """The audio files below a folder, with their sizes; ``above`` are the folders around it."""
    status = os.stat(folder)
    itself = (status.st_dev, status.st_ino)
    if itself in above:  # a link that leads in a circle
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _walk(entry.path, (*above, itself))
            elif entry.name.lower().endswith(AUDIO_SUFFIXES):
                yield entry.path, _size(entry.path)


def _size(path: str) -> int:
    """The bytes of a recording; -1 if there is none (or a link to nothing)."""
    part = tar_part(path)
    if part is not None:
        return part.size if fault_of_part(part) is None else -1
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1
