"""Is a copy of a corpus complete and sound? Which files are not, and why?"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk import SAMPLE_RATE
from simple_spk.corpora.inspection import AudioFacts, Depth, inspect_files
from simple_spk.data.audio import AUDIO_SUFFIXES, SHORTEST_SECONDS
from simple_spk.data.manifest import read_manifest
from simple_spk.data.voxceleb_lists import TOTALS, part_of
from simple_spk.doctor.finding import Finding, Status, name_files, not_checked
from simple_spk.doctor.utterance_list import UtteranceList, without_suffix

# A file of each corpus, and how its speakers begin.
EXAMPLES = {
    "VoxCeleb1": ("id10270/5r0dWxy17C8/00001.wav", "id1"),
    "VoxCeleb2": ("id00012/21Uxsk56VDQ/00001.m4a", "id0"),
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
    progress: bool = True

    def __post_init__(self) -> None:
        if not self.shortest_seconds >= 0.0 or self.workers < 1:
            raise ValueError(
                f"files of at least {self.shortest_seconds} s, {self.workers} processes: expected "
                f"0 s or more, and at least one process (see --shortest and --processes)"
            )

    def inspect(
        self, paths: Sequence[str], with_digest: Sequence[bool] | None = None
    ) -> list[AudioFacts]:
        """The facts about files, gathered by processes."""
        return [*inspect_files(paths, self.depth, self.workers, True, with_digest, self.progress)]


class CorpusFile(NamedTuple):
    """A file of a corpus that is there, or that a manifest promises."""

    name: str  # without suffix, as lists name utterances
    path: str
    speaker: str
    size_bytes: int  # -1: the file does not exist
    promised_seconds: float = np.nan  # nan: nothing is promised


def check_voxceleb(
    corpus: str, folder: Path, expected: UtteranceList | None, options: InspectionOptions
) -> tuple[list[Finding], dict[str, float]]:
    """Findings about a copy of VoxCeleb1 or VoxCeleb2, and its usable names with seconds."""
    topic = f"{corpus} in {folder}"
    files = files_of_voxceleb(corpus, folder, options.progress)
    checked = files
    if expected is not None:
        expected = _of_parts(expected, {part for part in TOTALS if part.startswith(corpus)})
        expected = expected if expected.names else None  # it may be of the other corpus
    if expected is not None:
        listed_parts = {part_of(speaker) for speaker in {name[:7] for name in expected.names}}
        checked = [file for file in files if part_of(file.speaker) in listed_parts]
    findings, usable = check_files(topic, checked, expected, options)
    # Parts that the list does not name were not opened: nothing speaks against them.
    names = [file.name for file in files]
    usable |= dict.fromkeys(set(names) - {file.name for file in checked}, np.nan)
    extent = voxceleb_extent(topic, corpus, names, usable, expected is not None)
    return [*extent, *findings], usable


def check_files(
    topic: str,
    files: Sequence[CorpusFile],
    expected: UtteranceList | None,
    options: InspectionOptions,
) -> tuple[list[Finding], dict[str, float]]:
    """Findings about a copy of a corpus, and the names of its usable files with their seconds.

    ``expected`` is the list of what should be there (None: compare with no list). Seconds are nan
    where files were not opened.
    """
    present = [file for file in files if file.size_bytes >= 0]
    names = [file.name for file in present]
    absent = {file.name for file in files} - set(names)
    wanted = None
    if expected is not None:
        wanted = absent.union(expected.names)
    elif not all(np.isnan(file.promised_seconds) for file in files):  # a manifest is a list itself
        wanted = absent.union(names)
    findings = [*_twice(topic, present), *compare_names(topic, names, wanted)]
    if options.depth is Depth.NAMES:
        findings.append(not_checked(topic, "audio", "files were not opened (--names-only)"))
        return findings, dict.fromkeys(names, np.nan)
    promised = np.array([file.promised_seconds for file in present])
    if expected is not None:
        listed = dict(zip(expected.names, expected.seconds.tolist(), strict=True))
        promised = np.fmax(promised, [listed.get(name, np.nan) for name in names])
    is_deep = options.depth is Depth.SAMPLES
    count_of_size = Counter(file.size_bytes for file in present)  # equal files have one size
    with_digest = [is_deep and count_of_size[file.size_bytes] > 1 for file in present]
    facts = options.inspect([file.path for file in present], with_digest)
    findings += _length_findings(topic, names, promised, facts, options)
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
    facts = options.inspect([os.path.join(folder, name) for name in there])
    return {name for name, fact in zip(there, facts, strict=True) if fact.fault is None}


def compare_names(topic: str, names: Sequence[str], wanted: set[str] | None) -> list[Finding]:
    """Which wanted names are not there, and which are there unwanted (None: anything may be)."""
    if wanted is None:
        return [not_checked(topic, "missing", "give their --utterances LIST to learn which are")]
    there = set(names)
    missing = sorted(wanted - there)
    text = f"of {len(wanted):,} files"
    if not missing:
        text = f"files: all {len(wanted):,} are there, complete"
    fetch = "fetch these again, or convert again what is missing (simple-spk prepare)"
    remove = "is the list of this part of the corpus? if so, remove these files"
    surplus = sorted(there - wanted)
    return [
        name_files(topic, "missing", missing, text, fetch),
        name_files(topic, "surplus", surplus, "files that are not on the list", remove),
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
            findings.append(not_checked(topic, part, "none of it is here"))
            continue
        utterances = sum(utterances_of_speaker[speaker] for speaker in speakers)
        hours = sum(seconds_of_speaker[speaker] for speaker in speakers) / 3600
        metrics = {"speakers": len(speakers), "utterances": utterances, "hours": hours}
        text = (
            f"{len(speakers):,} of {totals.speakers:,} speakers, "
            f"{utterances:,} of {totals.utterances:,} utterances"
        )
        if np.isnan(hours):
            del metrics["hours"]
        else:
            text += f", {hours:,.1f} of {totals.hours:,.1f} hours"
        is_whole = (len(speakers), utterances) == totals[:2]
        is_whole &= not hours < LEAST_SHARE_OF_HOURS * totals.hours
        otherwise = Status.NOTE if has_list else Status.PROBLEM
        cure = "this is not the whole of it"
        if not has_list:
            cure += "; give --utterances LIST to learn which files are missing"
        status = Status.OK if is_whole else otherwise
        findings.append(Finding(topic, part, status, text, cure, metrics=metrics))
    return findings


def _of_parts(utterances: UtteranceList, parts: set[str]) -> UtteranceList:
    """The utterances of a list whose speakers are in these parts of VoxCeleb."""
    speakers = {name[:7] for name in utterances.names}
    kept = {speaker for speaker in speakers if part_of(speaker) in parts}
    rows = [row for row, name in enumerate(utterances.names) if name[:7] in kept]
    return UtteranceList([utterances.names[row] for row in rows], utterances.seconds[rows])


def _twice(topic: str, files: Sequence[CorpusFile]) -> list[Finding]:
    """Utterances that are there in several forms (m4a and flac, say)."""
    counts = Counter(file.name for file in files)
    if len(counts) == len(files):
        return []
    paths = [file.path for file in files if counts[file.name] > 1]
    cure = "name the folder of one form only (.../flac)"
    return [name_files(topic, "several forms", paths, "files of utterances that have others", cure)]


def _length_findings(
    topic: str,
    names: Sequence[str],
    promised: NDArray[np.float64],
    facts: Sequence[AudioFacts],
    options: InspectionOptions,
) -> list[Finding]:
    """Files that cannot be read to their end, and those shorter than promised or than is useful."""
    seconds = np.array([fact.seconds for fact in facts])
    rows = [*enumerate(facts)]
    unreadable = [f"{names[i]} ({fact.fault[1]})" for i, fact in rows if fact.fault is not None]
    short = np.flatnonzero(seconds < promised - SLACK_SECONDS).tolist()
    brief = np.flatnonzero(seconds < options.shortest_seconds).tolist()
    other = [
        f"{names[i]} ({fact.sample_rate} Hz, {fact.channels} channels)"
        for i, fact in rows
        if fact.fault is None and (fact.sample_rate, fact.channels) != (SAMPLE_RATE, 1)
    ]
    hours = float(np.nansum(seconds)) / 3600
    least = f"files under {options.shortest_seconds:g} s, too short to train on"
    form = f"files that are not mono at {SAMPLE_RATE} Hz"
    metrics = {"hours": hours}
    shorter = not_checked(topic, "short", "nothing says how long the files should be")
    if not np.isnan(promised).all():
        lengths = [f"{names[i]} ({seconds[i]:.2f} s of {promised[i]:.2f} s)" for i in short]
        text = "files with fewer seconds than promised"
        shorter = name_files(topic, "short", lengths, text, GET_AGAIN)
    end = "files that cannot be read to the end"
    cure = "they may stay, but reading converts them every time"
    return [
        Finding(topic, "length", Status.OK, f"{hours:,.1f} hours of audio", metrics=metrics),
        name_files(topic, "unreadable", unreadable, end, GET_AGAIN),
        shorter,
        name_files(topic, "too short", [names[i] for i in brief], least, "leave them out"),
        name_files(topic, "format", other, form, cure, Status.NOTE),
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
    often = f"files of which more than {CLIPPED_SHARE:.0%} touches full scale"
    several, one = "groups of equal files under several speakers", "groups of equal files"
    wrong = "one of the speakers is wrong: leave these files out"
    may_stay = "they may stay: recordings of the world are sometimes clipped"
    adds_nothing = "they may stay, but add nothing"
    return [
        name_files(topic, "silent", silent, "files without sound", GET_AGAIN),
        name_files(topic, "clipped", clipped, often, may_stay, Status.NOTE),
        name_files(topic, "equal, two speakers", across, several, wrong),
        name_files(
            topic, "equal, one speaker", within, f"{one} of one speaker", adds_nothing, Status.NOTE
        ),
    ]


# ---- which files are there ----------------------------------------------------------------------


def files_of_folder(folder: Path, progress: bool = True) -> list[CorpusFile]:
    """All audio files below a folder, named by their path in it; the first part is the speaker."""
    start = len(os.path.join(folder, ""))
    found = [(without_suffix(path[start:]), path, size) for path, size in _walked(folder, progress)]
    return [
        CorpusFile(name, path, name.rpartition("/")[0].partition("/")[0], size)
        for name, path, size in found
    ]


def files_of_voxceleb(corpus: str, folder: Path, progress: bool = True) -> list[CorpusFile]:
    """The files speaker/video/number of a corpus (VoxCeleb1, VoxCeleb2), wherever below a folder.

    Both the original tree (dev/aac/id00012/..., wav/id10001/...) and a converted one are found.
    """
    example, first_digits = EXAMPLES[corpus]
    is_utterance = re.compile(first_digits + r"\d{4}/[^/]+/\d+").fullmatch
    found = _walked(folder, progress)
    files = []
    for path, size in found:
        name = "/".join(without_suffix(path).rsplit("/", 3)[1:])
        if is_utterance(name):
            files.append(CorpusFile(name, path, name[:7], size))
    if not files:
        instead = f"the first audio file is {found[0][0]}" if found else "there is no audio file"
        raise ValueError(
            f"{folder} holds no recording of {corpus}: expected files such as "
            f".../{example} below it, but {instead}"
        )
    return files


def files_of_manifest(path: Path, progress: bool = True) -> list[CorpusFile]:
    """The files that a manifest names, with the seconds that it promises."""
    manifest = read_manifest(path)
    assert manifest.ids is not None  # they were asked for
    folder = str(manifest.path.parent)
    rows = zip(
        manifest.ids,
        manifest.files,
        manifest.speaker_of_row.tolist(),
        manifest.durations_seconds.tolist(),
        strict=True,
    )
    files = []
    bar = tqdm(rows, "look for files", len(manifest), unit="file", disable=not progress)
    for name, wav, speaker, seconds in bar:
        place = os.path.join(folder, wav)
        speaker = manifest.speakers[speaker]
        files.append(CorpusFile(without_suffix(name), place, speaker, _size(place), seconds))
    return files


def _walked(folder: Path, progress: bool) -> list[tuple[str, int]]:
    """Paths and sizes of all audio files below a folder, in alphabetical order."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: correct the path")
    bar = tqdm(_walk(str(folder)), unit="file", desc="list files", disable=not progress)
    return sorted(bar)


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
    """The bytes of a file; -1 if there is none (or a link to nothing)."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1
