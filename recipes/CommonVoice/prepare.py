"""Prepare Common Voice: python recipes/CommonVoice/prepare.py DATA RELEASE/LANGUAGE [...] [options]

RELEASE/LANGUAGE is a language of an official release as it unpacks: clips/ and validated.tsv.
Several languages may be given; a speaker stays within a language. The clips are converted to
16 kHz FLAC in DATA/audio. Stopped at any moment and started again with the same command, the
conversion resumes. DATA gets:

    train.csv, valid.csv, test.csv        manifests; no speaker is in two of them
    valid_trials.txt, test_trials.txt     trials within a language; targets across sessions
    quarantine.csv                        clips that cannot be used, with the reason

A speaker is a client_id, which is an account or a browser: one person may have several, and two
people may share one. IDs are SPEAKER/SESSION/CLIP. Releases do not name sessions. Clip numbers grow
with the time of upload, so a jump in a speaker's clip numbers starts a new session.
"""

import argparse
import hashlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars

from simple_spk import SAMPLE_RATE
from simple_spk.cli.errors import exit_code
from simple_spk.corpora.conversion import Settings, convert
from simple_spk.corpora.inspection import AudioFile
from simple_spk.corpora.label_fixes import fix_labels
from simple_spk.corpora.splits import split_speakers
from simple_spk.corpora.tables import (
    PartSummary,
    Quarantined,
    Utterance,
    count_kinds,
    summary_text,
    trials_among,
    write_quarantine,
    write_speaker_tables,
)
from simple_spk.corpora.trial_lists import spread_over
from simple_spk.data.trials import Trials

TABLES = ("validated", "other", "invalidated")
CLIP_NUMBER = re.compile(r"_(\d+)\.\w+$")
FEWEST_CLIPS = 2  # of a speaker: a single one has nothing to be compared with


class Clip(NamedTuple):
    """A row of a release's table."""

    file: str  # relative to the folder of all languages: LANGUAGE/clips/NAME
    speaker: str
    session: str
    language: str

    @property
    def id(self) -> str:
        """SPEAKER/SESSION/CLIP."""
        return f"{self.speaker}/{self.session}/{Path(self.file).stem}"


class PreparedRelease(NamedTuple):
    """The sizes of the parts, and what was left out."""

    parts: dict[str, PartSummary]
    quarantined: list[Quarantined]


def prepare_common_voice(
    data_folder: str | Path,
    languages: Sequence[str | Path],
    tables: Sequence[str] = ("validated",),
    maximum_clips: int = 0,
    session_gap: int = 1000,
    valid_fraction: float = 0.05,
    test_fraction: float = 0.05,
    clips_in_trials: int = 8,
    maximum_trials: int = 200_000,
    same_session_targets: bool = False,
    workers: int = 2,
    seed: int = 0,
    clean_labels: str | Path | None = None,
) -> PreparedRelease:
    """Convert the clips and write manifests and trial lists.

    tables: which of validated, other and invalidated to read.
    maximum_clips: of each speaker, spread over its sessions; 0 for all.
    session_gap: a new session starts where a speaker's clip numbers jump by more than this.
    clips_in_trials: of each speaker in a trial list.
    same_session_targets: keep target trials within a session (they share channel and day).
    clean_labels: a file of clean_labels.py, whose corrections are applied.
    """
    data_folder = Path(data_folder)
    roots = [_language_folder(Path(folder)) for folder in languages]
    names = [root.name for root in roots]
    if len(set(names)) < len(names):
        raise ValueError(f"a language is given twice: {', '.join(names)}")
    faults: list[Quarantined] = []
    utterances: list[Utterance] = []
    for root in roots:
        clips, wrong = read_clips(root, tables, session_gap)
        usable, unusable = converted(root, limit_clips(clips, maximum_clips), data_folder, workers)
        utterances += usable
        faults += wrong + unusable
    if clean_labels is not None:
        utterances, wrong = fix_labels(utterances, clean_labels)
        faults += wrong
    count = Counter(utterance.speaker for utterance in utterances)
    faults += [
        Quarantined(utterance.path, "alone", "is the only usable clip of its speaker")
        for utterance in utterances
        if count[utterance.speaker] < FEWEST_CLIPS
    ]
    utterances = [one for one in utterances if count[one.speaker] >= FEWEST_CLIPS]
    data_folder.mkdir(parents=True, exist_ok=True)
    write_quarantine(data_folder / "quarantine.csv", faults)
    if not utterances:
        raise ValueError(
            f"no speaker has {FEWEST_CLIPS} usable clips ({count_kinds(faults)}): see "
            f"{data_folder / 'quarantine.csv'}"
        )
    speakers = {utterance.speaker for utterance in utterances}
    split = split_speakers(speakers, valid_fraction, test_fraction, seed)

    def make_list(part: Sequence[Utterance]) -> Trials:
        return trials_of_languages(
            part, clips_in_trials, maximum_trials, same_session_targets, seed
        )

    return PreparedRelease(write_speaker_tables(data_folder, utterances, split, make_list), faults)


