"""Prepare any folder of speakers: python recipes/Folder/prepare.py FOLDER DATA [options]

FOLDER/SPEAKER/**/*.{wav,flac,ogg,opus,mp3,m4a} becomes manifests (DATA/train.csv, valid.csv,
test.csv; no speaker is in two of them) and balanced trial lists (DATA/valid_trials.txt,
test_trials.txt). What cannot be used is named, with the reason, in DATA/quarantine.csv. Run it
again after the folder changed: only new and changed files are opened.
"""

import argparse
import csv
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from simple_spk.cli.errors import exit_code
from simple_spk.corpora.prepared import Quarantined, write_quarantine
from simple_spk.corpora.speaker_folder import find_recordings, probe_recordings
from simple_spk.corpora.splits import FEWEST_SPEAKERS, split_speakers
from simple_spk.corpora.tables import (
    PartSummary,
    Recording,
    describe,
    tables_are_written,
    write_speaker_tables,
)

logger = logging.getLogger(__name__)

FEWEST_RECORDINGS = 2  # of a speaker: with one there is nothing to compare it with


class Prepared(NamedTuple):
    """What came out: the parts, what was left out and why, how many files had to be opened."""

    parts: dict[str, PartSummary]
    quarantined: dict[str, str]
    other_files: int
    opened: int


def prepare_folder(
    folder: str | Path | None,
    data_folder: str | Path,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    maximum_trials: int = 20000,
    minimum_seconds: float = 1.0,
    genders: str | Path | None = None,
    decode: bool = False,
    workers: int = 4,
    seed: int = 0,
) -> Prepared | None:
    """Write the tables of a folder of speakers; ``folder`` None: those that are there will do.

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
    found = find_recordings(folder)
    probed = probe_recordings(
        folder, found.files, data_folder / "probes.csv", minimum_seconds, decode, workers
    )
    usable = [file for file in found.files if file.path in probed.durations_seconds]
    count = Counter(file.speaker for file in usable)
    lonely = {
        file.path: "is the only usable recording of its speaker"
        for file in usable
        if count[file.speaker] < FEWEST_RECORDINGS
    }
    quarantined = dict(sorted((found.faults | probed.faults | lonely).items()))
    faults = [Quarantined(path, "unusable", reason) for path, reason in quarantined.items()]
    write_quarantine(data_folder / "quarantine.csv", faults)
    if quarantined:
        logger.warning("%s", quarantine_summary(quarantined, data_folder))
    speakers = sorted({file.speaker for file in usable if file.path not in lonely})
    if len(speakers) < FEWEST_SPEAKERS:
        raise ValueError(
            f"{folder}: {len(speakers)} speakers have {FEWEST_RECORDINGS} usable recordings "
            f"({len(found.files)} audio files were found, {len(quarantined)} things were left out, "
            f"see {data_folder / 'quarantine.csv'}): the folder must hold one folder per speaker"
        )
    gender_of = {} if genders is None else read_genders(genders, speakers)
    recordings = [
        Recording(
            name=Path(file.path).as_posix(),
            path=str(folder / file.path),
            duration_seconds=probed.durations_seconds[file.path],
            speaker=file.speaker,
            group=gender_of.get(file.speaker, ""),
        )
        for file in usable
        if file.path not in lonely
    ]
    split = split_speakers(speakers, valid_fraction, test_fraction, seed)
    parts = write_speaker_tables(data_folder, recordings, split, maximum_trials, seed)
    return Prepared(parts, quarantined, found.other_files, probed.opened)


def read_genders(path: str | Path, speakers: Iterable[str]) -> dict[str, str]:
    """The gender of each speaker, from a CSV file with the columns spk_id and gender."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no table of genders at {path}: correct the path")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            if not {"spk_id", "gender"} <= set(names):
                found = ",".join(names)
                raise ValueError(
                    f"{path}: the first line must name spk_id and gender, and is {found!r}"
                )
            gender_of = {row["spk_id"]: (row["gender"] or "").strip() for row in reader}
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from error
    unknown = [speaker for speaker in speakers if not gender_of.get(speaker)]
    if unknown:
        raise ValueError(
            f"{path} has no gender for {len(unknown)} speakers, the first is {unknown[0]!r}: "
            f"complete it (spk_id is the name of the speaker's folder)"
        )
    return gender_of


def quarantine_summary(quarantined: Mapping[str, str], data_folder: Path) -> str:
    """How many things were left out, one of them, and where all are named."""
    path, reason = next(iter(quarantined.items()))
    return (
        f"{len(quarantined)} files or folders were left out, such as {path!r}, which {reason}; "
        f"all are in {data_folder / 'quarantine.csv'}"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line, whose options are the arguments of prepare_folder."""
    parser.add_argument("folder", type=Path, help="holds one folder per speaker")
    parser.add_argument("data_folder", type=Path, help="where the tables go")
    parser.add_argument("--valid-fraction", type=float, default=0.1, help="of the speakers")
    parser.add_argument("--test-fraction", type=float, default=0.1, help="of the speakers")
    parser.add_argument("--maximum-trials", type=int, default=20000, help="per list")
    parser.add_argument("--minimum-seconds", type=float, default=1.0, help="of a recording")
    parser.add_argument("--genders", type=Path, metavar="CSV", help="columns spk_id and gender")
    parser.add_argument("--decode", action="store_true", help="read every file to its end")
    parser.add_argument("--workers", type=int, default=4, help="threads that open files")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the trials")


def run(options: argparse.Namespace) -> None:
    """Prepare, and say what was made."""
    prepared = prepare_folder(**vars(options))
    assert prepared is not None
    print(describe(prepared.parts))
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
