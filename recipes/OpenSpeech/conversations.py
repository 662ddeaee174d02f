"""Conversations of real speakers: python recipes/OpenSpeech/conversations.py DATA/valid.csv OUT

Writes OUT/NAME.wav and OUT/NAME.rttm, who speaks when, for conversations of 2, 3 and 5 speakers of
a corpus, without and with overlap, clear and in noise. A speaker's turns are the recordings of that
speaker without the silence at their ends, cut to 0.5 to 10 s. Pauses between turns last up to
1.5 s. Pauses of more than 0.3 s within a turn are no speech in the RTTM; they are found by energy
in the clean recording. Speakers differ by up to 6 dB in level.
"""

import argparse
import sys
from collections import defaultdict
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.OpenSpeech.sounds import make_noise
from simple_spk import SAMPLE_RATE
from simple_spk.cli.errors import exit_code
from simple_spk.data.audio import read_recording
from simple_spk.data.augmentation import with_noise
from simple_spk.data.manifest import Manifest, read_manifest
from simple_spk.inference.diarization.conversation import Turn, rttm_lines
from simple_spk.inference.speech_quality import FRAME_SECONDS, QualityMeter
from simple_spk.io.atomic_file import atomic_write, write_text

SPEAKERS, OVERLAPS, NOISES = (2, 3, 5), (0.0, 0.1), ("clear", "noise")
TURN_SECONDS, PAUSE_SECONDS = (0.5, 10.0), (0.0, 1.5)
NOISE_DECIBEL = (5.0, 20.0)
LEVEL_DECIBEL = 3.0
LEAST_RECORDINGS = 4  # of a speaker
LONGEST_PAUSE_FRAMES = round(0.3 / FRAME_SECONDS)

Waveform = NDArray[np.float32]


class Speech(NamedTuple):
    """A recording without silence at its ends."""

    waveform: Waveform
    flags: NDArray[np.bool_]  # of frames: speech, with its short pauses


def clean_speech(path: Path) -> Speech | None:
    """The speech of a recording, at a common level; None if there is hardly any."""
    waveform = read_recording(path, SAMPLE_RATE)
    meter = QualityMeter(SAMPLE_RATE)
    meter.add(waveform)
    flags = meter.speech(by_energy=True).flags
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    for (_, end), (start, _) in pairwise(edges):
        if start - end <= LONGEST_PAUSE_FRAMES:
            flags[end:start] = True
    if not len(edges):
        return None
    first, last = edges[0, 0], edges[-1, 1]
    size = round(FRAME_SECONDS * SAMPLE_RATE)
    waveform = waveform[first * size : last * size]
    power = float(np.mean(waveform[np.repeat(flags[first:last], size)] ** 2))
    return Speech(0.05 * waveform / np.sqrt(power), flags[first:last])


def conversation(
    manifest: Manifest,
    rows_of: dict[str, list[int]],
    seconds: float,
    overlap: float,
    noisy: bool,
    random: np.random.Generator,
) -> tuple[Waveform, list[Turn]]:
    """A conversation of the speakers with these rows, and who speaks when."""
    size = round(FRAME_SECONDS * SAMPLE_RATE)
    names, levels = list(rows_of), {n: random.uniform(-1, 1) * LEVEL_DECIBEL for n in rows_of}
    waiting: dict[str, list[int]] = {name: [] for name in names}
    mixed = np.zeros(round((seconds + 60.0) * SAMPLE_RATE), np.float32)
    turns: list[Turn] = []
    place, speaker, last = round(random.uniform(*PAUSE_SECONDS) / FRAME_SECONDS), "", 0
    order = [str(n) for n in random.permutation(names)]  # everybody speaks
    while place * FRAME_SECONDS < seconds:
        others = [name for name in names if name != speaker]
        speaker = order.pop() if order else str(random.choice(others))
        wanted = round(np.exp(random.uniform(*np.log(TURN_SECONDS))) / FRAME_SECONDS)
        parts: list[Speech] = []
        while wanted > 0:
            if not waiting[speaker]:
                waiting[speaker] = random.permutation(rows_of[speaker]).tolist()
            found = clean_speech(manifest.wav(waiting[speaker].pop()))
            if found is None:
                continue
            start = int(random.integers(max(1, len(found.flags) - wanted + 1)))
            flags = found.flags[start : start + wanted]
            parts.append(Speech(found.waveform[start * size : (start + wanted) * size], flags))
            wanted -= len(flags)
        flags = np.concatenate([part.flags for part in parts])
        waveform = np.concatenate([part.waveform for part in parts])
        # The share of overlapped time is of the time in which anybody speaks.
        if turns and random.random() < 0.5 and overlap:
            before = min(last, len(flags)) // 2
            place -= min(before, round(random.uniform(0.0, 4.0 * overlap) * len(flags)))
        end = place + len(flags)
        gain = np.float32(10 ** (levels[speaker] / 20))
        mixed[place * size : end * size] += gain * waveform
        edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
        spans = (place + edges.reshape(-1, 2)) * FRAME_SECONDS
        turns += [Turn(float(a), float(b), speaker) for a, b in spans]
        last, place = len(flags), end + round(random.uniform(*PAUSE_SECONDS) / FRAME_SECONDS)
    mixed = mixed[: place * size]
    noise = np.resize(make_noise(random), len(mixed)).astype(np.float32)  # one room, one noise
    level = random.uniform(*NOISE_DECIBEL) if noisy else 40.0
    return with_noise(mixed, noise, level), sorted(turns)


def main() -> None:
    """Write the conversations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path, metavar="CSV")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--corpora", nargs="+", required=True, metavar="CORPUS")
    parser.add_argument("--each", type=int, default=1, help="conversations of a kind (default 1)")
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    manifest = read_manifest(options.manifest)
    rows_of: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, row in manifest.row_of_id.items():
        speaker = manifest.speakers[manifest.speaker_of_row[row]]
        rows_of[name.partition("/")[0]][speaker].append(row)
    kinds = product(options.corpora, SPEAKERS, OVERLAPS, NOISES, range(options.each))
    for number, (corpus, count, overlap, noise, take) in enumerate(kinds):
        random = np.random.default_rng((7, number))
        fit = [s for s, rows in rows_of[corpus].items() if len(rows) >= LEAST_RECORDINGS]
        if len(fit) < count:
            raise ValueError(
                f"{options.manifest}: {corpus} has {len(fit)} speakers of {LEAST_RECORDINGS} "
                f"recordings, and {count} are needed: leave it out of --corpora"
            )
        chosen = {str(s): rows_of[corpus][s] for s in random.choice(fit, count, replace=False)}
        args = (manifest, chosen, options.seconds, overlap, noise == "noise", random)
        waveform, turns = conversation(*args)
        name = f"{corpus}-{count}-{round(100 * overlap)}-{noise}-{take}"
        with atomic_write(options.output / f"{name}.wav") as partial:
            soundfile.write(partial, waveform, SAMPLE_RATE, format="WAV", subtype="PCM_16")
        write_text(options.output / f"{name}.rttm", rttm_lines(name, turns))
        print(name, f"{len(waveform) / SAMPLE_RATE:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code("conversations.py", main))
