"""Prepare any folder of speakers: python recipes/Folder/prepare.py FOLDER DATA [options]

FOLDER/SPEAKER/**/*.{wav,flac,ogg,opus,mp3,m4a} becomes manifests (DATA/train.csv, valid.csv,
test.csv; no speaker is in two of them) and balanced trial lists (DATA/valid_trials.txt,
test_trials.txt). Files that cannot be used are listed, with the reason, in DATA/quarantine.csv. Run
it again after the folder changed: only new and changed files are opened.
"""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from simple_spk.cli.errors import exit_code
from simple_spk.corpora.speaker_folder import find_usable, list_speaker_folder
from simple_spk.corpora.splits import FEWEST_SPEAKERS, split_speakers
from simple_spk.corpora.tables import (
    PartSummary,
    Quarantined,
    Utterance,
    count_kinds,
    read_rows,
    summary_text,
    tables_are_written,
    trials_among,
    write_quarantine,
    write_speaker_tables,
)
from simple_spk.data.audio import SHORTEST_SECONDS

logger = logging.getLogger(__name__)

FEWEST_RECORDINGS = 2  # of a speaker: with one there is nothing to compare it with


class PreparedFolder(NamedTuple):
    """The sizes of the parts, what was left out, how many files had to be opened."""

    parts: dict[str, PartSummary]
    quarantined: list[Quarantined]
    other_files: int
    opened: int


def prepare_folder(
    folder: str | Path | None,
    data_folder: str | Path,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    maximum_trials: int = 20000,
    minimum_seconds: float = SHORTEST_SECONDS,
    genders: str | Path | None = None,
    decode: bool = False,
    workers: int = 4,
    seed: int = 0,
) -> PreparedFolder | None:
    """Write the tables of a folder of speakers; without a ``folder`` they must be there already.

    ``genders`` is a CSV file with the columns spk_id and gender; given one, non-target trials
    compare speakers of one gender only. ``decode`` reads every file to its end.
    """
    data_folder = Path(data_folder)
    if folder is None:
        if tables_are_written(data_folder):
            return None
        raise ValueError(
            f"{data_folder} holds no prepared data: name the folder of speakers "
            f"(--audio_folder=FOLDER)"
        )
    folder = Path(folder).resolve()
    contents = list_speaker_folder(folder)
    journal = data_folder / "probes.jsonl"
    usable = find_usable(folder, contents.files, journal, minimum_seconds, decode, workers)
    files = [file for file in contents.files if file.name in usable.durations_seconds]
    count = Counter(file.speaker for file in files)
    kept = [file for file in files if count[file.speaker] >= FEWEST_RECORDINGS]
    details = "is the only usable recording of its speaker"
    single = [
        Quarantined(file.name, "single", details)
        for file in files
        if count[file.speaker] < FEWEST_RECORDINGS
    ]
    quarantined = sorted([*contents.faults, *usable.faults, *single])
    quarantine = data_folder / "quarantine.csv"
    write_quarantine(quarantine, quarantined)
    if quarantined:
        logger.warning(
            f"{len(quarantined)} files or folders were left out ({count_kinds(quarantined)}), such "
            f"as {quarantined[0].source!r}, which {quarantined[0].details}; all are in {quarantine}"
        )
    speakers = sorted({file.speaker for file in kept})
    if len(speakers) < FEWEST_SPEAKERS:
        raise ValueError(
            f"{folder}: {len(speakers)} speakers have {FEWEST_RECORDINGS} usable recordings "
            f"({len(contents.files)} audio files were found, {len(quarantined)} were left out, "
            f"see {quarantine}): the folder must hold one folder per speaker"
        )
    gender_of = {} if genders is None else read_genders(genders, speakers)
    utterances = [
        Utterance(
            name=file.name,
            path=str(folder / file.name),
            duration_seconds=usable.durations_seconds[file.name],
            speaker=file.speaker,
            group=gender_of.get(file.speaker, ""),
        )
        for file in kept
    ]
    split = split_speakers(speakers, valid_fraction, test_fraction, seed)
    parts = write_speaker_tables(
        data_folder, utterances, split, lambda part: trials_among(part, maximum_trials, seed)
    )
    return PreparedFolder(parts, quarantined, contents.other_files, usable.opened)


def read_genders(path: str | Path, speakers: Iterable[str]) -> dict[str, str]:
    """The gender of each speaker, from a CSV file with the columns spk_id and gender."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no table of genders at {path}: correct the path")
    rows = read_rows(path, ("spk_id", "gender"))
    gender_of = {row["spk_id"]: (row["gender"] or "").strip() for _, row in rows}
    unknown = [speaker for speaker in speakers if not gender_of.get(speaker)]
    if unknown:
        raise ValueError(
            f"{path} has no gender for {len(unknown)} speakers, the first is {unknown[0]!r}: "
            f"complete it (spk_id is the name of the speaker's folder)"
        )
    return gender_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line, whose options are the arguments of prepare_folder."""
    parser.add_argument("folder", type=Path, help="holds one folder per speaker")
    parser.add_argument("data_folder", type=Path, help="where the tables go")
    parser.add_argument("--valid-fraction", type=float, default=0.1, help="of the speakers")
    parser.add_argument("--test-fraction", type=float, default=0.1, help="of the speakers")
    parser.add_argument("--maximum-trials", type=int, default=20000, help="per list")
    parser.add_argument(
        "--minimum-seconds", type=float, default=SHORTEST_SECONDS, help="of a recording"
    )
    parser.add_argument("--genders", type=Path, metavar="CSV", help="columns spk_id and gender")
    parser.add_argument("--decode", action="store_true", help="read every file to its end")
    parser.add_argument("--workers", type=int, default=4, help="threads that open files")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the trials")


def run(options: argparse.Namespace) -> None:
    """Prepare and print the sizes of the parts."""
    prepared = prepare_folder(**vars(options))
    assert prepared is not None
    print(summary_text(prepared.parts))
    print(f"left out: {len(prepared.quarantined)} (see {options.data_folder / 'quarantine.csv'})")
    print(f"not audio: {prepared.other_files} files; opened: {prepared.opened} files")


def main() -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    options = parser.parse_args()
    return exit_code("prepare.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
