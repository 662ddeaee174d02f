"""Is a copy of a corpus complete and sound? Which files are not, and why?"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
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


@dataclass(frozen=True)
class Copy:
    """The n files of a corpus that are there (or that a manifest promises)."""

    names: list[str]  # (n,), without suffix, as lists name utterances
    paths: list[str]  # (n,)
    speakers: list[str]  # (n,)
    sizes: NDArray[np.int64]  # (n,) in bytes; -1: the file does not exist
    promised_seconds: NDArray[np.float64]  # (n,); nan where nothing is promised


def check_voxceleb(
    corpus: str, folder: Path, expected: UtteranceList | None, options: InspectionOptions
) -> tuple[list[Finding], dict[str, float]]:
    """Findings about a copy of VoxCeleb1 or VoxCeleb2, and its usable names with seconds."""
    topic = f"{corpus} in {folder}"
    copy = copy_of_voxceleb(corpus, folder, options.progress)
    checked = copy
    if expected is not None:
        expected = _of_parts(expected, {part for part in TOTALS if part.startswith(corpus)})
        expected = expected if expected.names else None  # it may be of the other corpus
    if expected is not None:
        listed_parts = {part_of(speaker) for speaker in {name[:7] for name in expected.names}}
        checked = rows_of(copy, [part_of(name[:7]) in listed_parts for name in copy.names])
    findings, usable = check_copy(topic, checked, expected, options)
    # Parts that the list does not name were not opened: nothing speaks against them.
    usable |= dict.fromkeys(set(copy.names) - set(checked.names), np.nan)
    extent = voxceleb_extent(topic, corpus, copy.names, usable, expected is not None)
    return [*extent, *findings], usable


def check_copy(
    topic: str, copy: Copy, expected: UtteranceList | None, options: InspectionOptions
) -> tuple[list[Finding], dict[str, float]]:
    """Findings about a copy, and the names of its usable files with their seconds.

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
    if options.depth is Depth.NAMES:
        findings.append(not_checked(topic, "audio", "files were not opened (--names-only)"))
        return findings, dict.fromkeys(present.names, np.nan)
    promised = present.promised_seconds
    if expected is not None:
        listed = dict(zip(expected.names, expected.seconds.tolist(), strict=True))
        promised = np.fmax(promised, [listed.get(name, np.nan) for name in present.names])
    is_deep = options.depth is Depth.SAMPLES
    # Only files of one size can be equal.
    facts = options.inspect(present.paths, _shared(present.sizes).tolist() if is_deep else None)
    findings += _length_findings(topic, present.names, promised, facts, options)
    if is_deep:
        findings += _sound_findings(topic, present, facts)
    else:
        why = "silence, clipping, equal files: only with --deep"
        findings.append(not_checked(topic, "sound", why))
    usable = {n: f.seconds for n, f in zip(present.names, facts, strict=True) if f.fault is None}
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


def _twice(topic: str, copy: Copy) -> list[Finding]:
    """Utterances that are there in several forms (m4a and flac, say)."""
    if len(set(copy.names)) == len(copy.names):
        return []
    counts = Counter(copy.names)
    names = [path for path, name in zip(copy.paths, copy.names, strict=True) if counts[name] > 1]
    cure = "name the folder of one form only (.../flac)"
    return [name_files(topic, "several forms", names, "files of utterances that have others", cure)]


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


def _sound_findings(topic: str, copy: Copy, facts: Sequence[AudioFacts]) -> list[Finding]:
    """Files without sound, files that touch full scale, files with the same bytes."""
    of_name = [*zip(copy.names, facts, strict=True)]
    silent = [name for name, fact in of_name if fact.is_silent]
    clipped = [name for name, fact in of_name if fact.full_scale_share > CLIPPED_SHARE]
    of_digest: defaultdict[int, list[int]] = defaultdict(list)
    for row, fact in enumerate(facts):
        if fact.digest:
            of_digest[fact.digest].append(row)
    within, across = [], []
    for rows in of_digest.values():
        if len(rows) > 1:
            is_one_speaker = len({copy.speakers[row] for row in rows}) == 1
            equal = " = ".join(copy.names[row] for row in rows)
            (within if is_one_speaker else across).append(equal)
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


def _shared(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each value (n,) occurs more than once."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[inverse] > 1


# ---- which files are there ----------------------------------------------------------------------


def copy_of_folder(folder: Path, progress: bool = True) -> Copy:
    """All audio files below a folder, named by their path in it."""
    paths, sizes = _list_audio(folder, progress)
    start = len(os.path.join(folder, ""))
    names = [without_suffix(path[start:]) for path in paths]
    return _copy(names, paths, sizes)


def copy_of_voxceleb(corpus: str, folder: Path, progress: bool = True) -> Copy:
    """The files speaker/video/number of a corpus (VoxCeleb1, VoxCeleb2), wherever below a folder.

    So the original tree (dev/aac/id00012/..., wav/id10001/...) will do, and a converted one.
    """
    paths, sizes = _list_audio(folder, progress)
    example, first_digits = EXAMPLES[corpus]
    is_utterance = re.compile(r"id\d{5}/[^/]+/\d+").fullmatch
    names = ["/".join(without_suffix(path).rsplit("/", 3)[1:]) for path in paths]
    kept = [
        row
        for row, name in enumerate(names)
        if is_utterance(name) and name.startswith(first_digits)
    ]
    if not kept:
        instead = (
            f"the first audio file is {paths[0]}" if paths else "there is no audio file at all"
        )
        raise ValueError(
            f"{folder} holds no recording of {corpus}: expected files such as "
            f".../{example} below it, but {instead}"
        )
    return _copy([names[row] for row in kept], [paths[row] for row in kept], sizes[kept])


def copy_of_manifest(path: Path, progress: bool = True) -> Copy:
    """The files that a manifest names, with the seconds that it promises."""
    manifest = read_manifest(path)
    assert manifest.ids is not None  # they were asked for
    folder = str(manifest.path.parent)
    paths = [os.path.join(folder, wav) for wav in manifest.wavs]
    names = [without_suffix(name) for name in manifest.ids]
    bar = tqdm(paths, unit="file", desc="look for files", disable=not progress)
    sizes = np.fromiter(map(_size, bar), dtype=np.int64, count=len(paths))
    speakers = [manifest.speakers[number] for number in manifest.speaker_of_row.tolist()]
    return Copy(names, paths, speakers, sizes, manifest.durations_seconds.astype(np.float64))


def _copy(names: list[str], paths: list[str], sizes: NDArray[np.int64]) -> Copy:
    """A copy of which nothing is promised; the first folder of a name is the speaker."""
    speakers = [name.rpartition("/")[0].partition("/")[0] for name in names]
    return Copy(names, paths, speakers, sizes, np.full(len(names), np.nan))


def rows_of(copy: Copy, kept: ArrayLike) -> Copy:
    """The files of a copy for which ``kept`` (n,) is true."""
    rows = np.flatnonzero(kept)
    return Copy(
        [copy.names[row] for row in rows],
        [copy.paths[row] for row in rows],
        [copy.speakers[row] for row in rows],
        copy.sizes[rows],
        copy.promised_seconds[rows],
    )


def _list_audio(folder: Path, progress: bool) -> tuple[list[str], NDArray[np.int64]]:
    """Paths and sizes of all audio files below a folder, in alphabetical order of folders."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: correct the path")
    bar = tqdm(_walk(str(folder)), unit="file", desc="list files", disable=not progress)
    found = sorted(bar)
    sizes = np.fromiter((size for _, size in found), dtype=np.int64, count=len(found))
    return [path for path, _ in found], sizes


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
