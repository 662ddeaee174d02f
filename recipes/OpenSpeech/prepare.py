"""Prepare free corpora: python recipes/OpenSpeech/prepare.py DATA --speechocean762 DIR ...

The corpora are read as they are downloaded; words are joined to recordings of about 5.5 s. The test
speakers are speechocean762's own and AudioMNIST's 41 to 60; a hash of the name chooses validation
speakers among the others. Trials stay within a corpus, because microphones differ between corpora.
DATA gets train.csv, valid.csv, test.csv, trial lists for validation and test, over all corpora and
for each (all pairs; of 8 recordings per speaker in the test), and valid_2s.csv and test_2s.csv: the
same IDs with 2 s from the middle of each recording, for the same lists.
"""

import argparse
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import soundfile
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.OpenSpeech.sources import OpenSpeech, read_originals, read_prepared
from simple_spk import SAMPLE_RATE
from simple_spk.cli.errors import exit_code
from simple_spk.corpora.splits import SpeakerSplit, split_speakers
from simple_spk.corpora.tables import (
    PartSummary,
    Utterance,
    of_speakers,
    summary_text,
    tables_are_written,
    write_quarantine,
    write_speaker_tables,
    write_utterances,
)
from simple_spk.corpora.trial_lists import all_pairs, plain_id, write_trials
from simple_spk.data.audio import read_crop
from simple_spk.io.atomic_file import atomic_write

logger = logging.getLogger(__name__)
CROP_SAMPLES = 2 * SAMPLE_RATE
# Of each speaker, in the lists of single corpora. None: all, as validation speakers are few.
RECORDINGS_IN_PAIRS = {"valid": None, "test": 8}


def prepare_open_speech(
    data_folder: str | Path,
    prepared: str | Path | None = None,
    speechocean762: str | Path | None = None,
    audiomnist: str | Path | None = None,
    dspspeech20: str | Path | None = None,
    arabic_commands: str | Path | None = None,
    valid_fraction: float = 0.1,
    maximum_trials: int = 20000,
    workers: int = 2,
    seed: int = 0,
) -> dict[str, PartSummary] | None:
    """Write the tables of the given corpora; returns the size of each part.

    ``prepared`` is a folder with a manifest.csv (wav, duration, spk_id, corpus, split) and replaces
    the others. If none is given, existing tables are kept, else SIMPLE_SPK_DATA/speech is read.
    """
    data_folder = Path(data_folder)
    originals = {
        "speechocean762": speechocean762,
        "audiomnist": audiomnist,
        "dspspeech20": dspspeech20,
        "arabic_commands": arabic_commands,
    }
    given = {name: Path(folder) for name, folder in originals.items() if folder is not None}
    if prepared is None and not given:
        if tables_are_written(data_folder):
            return None
        prepared = prepared_folder_of_the_environment(data_folder)
    if prepared is not None and given:
        raise ValueError(f"give either a prepared folder or corpora ({', '.join(given)}), not both")
    if prepared is not None:
        speech = read_prepared(Path(prepared))
    else:
        speech = read_originals(given, data_folder, workers)
    write_quarantine(data_folder / "quarantine.csv", speech.faults)
    split = split_open_speech(speech, valid_fraction, seed)
    for part, speakers in (("valid", split.valid), ("test", split.test)):
        chosen = of_speakers(speech.recordings, speakers)
        write_utterances(data_folder / f"{part}_2s.csv", cut_crops(chosen, data_folder, workers))
        write_lists_of_corpora(data_folder, part, chosen)
    # Last, because tables that are there are taken for a finished preparation.
    return write_speaker_tables(data_folder, speech.recordings, split, maximum_trials, seed)


