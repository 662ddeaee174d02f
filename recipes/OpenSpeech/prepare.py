"""Prepare free corpora: python recipes/OpenSpeech/prepare.py DATA --librispeech DIR ...

The corpora are read as they are downloaded; words are joined to recordings of about 5 s. Several
sources are joined. Corpora with test speakers of their own keep them; a hash of the name chooses
validation speakers among the others. Trials stay within a corpus, because microphones differ
between corpora, and target trials are across sessions where these are known. DATA gets train.csv,
valid.csv, test.csv, trial lists for validation and test, over all corpora and for each (all pairs;
of 8 recordings per speaker in the test). For the same lists, valid_2s.csv and test_2s.csv have the
middle 2 s of each recording, valid_noise.csv and test_noise.csv the recording in noise at 10 dB.
"""

import argparse
import logging
import os
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.OpenSpeech.sounds import make_noise
from recipes.OpenSpeech.sources import (
    FINDERS,
    OpenSpeech,
    join_sources,
    read_common_voice,
    read_originals,
    read_prepared,
)
from simple_spk import SAMPLE_RATE
from simple_spk.cli.errors import exit_code
from simple_spk.corpora.label_fixes import fix_labels
from simple_spk.corpora.splits import SpeakerSplit, split_speakers
from simple_spk.corpora.tables import (
    PartSummary,
    Utterance,
    of_speakers,
    summary_text,
    tables_are_written,
    trials_among,
    write_quarantine,
    write_speaker_tables,
    write_utterances,
)
from simple_spk.corpora.trial_lists import all_pairs, plain_id, write_trials
from simple_spk.data.audio import read_crop, read_recording
from simple_spk.data.augmentation import with_noise
from simple_spk.io.atomic_file import atomic_write

logger = logging.getLogger(__name__)
CONDITIONS = ("2s", "noise")
CROP_SAMPLES = 2 * SAMPLE_RATE
NOISE_DB = 10.0  # below the speech
# Of each speaker, in the lists of single corpora: all of few validation recordings.
RECORDINGS_IN_PAIRS = 8
MOST_VALID_RECORDINGS = 1000  # half a million pairs


def prepare_open_speech(
    data_folder: str | Path,
    prepared: str | Path | Sequence[str | Path] | None = None,
    common_voice: str | Path | None = None,
    without: Sequence[str] = (),
    valid_fraction: float = 0.1,
    maximum_trials: int = 20000,
    workers: int = 2,
    seed: int = 0,
    clean_labels: str | Path | None = None,
    **originals: str | Path | None,
) -> dict[str, PartSummary] | None:
    """Write the tables of the given corpora; returns the size of each part.

    ``originals`` are the folders of downloaded corpora by their names in ``FINDERS``.
    ``prepared`` are folders with a manifest.csv (wav, duration, spk_id, corpus, split, and perhaps
    session). ``common_voice`` is a folder that recipes/CommonVoice made. ``without`` names corpora
    to leave out; ``clean_labels`` is a file of recipes/CommonVoice/clean_labels.py, whose
    corrections are applied. If nothing is given, existing tables are kept, else
    SIMPLE_SPK_DATA/speech is read.
    """
    data_folder = Path(data_folder)
    given = {name: Path(folder) for name, folder in originals.items() if folder is not None}
    if prepared is None and common_voice is None and not given:
        if tables_are_written(data_folder):
            return None
        prepared = prepared_folder_of_the_environment(data_folder)
    several = [prepared] if isinstance(prepared, (str, Path)) else prepared or []
    sources = [read_prepared(Path(folder)) for folder in several]
    if common_voice is not None:
        sources.append(read_common_voice(Path(common_voice)))
    if given:
        sources.append(read_originals(given, data_folder, workers))
    speech = join_sources(sources, without)
    if clean_labels is not None:
        speech = with_clean_labels(speech, clean_labels)
    if speech.noises:
        write_utterances(data_folder / "background_noises.csv", speech.noises)
    write_quarantine(data_folder / "quarantine.csv", speech.faults)
    split = split_open_speech(speech, valid_fraction, seed)
    for part, speakers in (("valid", split.valid), ("test", split.test)):
        chosen = of_speakers(speech.recordings, speakers)
        for condition in CONDITIONS:
            changed = under_condition(chosen, condition, data_folder, workers)
            write_utterances(data_folder / f"{part}_{condition}.csv", changed)
        write_lists_of_corpora(data_folder, part, chosen)
    # Last, because tables that are there are taken for a finished preparation.
    return write_speaker_tables(
        data_folder, speech.recordings, split, lambda part: trials_among(part, maximum_trials, seed)
    )


