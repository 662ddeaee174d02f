"""Noise, music, babble and rooms over training crops, made anew for each from its own seed.

Ours rather than SpeechBrain's augment package, for two reasons: its noise loaders keep their place
in a random order, which no checkpoint holds, so that a resumed run would hear other noises; and
they read whole files where a crop is needed. Mixing and convolution are torchaudio's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torchaudio.functional
from numpy.typing import NDArray

from simple_spk.audio import read_crop, read_recording
from simple_spk.manifest import Manifest, read_manifest

Waveform = NDArray[np.float32]


class NoiseKind(NamedTuple):
    """One kind of sound to mix in: how loud the speech stays above it, how many at a time."""

    signal_to_noise_db: tuple[float, float]
    voices: tuple[int, int] = (1, 1)


# The kinds of MUSAN, with the levels that recipes of the field use since Kaldi's.
MUSAN = {
    "noise": NoiseKind((0.0, 15.0)),
    "music": NoiseKind((5.0, 15.0)),
    "speech": NoiseKind((13.0, 20.0), (3, 7)),
}


class Augmentation:
    """Does one thing to a crop with some ``probability``: a noise of a kind, or a room.

    All kinds, rooms being one, are equally likely.

    Arguments:
        noises: manifest of noises whose spk_id says of which kind they are (see MUSAN).
        rooms: manifest of room impulse responses.
        probability: of doing anything.
        kinds: levels and numbers of voices by kind; those without recordings are an error.
    """

    def __init__(
        self,
        noises: str | Path | None = None,
        rooms: str | Path | None = None,
        probability: float = 0.6,
        sample_rate: int = 16000,
        kinds: Mapping[str, NoiseKind | Sequence] | None = None,
    ) -> None:
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"the probability of augmentation is in [0, 1], not {probability}")
        self.probability = probability
        self.sample_rate = sample_rate
        self.noises = None if noises is None else read_manifest(noises, with_ids=False)
        self.rooms = None if rooms is None else read_manifest(rooms, with_ids=False)
        if self.noises is None and self.rooms is None:
            raise ValueError("augmentation needs noises, rooms, or both")
        self.kinds = {
            name: NoiseKind(*kind) for name, kind in (MUSAN if kinds is None else kinds).items()
        }
        self.rows_of_kind = {} if self.noises is None else _rows_by_kind(self.noises, self.kinds)

    def __call__(self, waveform: Waveform, seed: int) -> Waveform:
        """The crop (samples,) as it sounds elsewhere, or as it is."""
        random = np.random.default_rng(seed)
        if random.random() >= self.probability:
            return waveform
        choices = [*self.rows_of_kind, *(["room"] if self.rooms is not None else [])]
        choice = choices[random.integers(len(choices))]
        if choice == "room":
            assert self.rooms is not None
            row = int(random.integers(len(self.rooms)))
            return in_room(waveform, read_recording(self.rooms.wav(row), self.sample_rate))
        return with_noise(waveform, *self._draw_noise(random, choice, len(waveform)))

    def _draw_noise(
        self, random: np.random.Generator, choice: str, samples: int
    ) -> tuple[Waveform, float]:
        """Noise (samples,) of a kind, and how many dB the speech is to stay above it."""
        assert self.noises is not None
        kind, rows = self.kinds[choice], self.rows_of_kind[choice]
        noise = np.zeros(samples, dtype=np.float32)
        for row in rows[
            random.integers(len(rows), size=random.integers(*kind.voices, endpoint=True))
        ]:
            path = self.noises.wav(int(row))
            noise += read_crop(path, samples, random.random(), self.sample_rate)
        return noise, float(random.uniform(*kind.signal_to_noise_db))


def with_noise(speech: Waveform, noise: Waveform, signal_to_noise_db: float) -> Waveform:
    """Speech (samples,) with noise (samples,) this many dB below it; silence changes nothing."""
    if not speech.any() or not noise.any():
        return speech
    level = torch.tensor([signal_to_noise_db])
    mixed = torchaudio.functional.add_noise(
        torch.from_numpy(speech)[None], torch.from_numpy(noise)[None], level
    )
    return mixed[0].numpy()


def in_room(speech: Waveform, response: Waveform) -> Waveform:
    """Speech (samples,) as heard in a room, as loud as before and beginning at the same moment."""
    direct_path = int(np.abs(response).argmax())
    wet = torchaudio.functional.fftconvolve(
        torch.from_numpy(speech), torch.from_numpy(response[direct_path:].copy())
    )[: len(speech)].numpy()
    loudness = float(np.sqrt(np.mean(wet**2, dtype=np.float64)))
    if loudness == 0.0:
        return speech
    return wet * np.float32(float(np.sqrt(np.mean(speech**2, dtype=np.float64))) / loudness)


def _rows_by_kind(noises: Manifest, kinds: Mapping[str, NoiseKind]) -> dict[str, NDArray[np.int64]]:
    """The rows of the manifest of each kind."""
    missing = sorted(set(kinds) - set(noises.speakers))
    if missing:
        raise ValueError(
            f"{noises.path} has no recordings of the kinds {', '.join(missing)} in its column "
            f"spk_id, which names {', '.join(noises.speakers[:5])}: prepare it again, or name kinds"
        )
    return {
        name: np.flatnonzero(noises.speaker_of_row == noises.speakers.index(name))
        for name in sorted(kinds)
    }
