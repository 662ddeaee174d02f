"""The tables that training and evaluation read, made of recordings of known speakers."""

import csv
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from simple_spk.corpora.splits import SpeakerSplit
from simple_spk.corpora.trial_lists import make_trials, plain_id, write_trials
from simple_spk.data.manifest import write_manifest
from simple_spk.data.text_table import write_table
from simple_spk.data.trials import Trials

TRIAL_PARTS = ("valid", "test")


class Utterance(NamedTuple):
    """A row of a manifest; ``name`` is distinct, ``path`` absolute or relative to the manifest.

    Non-target trials stay within a group, such as a gender or a corpus; target trials are across
    the speaker's sessions, if these are known.
    """

    name: str
    path: str
    duration_seconds: float
    speaker: str
    group: str = ""
    session: str = ""


class Quarantined(NamedTuple):
    """A file that was left out: the kind of fault in a word or two, and its details."""

    source: str  # relative to the folder that was searched
    kind: str
    details: str


class PreparedCorpus(NamedTuple):
    """The manifest of a corpus, what it holds, and what was left out."""

    manifest: Path
    speakers: int
    recordings: int
    hours: float
    quarantine: Path
    quarantined: list[Quarantined]
    ignored: Counter[str]  # other files, counted by suffix
    validation_recordings: int = 0


class PartSummary(NamedTuple):
    """How much one part of the data holds; ``sessions`` is 0 if they are unknown."""

    speakers: int
    recordings: int
    hours: float
    trials: int
    targets: int
    sessions: int


def write_corpus(
    manifest: Path,
    utterances: Sequence[Utterance],
    quarantine: Path,
    faults: list[Quarantined],
    ignored: Counter[str],
) -> PreparedCorpus:
    """Write the list of faulty recordings and the manifest of the others."""
    write_quarantine(quarantine, faults)
    if not utterances:
        kinds = count_kinds(faults)
        raise ValueError(f"none of the recordings can be used ({kinds}): see {quarantine}")
    write_utterances(manifest, utterances)
    return PreparedCorpus(manifest, *_summary(utterances)[:3], quarantine, faults, ignored)


def read_rows(path: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file, which has these columns, each with the number of its line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            missing = [name for name in columns if name not in names]
            if missing:
                raise ValueError(
                    f"{path} lacks the columns {', '.join(missing)}; its first line names "
                    f"{', '.join(names)[:200] or 'none'}"
                )
            for row in reader:
                yield reader.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from error


def write_quarantine(path: Path, recordings: Iterable[Quarantined]) -> None:
    """Write the list as CSV, in alphabetical order; without rows, nothing was left out."""
    rows = sorted(recordings)
    columns = {
        name: [getattr(row, name).encode(errors="backslashreplace").decode() for row in rows]
        for name in Quarantined._fields
    }
    write_table(path, columns)


def count_kinds(recordings: Sequence[Quarantined]) -> str:
    """How many recordings have each kind of fault.

    >>> count_kinds([Quarantined("a", "empty", ""), Quarantined("b", "silent", "")])
    '1 empty, 1 silent'
    """
    kinds = Counter(recording.kind for recording in recordings)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def trials_among(
    utterances: Sequence[Utterance],
    maximum: int,
    seed: int,
    balanced: bool = True,
    same_session_targets: bool = False,
) -> Trials:
    """The list that ``make_trials`` makes of utterances, with their groups and sessions."""
    groups = [utterance.group for utterance in utterances]
    return make_trials(
        [plain_id(utterance.name) for utterance in utterances],
        [utterance.speaker for utterance in utterances],
        maximum,
        groups if len(set(groups)) > 1 else None,
        seed,
        None if same_session_targets else [utterance.session for utterance in utterances],
        balanced,
    )


def write_speaker_tables(
    folder: str | Path,
    utterances: Sequence[Utterance],
    split: SpeakerSplit,
    make_list: Callable[[Sequence[Utterance]], Trials],
) -> dict[str, PartSummary]:
    """Write train.csv, valid.csv, test.csv, valid_trials.txt and test_trials.txt; summarize them.

    ``make_list`` makes the trials of a part. Old tables of a part that has no speakers now are
    removed.
    """
    folder = Path(folder)
    of_part = {part: of_speakers(utterances, names) for part, names in split._asdict().items()}
    trials_of: dict[str, Trials] = {}
    for part in filter(of_part.get, TRIAL_PARTS):  # a failure changes nothing yet
        try:
            trials_of[part] = make_list(of_part[part])
        except ValueError as error:
            raise ValueError(f"{folder / part}_trials.txt: {error}") from error
    summaries = {}
    for part, chosen in of_part.items():
        manifest, trial_list = folder / f"{part}.csv", folder / f"{part}_trials.txt"
        if part in trials_of:
            write_trials(trial_list, trials_of[part])
        else:
            trial_list.unlink(missing_ok=True)
        if chosen:
            write_utterances(manifest, chosen)
        else:
            manifest.unlink(missing_ok=True)
        summaries[part] = _summary(chosen, trials_of.get(part))
    return summaries


def _summary(utterances: Sequence[Utterance], trials: Trials | None = None) -> PartSummary:
    """How much utterances and their trials hold."""
    speakers = len({utterance.speaker for utterance in utterances})
    hours = sum(utterance.duration_seconds for utterance in utterances) / 3600
    count = 0 if trials is None else len(trials)
    targets = 0 if trials is None or trials.is_target is None else int(trials.is_target.sum())
    sessions = len({(one.speaker, one.session) for one in utterances if one.session})
    return PartSummary(speakers, len(utterances), hours, count, targets, sessions)


def tables_are_written(folder: str | Path) -> bool:
    """Whether a folder holds all five tables."""
    names = [f"{part}.csv" for part in SpeakerSplit._fields]
    names += [f"{part}_trials.txt" for part in TRIAL_PARTS]
    return all((Path(folder) / name).is_file() for name in names)


def of_speakers(utterances: Sequence[Utterance], speakers: Collection[str]) -> list[Utterance]:
    """The utterances of some speakers, in the order of all."""
    wanted = set(speakers)
    return [utterance for utterance in utterances if utterance.speaker in wanted]


def write_utterances(path: str | Path, utterances: Sequence[Utterance]) -> None:
    """Write a manifest; its IDs are the names without whitespace."""
    write_manifest(
        path,
        ids=[plain_id(utterance.name) for utterance in utterances],
        wavs=[utterance.path for utterance in utterances],
        durations_seconds=[utterance.duration_seconds for utterance in utterances],
        speakers=[plain_id(utterance.speaker) for utterance in utterances],
    )


def summary_text(summaries: Mapping[str, PartSummary]) -> str:
    """The sizes of all parts for people, one line each."""
    lines = []
    for part, (speakers, recordings, hours, trials, targets, sessions) in summaries.items():
        counts = [f"{speakers} speakers", f"{recordings} recordings", f"{hours:.2f} hours"]
        counts += [f"{sessions} sessions"] if sessions else []
        counts += [f"{trials} trials"] if part in TRIAL_PARTS else []
        counts += [f"{targets} of them target"] if 2 * targets != trials else []
        lines.append(f"{part}: {', '.join(counts)}")
    return "\n".join(lines)
