"""Make a calibration set: python recipes/OpenSpeech/calibration_set.py DATA

It holds the recordings of the validation speakers, cut to several durations, some with noise, a
room, another channel or a codec. Most speakers of these corpora were recorded in one session;
without the changes, a calibration would expect two sessions of a person to sound equally alike.
Writes calibration.csv and calibration_trials.txt (pairs within a corpus, about as many of each) to
DATA, which prepare.py made.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.OpenSpeech.sounds import NOISE_KINDS, make_sounds
from simple_spk import SAMPLE_RATE
from simple_spk.cli.errors import exit_code
from simple_spk.corpora.trial_lists import all_pairs, write_trials
from simple_spk.data.audio import read_crop, read_recording
from simple_spk.data.augmentation import Augmentation
from simple_spk.data.manifest import read_manifest, write_manifest
from simple_spk.data.trials import Trials
from simple_spk.io.atomic_file import atomic_write

DURATIONS_SECONDS = (None, 4.0, 2.0)  # None: the whole recording
MOST_TRIALS = 5000  # of a corpus and kind (target or not)


def make_calibration_set(data_folder: str | Path, seed: int = 0) -> int:
    """Write the recordings, their manifest and trial list; returns the number of trials."""
    data_folder = Path(data_folder)
    if not (data_folder / "rooms.csv").is_file():
        make_sounds(data_folder)
    augmentation = Augmentation(
        data_folder / "noises.csv",
        data_folder / "rooms.csv",
        probability=0.1,
        kinds=NOISE_KINDS,
        channel_probability=0.1,
        codec_probability=0.1,
    )
    valid = read_manifest(data_folder / "valid.csv")
    ids = list(valid.row_of_id)
    wavs, seconds = [], []
    for row, name in enumerate(tqdm(ids, unit="file", desc="calibration")):
        duration = DURATIONS_SECONDS[row % len(DURATIONS_SECONDS)]
        if duration is None:
            waveform = read_recording(valid.wav(row), SAMPLE_RATE)
        else:
            waveform = read_crop(valid.wav(row), int(duration * SAMPLE_RATE), 0.5, SAMPLE_RATE)
        waveform = augmentation(waveform, seed + row)
        wavs.append(f"audio_calibration/{name}.flac")
        with atomic_write(data_folder / wavs[-1]) as partial:
            peak = max(1.0, float(np.abs(waveform).max()))
            soundfile.write(partial, waveform / peak, SAMPLE_RATE, "PCM_16", format="FLAC")
        seconds.append(len(waveform) / SAMPLE_RATE)
    speakers = [valid.speakers[number] for number in valid.speaker_of_row]
    write_manifest(data_folder / "calibration.csv", ids, wavs, seconds, speakers)
    corpora = [name.split("/")[0] for name in ids]
    trials = balanced(all_pairs(ids, speakers, groups=corpora), seed)
    write_trials(data_folder / "calibration_trials.txt", trials)
    return len(trials)


def balanced(trials: Trials, seed: int) -> Trials:
    """At most MOST_TRIALS trials of each corpus and kind: large corpora do not decide alone."""
    assert trials.is_target is not None
    corpora = [name.split("/")[0] for name in trials.ids]
    corpus_of = np.unique(corpora, return_inverse=True)[1][trials.enroll]
    order = np.random.default_rng(seed).permutation(len(trials))
    kept = [
        rows[:MOST_TRIALS]
        for corpus in range(corpus_of.max() + 1)
        for is_target in (False, True)
        if len(rows := order[(corpus_of == corpus)[order] & (trials.is_target == is_target)[order]])
    ]
    chosen = np.sort(np.concatenate(kept))
    return Trials(trials.ids, trials.enroll[chosen], trials.test[chosen], trials.is_target[chosen])


def run(data_folder: Path) -> None:
    """Make the set and print its size."""
    print(f"{make_calibration_set(data_folder)} trials in {data_folder / 'calibration_trials.txt'}")


def main() -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data_folder", type=Path, help="the folder that prepare.py wrote")
    options = parser.parse_args()
    return exit_code("calibration_set.py", lambda: run(options.data_folder))


if __name__ == "__main__":
    sys.exit(main())