def converted(
    root: Path, clips: Sequence[Clip], data_folder: Path, workers: int
) -> tuple[list[Utterance], list[Quarantined]]:
    """The clips of a language, converted below DATA/audio, and those that cannot be used."""
    outcomes = convert(
        root.parent,
        [_source(root.parent, clip) for clip in clips],
        data_folder / "audio",
        data_folder / "journal" / root.name,
        Settings(),
        workers,
    )
    outcome_of = {outcome.name: outcome for outcome in outcomes}
    utterances: list[Utterance] = []
    faults: list[Quarantined] = []
    for clip in clips:
        outcome = outcome_of[clip.file]
        if outcome.fault:
            faults.append(Quarantined(clip.file, outcome.fault, outcome.details))
            continue
        path = f"audio/{Settings().target_name(clip.file)}"
        seconds = outcome.samples / SAMPLE_RATE
        utterances.append(
            Utterance(clip.id, path, seconds, clip.speaker, clip.language, clip.session)
        )
    return utterances, faults


def read_clips(
    root: Path, tables: Sequence[str], session_gap: int
) -> tuple[list[Clip], list[Quarantined]]:
    """The clips that the tables of a language name, with their sessions, and the bad rows."""
    rows: dict[str, str] = {}  # from a clip's file to its client_id
    faults: list[Quarantined] = []
    for table in tables:
        if table not in TABLES:
            raise ValueError(f"a table is one of {', '.join(TABLES)}, not {table!r}")
        path = root / f"{table}.tsv"
        for number, (client, clip) in enumerate(_read_columns(path), start=2):
            if not client or not clip or "/" in clip or clip != clip.strip():
                where = f"{root.name}/{path.name}, line {number}"
                faults.append(Quarantined(where, "bad row", "names no clip or no client_id"))
            elif rows.setdefault(clip, client) != client:
                where = f"{root.name}/{path.name}, line {number}"
                faults.append(Quarantined(where, "two speakers", f"{clip} has two client_ids"))
                rows[clip] = ""
    of_client: defaultdict[str, list[str]] = defaultdict(list)
    for clip, client in rows.items():
        if client:
            of_client[client].append(clip)
    clips = []
    for client, names in of_client.items():
        speaker = f"{root.name}-{hashlib.sha256(client.encode()).hexdigest()[:16]}"
        in_order = sorted(names, key=_key)
        for session, name in zip(sessions_of(in_order, session_gap), in_order, strict=True):
            clips.append(Clip(f"{root.name}/clips/{name}", speaker, session, root.name))
    if not clips:
        raise ValueError(f"{root}: {', '.join(tables)}.tsv name no clips")
    return sorted(clips), faults


def sessions_of(names: Sequence[str], gap: int) -> list[str]:
    """The session of each clip in the order of clip numbers: s000, s001, ...

    Clips without a number are one session together.

    >>> sessions_of(["cv_en_7.mp3", "cv_en_9.mp3", "cv_en_90000.mp3"], gap=1000)
    ['s000', 's000', 's001']
    """
    numbers = [_key(name)[0] for name in sorted(names, key=_key)]
    starts = np.diff(numbers, prepend=numbers[0]) > gap
    return [f"s{session:03d}" for session in np.cumsum(starts)]


def limit_clips(clips: Sequence[Clip], maximum: int) -> list[Clip]:
    """At most ``maximum`` clips of each speaker, spread evenly over all of them; 0 for all."""
    if maximum == 0:
        return list(clips)
    if maximum < FEWEST_CLIPS:
        raise ValueError(f"--maximum-clips must be 0 or at least {FEWEST_CLIPS}, not {maximum}")
    by_session = sorted(clips, key=lambda clip: (clip.session, clip.file))
    rows = spread_over([clip.speaker for clip in by_session], maximum)
    return sorted(by_session[row] for row in rows)