def with_clean_labels(speech: OpenSpeech, path: str | Path) -> OpenSpeech:
    """The recordings with corrected labels; test speakers must stay as they are."""
    kept, faults = fix_labels(speech.recordings, path)
    before = Counter(one.name for one in speech.recordings if one.speaker in speech.test_speakers)
    after = Counter(one.name for one in kept if one.speaker in speech.test_speakers)
    if before != after:
        raise ValueError(
            f"{path} changes {len(before - after) + len(after - before)} recordings of test "
            "speakers: make it of training manifests only"
        )
    return speech._replace(recordings=kept, faults=speech.faults + faults)


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
        sessions = [recording.session for recording in chosen]
        path = data_folder / f"{part}_trials_{corpus}.txt"
        takes_all = part == "valid" and len(chosen) <= MOST_VALID_RECORDINGS
        try:
            per_speaker = None if takes_all else RECORDINGS_IN_PAIRS
            trials = all_pairs(ids, speakers, per_speaker, sessions=sessions)
        except ValueError as error:
            logger.warning("there is no %s: %s", path, error)
        else:
            write_trials(path, trials)


def under_condition(
    recordings: list[Utterance], condition: str, data_folder: Path, workers: int
) -> list[Utterance]:
    """Recordings under a condition, as files below ``data_folder``/audio_CONDITION.

    Files that are newer than their recording are kept.
    """

    def change(recording: Utterance) -> Utterance:
        name = Path(f"audio_{condition}") / f"{plain_id(recording.name)}.flac"
        path, source = data_folder / name, data_folder / recording.path
        if not path.is_file() or path.stat().st_mtime_ns < source.stat().st_mtime_ns:
            make = middle_crop if condition == "2s" else in_noise
            waveform = make(source, recording.name)
            with atomic_write(path) as partial:
                soundfile.write(partial, waveform, SAMPLE_RATE, subtype="PCM_16", format="FLAC")
        seconds = soundfile.info(path).duration
        return recording._replace(path=name.as_posix(), duration_seconds=seconds)

    with ThreadPoolExecutor(workers) as pool:
        changed = pool.map(change, recordings)
        return list(tqdm(changed, total=len(recordings), unit="file", desc=condition))


def middle_crop(path: Path, _name: str) -> NDArray[np.float32]:
    """The middle 2 s of a recording; a shorter one is repeated."""
    return read_crop(path, CROP_SAMPLES, 0.5, SAMPLE_RATE)


def in_noise(path: Path, name: str) -> NDArray[np.float32]:
    """A recording in noise at NOISE_DB, drawn by the recording's name."""
    speech = read_recording(path, SAMPLE_RATE)
    noise = make_noise(np.random.default_rng(zlib.crc32(name.encode())))
    mixed = with_noise(speech, np.resize(noise, len(speech)).astype(np.float32), NOISE_DB)
    return mixed / max(1.0, float(np.abs(mixed).max()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line, whose options are the arguments of prepare_open_speech."""
    parser.add_argument("data_folder", type=Path, help="where tables and joined words go")
    parser.add_argument(
        "--prepared", type=Path, nargs="+", metavar="DIR", help="folders with manifest.csv"
    )
    for name in FINDERS:
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=Path, metavar="DIR", help="as it was downloaded")
    parser.add_argument(
        "--common-voice", type=Path, metavar="DIR", help="what recipes/CommonVoice prepared"
    )
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="CORPUS", help="corpora to leave out"
    )
    parser.add_argument(
        "--clean-labels",
        type=Path,
        metavar="FILE",
        help="apply what recipes/CommonVoice/clean_labels.py found",
    )
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
