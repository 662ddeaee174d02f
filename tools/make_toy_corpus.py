"""Make a small corpus of synthetic voices, to try speaker verification from end to end.

The voices are those of toy_voices.py. The same arguments give the same files.

    python tools/make_toy_corpus.py data/toy
"""

import argparse
import csv
import functools
import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path

import soundfile
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from tools.toy_voices import SAMPLE_RATE, draw_session, draw_speaker, generator_for, record, speak

VERSION = 1  # Raise it whenever the sound changes, so that no older corpus is taken for a new one.
SESSIONS_PER_SPEAKER = 4
NON_TARGETS_PER_TARGET = 4


def recording_names(speaker: int, recordings: int) -> Iterator[tuple[int, str]]:
    """The session and the ID of each recording of a speaker, such as 0, "toy0001/session1-03"."""
    for recording in range(recordings):
        session = recording * min(SESSIONS_PER_SPEAKER, recordings) // recordings
        yield session, f"toy{speaker + 1:04d}/session{session + 1}-{recording + 1:02d}"


def write_speaker(folder: Path, speaker: int, recordings: int, seed: int) -> list[list[str]]:
    """Write the recordings of one speaker; the rows of the CSV file, one for each."""
    rows = []
    voice = draw_speaker(generator_for(seed, "speaker", speaker))
    sessions = [
        draw_session(generator_for(seed, "session", speaker, session))
        for session in range(SESSIONS_PER_SPEAKER)
    ]
    for recording, (session, name) in enumerate(recording_names(speaker, recordings)):
        generator = generator_for(seed, "recording", speaker, recording)
        samples = record(speak(voice, generator), sessions[session], generator)
        path = folder / "wav" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, samples, SAMPLE_RATE, subtype="PCM_16")
        duration_seconds = f"{samples.size / SAMPLE_RATE:.7f}"
        rows.append([name, f"wav/{name}.wav", duration_seconds, path.parent.name])
    return rows


def write_trials(path: Path, speakers: range, recordings: int, seed: int) -> None:
    """Write all target pairs across sessions, and four random non-target pairs for each."""
    targets, non_targets = [], []
    items = [(one, *item) for one in speakers for item in recording_names(one, recordings)]
    for (speaker, session, name), (other, other_session, other_name) in combinations(items, 2):
        if speaker != other:
            non_targets.append(f"0 {name} {other_name}\n")
        elif session != other_session:
            targets.append(f"1 {name} {other_name}\n")
    generator = generator_for(seed, "trials", speakers.start)
    count = min(len(non_targets), NON_TARGETS_PER_TARGET * len(targets))
    chosen = generator.choice(len(non_targets), count, replace=False)
    trials = targets + [non_targets[index] for index in chosen]
    path.write_text("".join(trials[index] for index in generator.permutation(len(trials))))


def is_made(folder: Path, description: dict[str, int]) -> bool:
    """Whether the folder holds this corpus; raises ValueError if it holds anything else."""
    if not folder.exists():
        return False
    try:
        found = json.loads((folder / "toy_corpus.json").read_text())
    except (OSError, ValueError):
        found = None
    if found != description:
        raise ValueError(
            f"{folder} exists but is not the toy corpus asked for: delete it or choose another "
            f"folder (asked for {description}, its toy_corpus.json says {found})"
        )
    return True


def make_toy_corpus(
    folder: Path,
    train_speakers: int = 120,
    test_speakers: int = 20,
    recordings_per_speaker: int = 20,
    seed: int = 0,
    valid_speakers: int = 10,
) -> None:
    """Make the corpus in the folder, unless it is there: recordings, CSV files and trials.

    The work is done in a folder beside it, named with ".partial" at the end, and renamed when
    whole. Let only one process at a time make a folder. Equal bytes are sure on equal machines.
    """
    folder = Path(folder).resolve()
    recordings = recordings_per_speaker
    description = {
        "version": VERSION,
        "train_speakers": train_speakers,
        "test_speakers": test_speakers,
        "valid_speakers": valid_speakers,
        "recordings_per_speaker": recordings,
        "seed": seed,
    }
    if is_made(folder, description):
        return
    if seed < 0 or train_speakers < 1 or min(test_speakers, valid_speakers, recordings) < 2:
        raise ValueError(
            "at least 1 speaker to train, 2 to test and 2 to tune on, 2 recordings of each and "
            f"seed 0 are needed, not {description}"
        )
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    first_test, first_valid = train_speakers, train_speakers + test_speakers
    end = first_valid + valid_speakers
    subsets = {
        "train": range(first_test),
        "test": range(first_test, first_valid),
        "valid": range(first_valid, end),
    }
    write = functools.partial(write_speaker, partial, recordings=recordings, seed=seed)
    with ProcessPoolExecutor() as pool, tqdm(total=end, desc="toy corpus", unit="voice") as bar:
        for subset, speakers in subsets.items():
            with (partial / f"{subset}.csv").open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["ID", "wav", "duration", "spk_id"])
                for rows in pool.map(write, speakers):
                    writer.writerows(rows)
                    bar.update()
    for subset in ("valid", "test"):
        write_trials(partial / f"{subset}_trials.txt", subsets[subset], recordings, seed)
    (partial / "toy_corpus.json").write_text(json.dumps(description, indent=2) + "\n")
    partial.rename(folder)


def main() -> int:
    """Make the corpus, and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Make a small corpus of synthetic voices.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder to make")
    parser.add_argument("--train-speakers", type=int, default=120, help="voices to train on")
    parser.add_argument("--test-speakers", type=int, default=20, help="other voices, to test on")
    parser.add_argument("--valid-speakers", type=int, default=10, help="other voices, to tune on")
    parser.add_argument("--recordings-per-speaker", type=int, default=20, help="for every voice")
    parser.add_argument("--seed", type=int, default=0, help="each seed gives other voices")
    options = parser.parse_args()
    return exit_code("make_toy_corpus.py", lambda: make_toy_corpus(**vars(options)))


if __name__ == "__main__":
    sys.exit(main())