def trials_of_languages(
    utterances: Sequence[Utterance],
    per_speaker: int,
    maximum: int,
    same_session_targets: bool,
    seed: int,
) -> Trials:
    """Pairs within a language, targets of two sessions; drawn down to ``maximum``."""
    rows = spread_over([utterance.speaker for utterance in utterances], per_speaker)
    chosen = [utterances[row] for row in rows]
    try:
        return trials_among(chosen, maximum, seed, False, same_session_targets)
    except ValueError as error:
        cure = "give the list more speakers (--valid-fraction, --test-fraction, another language)"
        raise ValueError(f"{error}, {cure}, or allow --same-session-targets") from error


def _language_folder(folder: Path) -> Path:
    """A folder with clips/ and tables."""
    folder = folder.resolve()
    if not (folder / "clips").is_dir():
        inner = [path.parent.name for path in folder.glob("*/clips")]
        cure = "DATA comes first, then languages as commonvoice.mozilla.org has them, unpacked"
        if inner:
            cure = f"name one of its languages: {', '.join(sorted(inner)[:5])}"
        raise FileNotFoundError(f"{folder} holds no folder clips/: {cure}")
    return folder


def _read_columns(path: Path) -> Iterable[tuple[str, str]]:
    """client_id and path of each row of a table."""
    if not path.is_file():
        raise FileNotFoundError(f"no table at {path}: unpack the whole archive of the language")
    try:
        table = polars.read_csv(
            path,
            separator="\t",
            quote_char=None,
            columns=["client_id", "path"],
            schema_overrides={"client_id": polars.String, "path": polars.String},
            truncate_ragged_lines=True,
        )
    except polars.exceptions.PolarsError as error:
        message = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} is not a table of Common Voice with the columns client_id and path ({message})"
        ) from error
    return zip(table["client_id"].fill_null(""), table["path"].fill_null(""), strict=True)


def _key(name: str) -> tuple[int, str]:
    """Clips in the order of their numbers."""
    match = CLIP_NUMBER.search(name)
    return (int(match[1]) if match else 0, name)


def _source(folder: Path, clip: Clip) -> AudioFile:
    """A clip with its size and time of change; missing ones are reported by the conversion."""
    try:
        status = (folder / clip.file).stat()
    except FileNotFoundError:
        return AudioFile(clip.file, -1, -1)
    return AudioFile(clip.file, status.st_size, status.st_mtime_ns)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line, whose options are the arguments of prepare_common_voice."""
    parser.add_argument("data_folder", type=Path, metavar="DATA", help="where everything goes")
    parser.add_argument(
        "languages", type=Path, nargs="+", metavar="LANGUAGE", help="clips/ and validated.tsv"
    )
    parser.add_argument(
        "--tables",
        nargs="+",
        choices=TABLES,
        default=["validated"],
        help="which clips (default: validated; the others may hold noise and wrong texts)",
    )
    parser.add_argument(
        "--maximum-clips", type=int, default=0, metavar="N", help="per speaker (default: all)"
    )
    parser.add_argument(
        "--session-gap",
        type=int,
        default=1000,
        metavar="N",
        help="clip numbers that jump by more start a new session (default 1000)",
    )
    parser.add_argument("--valid-fraction", type=float, default=0.05, help="of the speakers")
    parser.add_argument("--test-fraction", type=float, default=0.05, help="of the speakers")
    parser.add_argument(
        "--clips-in-trials", type=int, default=8, metavar="N", help="per speaker (default 8)"
    )
    parser.add_argument("--maximum-trials", type=int, default=200_000, metavar="N", help="per list")
    parser.add_argument(
        "--same-session-targets",
        action="store_true",
        help="also target trials within a session, which are too easy",
    )
    parser.add_argument(
        "--clean-labels", type=Path, metavar="FILE", help="apply what clean_labels.py found"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that convert")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the trials")


def run(options: argparse.Namespace) -> None:
    """Prepare, and say what was made."""
    prepared = prepare_common_voice(**vars(options))
    print(summary_text(prepared.parts))
    print(
        f"left out: {count_kinds(prepared.quarantined) or 'nothing'} "
        f"(see {options.data_folder / 'quarantine.csv'})"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return exit_code("prepare.py", lambda: run(options), resumes=True)


if __name__ == "__main__":
    sys.exit(main())
