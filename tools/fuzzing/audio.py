"""Recordings of many formats: each must end in a finite embedding, or be refused."""

import functools
import random
from pathlib import Path

import numpy as np
import soundfile
import torch

from simple_spk.inference.batch_embedding import ExtractionOptions, embedded_batches
from simple_spk.inference.cpu_resnet import CpuEmbedding
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from tools.fuzzing.mutations import BYTE_DAMAGES, damaged, odd_number, truncate
from tools.write_m4a import write_m4a


def speech(samples: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Noise (samples, channels) with an envelope like that of speech."""
    dice = np.random.default_rng(seed)
    corners = dice.random(samples // 2000 + 2) ** 3
    envelope = np.interp(np.arange(samples) / 2000, np.arange(len(corners)), corners)
    return (0.3 * envelope[:, None] * dice.standard_normal((samples, channels))).astype(np.float32)


def write_originals(folder: Path) -> None:
    """Undamaged recordings of many formats."""
    for name, rate, channels, options in (
        ("a.wav", 16000, 1, {}),
        ("b.wav", 44100, 2, {"subtype": "PCM_24"}),
        ("c.wav", 8000, 1, {"subtype": "FLOAT"}),
        ("d.wav", 16000, 24, {}),
        ("e.wav", 8000, 1, {"subtype": "ULAW"}),
        ("f.wav", 8000, 1, {"subtype": "IMA_ADPCM"}),
        ("g.flac", 16000, 1, {}),
        ("h.flac", 48000, 2, {"subtype": "PCM_24"}),
        ("i.ogg", 22050, 1, {}),
        ("j.ogg", 48000, 2, {"format": "OGG", "subtype": "OPUS"}),
        ("k.mp3", 16000, 1, {}),
        ("l.mp3", 44100, 2, {}),
        ("m.aiff", 11025, 1, {}),
        ("n.w64", 16000, 1, {}),
        ("o.caf", 16000, 2, {"subtype": "ALAC_16"}),
        ("p.rf64", 16000, 1, {"format": "RF64"}),
    ):
        soundfile.write(folder / name, speech(rate, channels), rate, **options)
    write_m4a(folder / "q.m4a", speech(16000).T)
    write_m4a(folder / "r.m4a", speech(44100, 2).T, 44100, index_first=True)


def odd_index(content: bytes, dice: random.Random) -> bytes:
    """The same within the index of an m4a, which may lie at its end, or within the last bytes."""
    start = max(content.find(b"moov"), len(content) - 1500 if b"moov" not in content else 0)
    return content[:start] + odd_number(content[start:], dice)


DAMAGES = (*BYTE_DAMAGES, truncate, odd_number, odd_index)


def write_samples(path: Path, dice: random.Random) -> None:
    """A sound file whose samples, rate or channels are odd."""
    rate = dice.choice((8000, 11127, 16000, 22050, 44100, 47999, 96000, 96001, 192000))
    samples = dice.choice((0, 1, 2, 399, 400, 401, 5000, 20000))
    channels = dice.choice((1, 1, 2, 5, 24, 200))
    waveform = speech(max(samples, 1), channels, dice.randrange(9))[:samples]
    value = dice.choice((None, None, np.nan, np.inf, -np.inf, 1e10, -1e10, 3e38, 1e-30, 5.0))
    if value is not None and samples:
        waveform[dice.randrange(samples), dice.randrange(channels)] = value
    waveform *= dice.choice((1.0, 1.0, 0.0, 1e-9, 30000.0, 1e9, 1e30))
    if dice.random() < 0.1:
        waveform[:] = 0.25
    if dice.random() < 0.1:
        rate = dice.choice((1, 10, 1000, 1999, 2000, 768000, 10**6, 2**31 - 1))
    soundfile.write(
        path,
        waveform,
        rate,
        format="WAV",
        subtype=dice.choice(("FLOAT", "DOUBLE", "PCM_16", "PCM_U8", "PCM_32")),
    )


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged recording."""
    files = sorted(originals.iterdir())
    original = dice.choice(files)
    other_suffix = dice.choice((".wav", ".m4a", ".raw", ".flac", ""))
    path = place.with_suffix(original.suffix if dice.random() < 0.9 else other_suffix)
    kind = dice.random()
    if kind < 0.15:
        write_samples(path, dice)
    elif kind < 0.18:
        odd = (b"", b"\0" * 5000, dice.randbytes(5000), b"RIFF", b"text\n" * 99)
        path.write_bytes(dice.choice(odd))
    elif kind < 0.25:  # the header of one before the samples of another
        head = dice.choice(files).read_bytes()[: dice.randrange(8, 400)]
        path.write_bytes(head + original.read_bytes()[dice.randrange(400) :])
    else:
        path.write_bytes(damaged(original.read_bytes(), dice, DAMAGES))
    return path


@functools.cache
def _embed() -> CpuEmbedding:
    """A small model."""
    torch.manual_seed(0)
    return CpuEmbedding(Fbank().eval(), ResNet(width=4, stem_stride=2, embedding_dim=8).eval())


def read(path: Path) -> None:
    """Embed a recording."""
    batches = list(embedded_batches([path], _embed(), ExtractionOptions(with_quality=True)))
    assert sum(len(batch.indexes) + len(batch.errors) for batch in batches) == 1
    for batch in batches:
        for error in batch.errors.values():
            raise error
        assert np.isfinite(batch.embeddings).all()
        for quality in batch.qualities:
            known = [value for value in quality if not isinstance(value, str | None)]
            assert np.isfinite([*known, *quality.sound_measures()]).all()