def prepared_folder_of_the_environment(data_folder: Path) -> Path:
    """The folder speech/ below the one that SIMPLE_SPK_DATA names."""
    if "SIMPLE_SPK_DATA" not in os.environ:
        raise ValueError(
            f"{data_folder} holds no prepared data, and no corpus was given: run "
            f"recipes/OpenSpeech/prepare.py with the folders of the corpora that you downloaded"
        )
    return Path(os.environ["SIMPLE_SPK_DATA"]) / "speech"


def split_open_speech(speech: OpenSpeech, valid_fraction: float, seed: int) -> SpeakerSplit:
    """The corpora's own test speakers, validation speakers by hash, and training speakers.

    If no corpus has test speakers of its own, the same hash chooses a fifth of all.
    """
    speakers = {recording.speaker for recording in speech.recordings}
    if not speech.test_speakers:
        return split_speakers(speakers, valid_fraction, 0.2, seed)
    split = split_speakers(speakers - speech.test_speakers, valid_fraction, 0.0, seed)
    return split._replace(test=sorted(speakers & speech.test_speakers))


def write_lists_of_corpora(data_folder: Path, part: str, recordings: list[Utterance]) -> None:
    """Replace the trial lists of the single corpora of a part.

    A warning names each corpus that cannot have one, such as one with a single speaker.
    """
    for old in data_folder.glob(f"{part}_trials_*.txt"):
        old.unlink()
    for corpus in sorted({recording.group for recording in recordings}):
        chosen = [recording for recording in recordings if recording.group == corpus]
        ids = [plain_id(recording.name) for recording in chosen]
        speakers = [recording.speaker for recording in chosen]
        path = data_folder / f"{part}_trials_{corpus}.txt"
        try:
            trials = all_pairs(ids, speakers, RECORDINGS_IN_PAIRS[part])
        except ValueError as error:
            logger.warning("there is no %s: %s", path, error)
        else:
            write_trials(path, trials)


def cut_crops(test: list[Utterance], data_folder: Path, workers: int) -> list[Utterance]:
    """The middle 2 s of recordings, as files below ``data_folder``/audio_2s.

    Shorter recordings are repeated. Crops that are newer than their recording are kept.
    """

    def cut(recording: Utterance) -> Utterance:
        name = Path("audio_2s") / f"{plain_id(recording.name)}.flac"
        path, source = data_folder / name, data_folder / recording.path
        if not path.is_file() or path.stat().st_mtime_ns < source.stat().st_mtime_ns:
            crop = read_crop(source, CROP_SAMPLES, 0.5, SAMPLE_RATE)
            with atomic_write(path) as partial:
                soundfile.write(partial, crop, SAMPLE_RATE, subtype="PCM_16", format="FLAC")
        return recording._replace(path=name.as_posix(), duration_seconds=CROP_SAMPLES / SAMPLE_RATE)

    with ThreadPoolExecutor(workers) as pool:
        return list(tqdm(pool.map(cut, test), total=len(test), unit="file", desc="2 s crops"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line, whose options are the arguments of prepare_open_speech."""
    parser.add_argument("data_folder", type=Path, help="where tables and joined words go")
    parser.add_argument("--prepared", type=Path, metavar="DIR", help="a folder with manifest.csv")
    for name in ("speechocean762", "audiomnist", "dspspeech20", "arabic-commands"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", help="as it was downloaded")
    parser.add_argument("--valid-fraction", type=float, default=0.1, help="of the other speakers")
    parser.add_argument("--maximum-trials", type=int, default=20000, help="per list")
    parser.add_argument("--workers", type=int, default=2, help="threads that read audio")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the trials")


def run(options: argparse.Namespace) -> None:
    """Prepare and print the sizes of the parts."""
    summaries = prepare_open_speech(**vars(options))
    print("prepared already" if summaries is None else summary_text(summaries))
    print(f"what could not be used: {options.data_folder / 'quarantine.csv'}")


def main() -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    options = parser.parse_args()
    return exit_code("prepare.py", lambda: run(options), resumes=True)


if __name__ == "__main__":
    sys.exit(main())
