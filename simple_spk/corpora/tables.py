"""The five tables that training and evaluation read, made of recordings of known speakers."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from simple_spk.corpora.splits import SpeakerSplit
from simple_spk.corpora.trial_lists import make_trials, plain_id, write_trials
from simple_spk.data.manifest import write_manifest
from simple_spk.data.trials import Trials

TRIAL_PARTS = ("valid", "test")


class Recording(NamedTuple):
    """A recording to be listed; ``name`` is distinct, ``path`` absolute or relative to the tables.

    Non-target trials stay within a group, such as a gender or a corpus.
    """

    name: str
    path: str
    duration_seconds: float
    speaker: str
    group: str = ""


class PartSummary(NamedTuple):
    """What one part of the data holds."""

    speakers: int
    recordings: int
    hours: float
    trials: int


def write_speaker_tables(
    folder: str | Path,
    recordings: Sequence[Recording],
    split: SpeakerSplit,
    maximum_trials: int = 20000,
    seed: int = 0,
) -> dict[str, PartSummary]:
    """Write train.csv, valid.csv, test.csv, valid_trials.txt and test_trials.txt; sum them up.

    Tables of a part without speakers are removed, lest those of an earlier run be taken for it.
    """
    folder = Path(folder)
    of_part = {part: of_speakers(recordings, names) for part, names in split._asdict().items()}
    trials_of: dict[str, Trials] = {}
    for part in TRIAL_PARTS:  # all before anything is written: what fails leaves no half
        if of_part[part]:
            try:
                trials_of[part] = balanced_trials(of_part[part], maximum_trials, seed)
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
            write_recordings(manifest, chosen)
        else:
            manifest.unlink(missing_ok=True)
        summaries[part] = PartSummary(
            speakers=len({recording.speaker for recording in chosen}),
            recordings=len(chosen),
            hours=sum(recording.duration_seconds for recording in chosen) / 3600.0,
            trials=len(trials_of.get(part, ())),
        )
    return summaries


def tables_are_written(folder: str | Path) -> bool:
    """Whether a folder holds all five tables."""
    names = [f"{part}.csv" for part in SpeakerSplit._fields]
    names += [f"{part}_trials.txt" for part in TRIAL_PARTS]
    return all((Path(folder) / name).is_file() for name in names)


def of_speakers(recordings: Sequence[Recording], speakers: Collection[str]) -> list[Recording]:
    """The recordings of some speakers, in the order of all."""
    wanted = set(speakers)
    return [recording for recording in recordings if recording.speaker in wanted]


def write_recordings(path: str | Path, recordings: Sequence[Recording]) -> None:
    """Write recordings as a manifest; its IDs are their names without white space."""
    write_manifest(
        path,
        ids=[plain_id(recording.name) for recording in recordings],
        wavs=[recording.path for recording in recordings],
        durations_seconds=[recording.duration_seconds for recording in recordings],
        speakers=[plain_id(recording.speaker) for recording in recordings],
    )


def balanced_trials(recordings: Sequence[Recording], maximum: int, seed: int) -> Trials:
    """A balanced trial list over recordings, whose names are the IDs of their manifest."""
    groups = [recording.group for recording in recordings]
    return make_trials(
        ids=[plain_id(recording.name) for recording in recordings],
        speakers=[recording.speaker for recording in recordings],
        maximum=maximum,
        groups=groups if len(set(groups)) > 1 else None,
        seed=seed,
    )


def describe(summaries: Mapping[str, PartSummary]) -> str:
    """The parts of prepared data in words, one line each."""
    return "\n".join(
        f"{part}: {summary.speakers} speakers, {summary.recordings} recordings, "
        f"{summary.hours:.2f} hours" + (f", {summary.trials} trials" if part in TRIAL_PARTS else "")
        for part, summary in summaries.items()
    )
