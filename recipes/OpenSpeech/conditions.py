"""Speech under several conditions: python recipes/OpenSpeech/conditions.py DATA

Writes to DATA, which prepare.py made:

* calibration.csv: the recordings of the validation speakers whole, shortened, in noise of random
  level, through telephone lines and codecs;
* calibration_trials.txt and calibration_enrollments.txt: the pairs of valid_trials_CORPUS.txt under
  equal and under different conditions of both sides; enrolled models are of 1 to 5 recordings.
  Corpora of one session per speaker sound more alike than two sessions of a person do: conditions
  make up for that;
* background.csv: a recording of some training speakers of each corpus, each under one condition;
  what is similar to many of them is typical;
* test_conditions.csv: the recordings of the test list of --test-corpus in noise, through a
  telephone line and a codec.

The ID of a recording under a condition is CONDITION/ID.
"""

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.OpenSpeech.sounds import make_noise
from simple_spk import SAMPLE_RATE
from simple_spk.cli.errors import exit_code
from simple_spk.data.audio import read_crop, read_recording
from simple_spk.data.augmentation import with_noise
from simple_spk.data.codecs import bit_rate_range, through_codec
from simple_spk.data.manifest import Manifest, read_manifest, write_manifest
from simple_spk.data.trials import Trials, read_trials, speakers_of_recordings
from simple_spk.io.atomic_file import atomic_write, write_text

WHOLE = "whole"
# A codec is a condition of its own, so that pairs share it: strangers then sound more alike.
CONDITIONS = ("2s", "1s", "noise", "telephone", "amr_nb", "mp3", "opus")
SECONDS = {"2s": 2.0, "1s": 1.0}
TEST_CONDITIONS = ("noise", "telephone", "mp3")  # test_2s.csv is from prepare.py
# Of the test, and those drawn for calibration.
NOISE_DB, DRAWN_NOISE_DB = 10.0, (0.0, 25.0)
KBITS_PER_SECOND, DRAWN_KBITS = 32.0, (16.0, 64.0)
# Of a corpus, so that none outweighs the others: strangers of a large one are less alike.
MOST_NONTARGETS = 5000
FEWEST_SPEAKERS = 3  # of a corpus, if any has them: two make a single pair
BACKGROUND_SPEAKERS = 100  # of a corpus, with one recording each
MODEL_SIZES = (1, 1, 1, 2, 3, 5)  # recordings of enrolled models, each as often

Waveform = NDArray[np.float32]


def under_condition(path: Path, condition: str, seed: int, drawn: bool) -> Waveform:
    """A recording (samples,) under a condition, of the strength of the test or ``drawn``."""
    random = np.random.default_rng((1, seed))
    if condition in SECONDS:
        return read_crop(path, round(SECONDS[condition] * SAMPLE_RATE), 0.5, SAMPLE_RATE)
    speech = read_recording(path, SAMPLE_RATE)
    if condition == "noise":
        level = random.uniform(*DRAWN_NOISE_DB) if drawn else NOISE_DB
        return with_noise(speech, np.resize(make_noise(random), len(speech)), float(level))
    if condition in ("telephone", "amr_nb"):
        limits = bit_rate_range(condition)
        return through_codec(speech, condition, None if limits is None else limits[1])
    kbits = random.uniform(*DRAWN_KBITS) if drawn else KBITS_PER_SECOND
    return through_codec(speech, condition, float(kbits))


def write_conditions(
    table: Path, recordings: Manifest, conditions_of: dict[str, list[str]], drawn: bool
) -> None:
    """Write each recording under its conditions, and their manifest; existing files are kept."""
    names, wavs, seconds, speakers = [], [], [], []
    for place, name in enumerate(tqdm(conditions_of, unit="recording", desc=table.stem)):
        row = recordings.row_of_id[name]
        for condition in conditions_of[name]:
            source = recordings.wav(row)
            wav = f"audio_conditions/{table.stem}/{condition}/{name}.flac"
            path = table.parent / wav
            if condition == WHOLE:
                wav, path = str(source), source
            elif not path.is_file():
                waveform = under_condition(source, condition, place, drawn)
                peak = max(1.0, float(np.abs(waveform).max()))
                with atomic_write(path) as partial:
                    soundfile.write(partial, waveform / peak, SAMPLE_RATE, "PCM_16", format="FLAC")
            names.append(f"{condition}/{name}")
            wavs.append(wav)
            seconds.append(soundfile.info(path).duration)
            speakers.append(recordings.speakers[recordings.speaker_of_row[row]])
    write_manifest(table, names, wavs, seconds, speakers)


