"""Laws of recordings in memory: the same answer as from a file, or a clear error."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.data import audio
from simple_spk.data.audio import AudioError, array_blocks, read_recording
from simple_spk.inference.batch_embedding import ExtractionOptions, embed_recordings


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32)


def read(samples: NDArray | Tensor, source_rate: int = 16000) -> NDArray[np.float32]:
    return np.concatenate(list(array_blocks(samples, "recording 0", source_rate, 16000)))


@pytest.mark.parametrize("channels", [1, 2, 24])
@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_an_array_is_read_as_the_file_would_be(
    channels: int, rate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = noise(channels, rate)
    soundfile.write(tmp_path / "x.wav", samples.T, rate, subtype="FLOAT")
    expected = read_recording(tmp_path / "x.wav")
    for block_samples in (2**20, 3000 * channels):
        monkeypatch.setattr(audio, "BLOCK_SAMPLES", block_samples)
        for given in (samples, torch.from_numpy(samples), samples.astype(np.float64)):
            np.testing.assert_allclose(read(given, rate), expected, rtol=0.0, atol=1e-6)
    if channels == 1:
        np.testing.assert_allclose(read(samples[0], rate), expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_integers_have_their_full_range_at_one(kind: str) -> None:
    limits = np.iinfo(kind)
    middle = (int(limits.max) + int(limits.min) + 1) // 2
    found = read(np.array([limits.min, middle, limits.max] * 200, dtype=kind))
    one_step = 2.0 / (int(limits.max) - int(limits.min))
    assert found[:2].tolist() == [-1.0, 0.0]
    assert found[2] == pytest.approx(1.0, abs=1.1 * one_step)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_tensors_of_other_precision(kind: torch.dtype) -> None:
    samples = torch.from_numpy(noise(4000))
    np.testing.assert_allclose(read(samples.to(kind)), samples.numpy(), atol=0.003)
    assert len(read(samples.clone().requires_grad_())) == 4000


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros((0,)), "no samples"),
        (np.zeros((2, 0)), "no samples"),
        (np.zeros((0, 5)), "no samples"),
        (np.float32(1.0) * np.ones(()), "shape"),
        (np.zeros((1, 2, 3)), "shape"),
        (np.zeros((16000, 2)), "shape"),
        (np.zeros(5000, np.int64), "int64"),
        (np.zeros(5000, np.complex64), "complex64"),
        (np.zeros(5000, np.bool_), "bool"),
        (np.array(["a"] * 500), "<U1"),
        (np.full(5000, np.nan), "not numbers"),
        (np.append(np.zeros(5000), np.inf), "not numbers"),
        (np.append(np.zeros(5000), 1e300), "not numbers"),
        (np.append(np.zeros(5000), 1e12), "as large as"),
        (noise(300), "less than one frame"),
        (np.full(5000, 0.5), "silent"),
    ],
)
def test_what_is_no_recording_is_called_so(samples: NDArray, words: str) -> None:
    with pytest.raises(AudioError, match=f"recording 1 .*{words}"):
        options = ExtractionOptions(source_rate=16000)
        embed_recordings([noise(5000), samples], lambda w, n: w[:, :1], options)


def test_an_array_needs_its_rate(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="samples a second"):
        embed_recordings([noise(5000)], lambda w, n: w[:, :1])
    for rate in (-5, 0):
        with pytest.raises(ValueError, match=f"{rate} samples a second"):
            options = ExtractionOptions(source_rate=rate)
            embed_recordings([noise(5000)], lambda w, n: w[:, :1], options)
