"""Synthetic noises, babble and rooms for augmentation, without a corpus to download.

Recorded ones (simple-spk prepare musan, simple-spk prepare rooms) are better if available; these
are enough to keep a network from learning a speaker's single microphone instead of the voice.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import read_crop
from simple_spk.data.augmentation import random_filter
from simple_spk.data.manifest import Manifest, read_manifest, write_manifest
from simple_spk.io.atomic_file import atomic_write

SOUND_SECONDS = 8.0
VOICES = (3, 7)  # of babble
REVERBERATION_SECONDS = (0.1, 0.7)  # until an echo is 60 dB down
HUM_HERTZ = (50.0, 60.0)

Make = Callable[[np.random.Generator], NDArray[np.floating]]


def make_sounds(data_folder: str | Path, count: int = 300, seed: int = 0) -> None:
    """Write noises.csv (kinds noise and babble) and rooms.csv, with ``count`` files of each kind.

    Babble mixes speakers of train.csv. Existing files are kept.
    """
    data_folder = Path(data_folder)
    speech = read_manifest(data_folder / "train.csv", with_ids=False)
    kinds: dict[str, Make] = {
        "noise": make_noise,
        "babble": lambda random: make_babble(random, speech),
        "room": make_room,
    }
    rows: dict[str, list[tuple[str, str, float, str]]] = {"noises.csv": [], "rooms.csv": []}
    bar = tqdm(total=count * len(kinds), unit="file", desc="sounds")
    for kind, make in kinds.items():
        for number in range(count):
            name = f"sounds/{kind}/{number:04}.wav"
            path = data_folder / name
            if not path.is_file():
                sound = make(np.random.default_rng((seed, number)))
                with atomic_write(path) as partial:
                    peak = 0.9 / np.abs(sound).max()
                    soundfile.write(partial, sound * peak, SAMPLE_RATE, "PCM_16", format="WAV")
            seconds = soundfile.info(path).duration
            table = "rooms.csv" if kind == "room" else "noises.csv"
            rows[table].append((f"{kind}/{number:04}", name, seconds, kind))
            bar.update()
    bar.close()
    for table, content in rows.items():
        write_manifest(data_folder / table, *map(list, zip(*content, strict=True)))


def make_noise(random: np.random.Generator) -> NDArray[np.floating]:
    """Noise of random color and varying level, at times with mains hum or clicks."""
    samples = int(SOUND_SECONDS * SAMPLE_RATE)
    noise = random_filter(white(random, samples), random, SAMPLE_RATE, deviation_db=15.0)
    noise /= np.std(noise)
    times = np.arange(samples) / SAMPLE_RATE
    swells = random.normal(0.0, random.uniform(0.0, 8.0), size=int(SOUND_SECONDS * 4))
    noise *= 10 ** (np.interp(times, np.linspace(0, SOUND_SECONDS, len(swells)), swells) / 20)
    if random.random() < 0.3:
        hertz = random.choice(HUM_HERTZ)
        for harmonic in range(1, 8):
            phase = random.uniform(0.0, 2 * np.pi)
            noise += random.exponential(0.5) * np.sin(2 * np.pi * hertz * harmonic * times + phase)
    if random.random() < 0.3:
        clicks = random.integers(samples, size=random.integers(5, 60))
        impulses = np.zeros(samples)
        impulses[clicks] = random.normal(0.0, 20.0, size=len(clicks))
        decay = np.exp(-np.arange(800) / random.uniform(10.0, 200.0)) * random.normal(size=800)
        noise += np.convolve(impulses, decay)[:samples]
    return noise


def white(random: np.random.Generator, samples: int) -> NDArray[np.float32]:
    """White noise (samples,)."""
    return random.standard_normal(samples, dtype=np.float32)


def make_babble(random: np.random.Generator, speech: Manifest) -> NDArray[np.floating]:
    """Several voices at once, equally loud."""
    samples = int(SOUND_SECONDS * SAMPLE_RATE)
    babble = np.zeros(samples)
    for row in random.integers(len(speech), size=random.integers(*VOICES, endpoint=True)):
        voice = read_crop(speech.wav(int(row)), samples, random.random(), SAMPLE_RATE)
        babble += voice / (np.std(voice) + 1e-6)
    return babble


def make_room(random: np.random.Generator) -> NDArray[np.floating]:
    """A room's impulse response: direct sound, a few early echoes, a tail of decaying noise."""
    seconds = random.uniform(*REVERBERATION_SECONDS)
    times = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    tail = random_filter(white(random, len(times)), random, SAMPLE_RATE, deviation_db=4.0)
    response = tail * 10 ** (-3.0 * times / seconds)
    first_echo = int(random.uniform(0.001, 0.01) * SAMPLE_RATE)
    response[:first_echo] = 0.0
    echoes = random.integers(first_echo, int(0.05 * SAMPLE_RATE), size=random.integers(2, 10))
    response[echoes] += random.normal(0.0, 3.0, size=len(echoes)) * 10 ** (
        -3.0 * echoes / (seconds * SAMPLE_RATE)
    )
    direct_to_reverberant_db = random.uniform(-2.0, 15.0)
    response[0] = np.sqrt(np.sum(response**2)) * 10 ** (direct_to_reverberant_db / 20)
    response[1:] = np.clip(response[1:], -response[0], response[0])  # nothing is louder than direct
    return response