def across_conditions(
    trials: Trials, random: np.random.Generator, recordings_of_model: dict[str, list[str]]
) -> list[tuple[str, str, bool]]:
    """Model, recording and label of pairs of a list, under all equal conditions and as many
    different ones; the models are added to ``recordings_of_model``.

    A further recording of a model makes a pair of the list with the test side, too: targets stay
    across sessions. Both classes have models of the same sizes, so that these tell nothing.
    """
    assert trials.is_target is not None
    names, found = (WHOLE, *CONDITIONS), []
    speaker = speakers_of_recordings(trials).tolist()
    partners: dict[tuple[int, int], list[int]] = {}
    for one, other in zip(trials.enroll.tolist(), trials.test.tolist(), strict=True):
        partners.setdefault((other, speaker[one]), []).append(one)
        partners.setdefault((one, speaker[other]), []).append(other)
    for place in thinned(trials, random).tolist():
        one, other = int(trials.enroll[place]), int(trials.test[place])
        label = bool(trials.is_target[place])
        more = [row for row in partners[other, speaker[one]] if row != one]
        if not label:  # of a target's speaker, the test side is not in the model
            more = more[:-1]
        for condition in names:
            for tested in (condition, names[random.integers(len(names))]):
                size = min(MODEL_SIZES[random.integers(len(MODEL_SIZES))], 1 + len(more))
                rows = [one, *random.choice(more or [one], size - 1, replace=False).tolist()]
                recordings = [f"{condition}/{trials.ids[row]}" for row in sorted(rows)]
                model = f"model/{condition}/" + "+".join(trials.ids[row] for row in sorted(rows))
                recordings_of_model[model] = recordings
                found.append((model, f"{tested}/{trials.ids[other]}", label))
    return found


def run(data_folder: Path, test_corpus: str) -> None:
    """Write both sets, and print their sizes."""
    valid = read_manifest(data_folder / "valid.csv")
    lists = [read_trials(path) for path in sorted(data_folder.glob("valid_trials_*.txt"))]
    if not lists:
        raise ValueError(f"{data_folder} has no valid_trials_CORPUS.txt: run prepare.py first")
    large = [one for one in lists if len(set(speakers_of_recordings(one))) >= FEWEST_SPEAKERS]
    lists = large or lists
    random = np.random.default_rng(0)
    models: dict[str, list[str]] = {}
    found = [across_conditions(one, random, models) for one in lists]
    pairs = list(dict.fromkeys(itertools.chain.from_iterable(found)))
    conditions_of = {name: [WHOLE, *CONDITIONS] for one in lists for name in one.ids}
    write_conditions(data_folder / "calibration.csv", valid, conditions_of, drawn=True)
    lines = [f"{model} {' '.join(recordings)}\n" for model, recordings in models.items()]
    write_text(data_folder / "calibration_enrollments.txt", "".join(lines))
    lines = [f"{int(label)} {model} {recording}\n" for model, recording, label in pairs]
    write_text(data_folder / "calibration_trials.txt", "".join(lines))
    print(f"{len(pairs)} trials in {data_folder / 'calibration_trials.txt'}")
    write_background(data_folder / "background.csv", read_manifest(data_folder / "train.csv"))
    listed = read_trials(data_folder / f"test_trials_{test_corpus}.txt")
    table = data_folder / "test_conditions.csv"
    conditions_of = {name: list(TEST_CONDITIONS) for name in listed.ids}
    write_conditions(table, read_manifest(data_folder / "test.csv"), conditions_of, drawn=False)
    print(f"{len(listed.ids)} recordings under {len(TEST_CONDITIONS)} conditions in {table}")


def write_background(table: Path, recordings: Manifest) -> None:
    """Write random recordings of random speakers, as many of each corpus, and their manifest."""
    random = np.random.default_rng(0)
    of_corpus: dict[str, dict[str, list[str]]] = {}
    for name, row in recordings.row_of_id.items():
        speaker = recordings.speakers[recordings.speaker_of_row[row]]
        of_corpus.setdefault(name.partition("/")[0], {}).setdefault(speaker, []).append(name)
    chosen = []
    for of_speaker in of_corpus.values():
        speakers = sorted(of_speaker)
        for place in random.permutation(len(speakers))[:BACKGROUND_SPEAKERS].tolist():
            chosen.append(str(random.choice(of_speaker[speakers[place]])))
    names = itertools.cycle((WHOLE, *CONDITIONS))
    write_conditions(table, recordings, {name: [next(names)] for name in chosen}, drawn=True)


def thinned(trials: Trials, random: np.random.Generator) -> NDArray[np.int64]:
    """The places of all target pairs of a list, and of at most MOST_NONTARGETS others."""
    assert trials.is_target is not None
    others = np.flatnonzero(~trials.is_target)
    if len(others) > MOST_NONTARGETS:
        others = random.choice(others, MOST_NONTARGETS, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(trials.is_target), others]))


def main() -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data_folder", type=Path, help="the folder that prepare.py wrote")
    parser.add_argument("--test-corpus", default="speechocean762", metavar="CORPUS")
    options = parser.parse_args()
    return exit_code("conditions.py", lambda: run(options.data_folder, options.test_corpus))


if __name__ == "__main__":
    sys.exit(main())
