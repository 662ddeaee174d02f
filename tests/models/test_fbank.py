"""Laws of the filterbank, against torchaudio's port of Kaldi."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchaudio.compliance import kaldi

from simple_spk.models.fbank import Fbank, Window

SAMPLES = 12345  # not a whole number of frames


def reference(
    waveform: Tensor, sample_rate: int = 16000, num_mels: int = 80, window: str = "povey"
) -> Tensor:
    """Kaldi's log-mel energies (frames, num_mels) of a waveform (samples,), in its precision."""
    return kaldi.fbank(
        waveform[None] * 32768,
        dither=0.0,
        energy_floor=0.0,
        num_mel_bins=num_mels,
        sample_frequency=sample_rate,
        window_type=window,
    )


def waveform_of(kind: str, noisy_tone: Callable[..., NDArray[np.float32]]) -> Tensor:
    """Sounds that are hard in different ways."""
    torch.manual_seed(0)
    time, noise = torch.arange(SAMPLES) / 16000, torch.randn(SAMPLES)
    return {
        "noise": 0.1 * noise,
        "faint noise": 2.0 / 32768 * noise,
        "tones": 0.3 * torch.sin(2765 * time) + 0.1 * torch.sin(30000 * time) + 1e-3 * noise,
        "offset": 0.5 + 0.001 * noise,
        "clicks": (torch.rand(SAMPLES) < 1e-3).float(),
        "speech-like": torch.from_numpy(noisy_tone(SAMPLES / 16000)),
    }[kind]


@pytest.mark.parametrize("window", ["povey", "hamming"])
@pytest.mark.parametrize(
    "kind", ["noise", "faint noise", "tones", "offset", "clicks", "speech-like"]
)
def test_equals_kaldi(
    kind: str, window: Window, noisy_tone: Callable[..., NDArray[np.float32]]
) -> None:
    waveform = waveform_of(kind, noisy_tone)
    fbank = Fbank(dither=0.0, mean_normalization=False, window=window)
    features, lengths = fbank(waveform[None])
    assert lengths is None
    expected = reference(waveform.double(), window=window).float()
    torch.testing.assert_close(features[0], expected, rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("hertz", [100.0, 440.0, 3000.0])
def test_a_pure_tone_is_as_exact_as_single_precision_allows(hertz: float) -> None:
    """Between its bands lies what rounding leaves, 26 orders (of e) below: no worse than Kaldi."""
    waveform = 0.5 * torch.sin(2 * torch.pi * hertz * torch.arange(SAMPLES) / 16000)
    exact = reference(waveform.double())
    features, _ = Fbank(dither=0.0, mean_normalization=False)(waveform[None])
    error, kaldi_error = ((f - exact).abs().max() for f in (features[0], reference(waveform)))
    assert error < 5 * kaldi_error + 1e-3


@pytest.mark.parametrize(("sample_rate", "num_mels"), [(16000, 40), (16000, 23), (8000, 40)])
def test_equals_kaldi_at_other_sizes(sample_rate: int, num_mels: int) -> None:
    torch.manual_seed(0)
    waveform = 0.1 * torch.randn(SAMPLES)
    fbank = Fbank(sample_rate, num_mels, dither=0.0, mean_normalization=False)
    features, _ = fbank(waveform[None])
    expected = reference(waveform.double(), sample_rate, num_mels).float()
    torch.testing.assert_close(features[0], expected, rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("samples", [400, 401, 559, 560, 561, SAMPLES])
def test_counts_frames_as_kaldi_does(samples: int) -> None:
    fbank = Fbank()
    frames = len(reference(torch.randn(samples)))
    assert fbank(torch.randn(1, samples))[0].shape == (1, frames, 80)
    assert int(fbank.num_frames(torch.tensor(samples))) == frames


@pytest.mark.parametrize("mean_normalization", [False, True])
@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_padding_changes_nothing(mean_normalization: bool, offset: float) -> None:
    torch.manual_seed(0)
    fbank = Fbank(mean_normalization=mean_normalization).eval()
    lengths = torch.tensor([8000, 4321, 400, 7999])
    batch = torch.zeros(4, 9000)
    for row, length in zip(batch, lengths, strict=True):
        row[:length] = offset + 0.05 * torch.randn(int(length))
    features, frame_lengths = fbank(batch, lengths)
    assert frame_lengths is not None
    for row, length, padded, frames in zip(batch, lengths, features, frame_lengths, strict=True):
        alone, _ = fbank(row[None, :length])
        assert len(alone[0]) == frames
        torch.testing.assert_close(padded[:frames], alone[0], rtol=0.0, atol=1e-3)
        assert not padded[frames:].any()


def test_the_mean_over_valid_frames_is_zero() -> None:
    torch.manual_seed(0)
    fbank = Fbank().eval()
    waveforms = 0.1 * torch.randn(3, 8000) * torch.linspace(0.01, 1.0, 8000)
    features, lengths = fbank(waveforms, torch.tensor([8000, 5000, 700]))
    assert lengths is not None
    for row, length in zip(features, lengths, strict=True):
        torch.testing.assert_close(row[:length].mean(dim=0), torch.zeros(80), rtol=0.0, atol=1e-4)
    unpadded, _ = fbank(waveforms)
    torch.testing.assert_close(unpadded.mean(dim=1), torch.zeros(3, 80), rtol=0.0, atol=1e-4)


def test_mean_normalization_removes_loudness() -> None:
    """A factor on the waveform adds a constant to its log energies."""
    torch.manual_seed(0)
    fbank, waveform = Fbank(dither=0.0), 0.01 * torch.randn(1, 8000)
    loud, quiet = fbank(20.0 * waveform)[0], fbank(waveform)[0]
    torch.testing.assert_close(loud, quiet, rtol=0.0, atol=1e-3)


def test_dither_is_chance_in_training_only() -> None:
    fbank, waveform = Fbank(), 1e-3 * torch.randn(1, 8000)
    torch.manual_seed(1)
    first, second = fbank(waveform)[0], fbank(waveform)[0]
    torch.manual_seed(1)
    again = fbank(waveform)[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    fbank.eval()
    assert torch.equal(fbank(waveform)[0], fbank(waveform)[0])


@pytest.mark.parametrize("dither", [1.0, 3.0])
@pytest.mark.parametrize("kind", ["silence", "faint noise"])
def test_evaluation_has_the_expected_energy_of_training(kind: str, dither: float) -> None:
    torch.manual_seed(0)
    fbank = Fbank(dither=dither, mean_normalization=False)
    waveform = torch.zeros(1, 480) if kind == "silence" else 1e-4 * torch.randn(1, 480)
    draws = fbank(waveform.expand(4000, -1))[0].exp().mean(dim=0)
    expected = fbank.eval()(waveform)[0][0].exp()
    # Energies of noise have about their mean as deviation, so this is six standard errors.
    torch.testing.assert_close(draws, expected, rtol=0.1, atol=0.0)


@pytest.mark.parametrize("dither", [0.0, 1.0])
def test_digital_silence_is_finite(dither: float) -> None:
    waveforms = torch.zeros(1, 8000)
    waveforms[:, :2000] = 0.1 * torch.randn(2000)
    fbank = Fbank(dither=dither)
    assert fbank(waveforms)[0].isfinite().all()
    assert fbank.eval()(waveforms)[0].isfinite().all()


def test_digital_silence_looks_alike_in_training_and_evaluation() -> None:
    """The logarithm of a random energy lies below that of its mean, by at most Euler's 0.577."""
    torch.manual_seed(0)
    fbank = Fbank(mean_normalization=False)
    training = fbank(torch.zeros(40, 8000))[0].mean(dim=(0, 1))
    evaluation = fbank.eval()(torch.zeros(1, 8000))[0].mean(dim=(0, 1))
    below = evaluation - training
    assert below.min() > 0.0
    assert below.max() < 0.65


def test_autocast_does_not_reach_the_features() -> None:
    fbank, waveform = Fbank().eval(), 0.1 * torch.randn(1, 8000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, _ = fbank(waveform)
    assert torch.equal(features, fbank(waveform)[0])


def test_nothing_to_save() -> None:
    """The front end is described by its arguments alone."""
    assert not Fbank().state_dict()


def test_too_short_raises() -> None:
    with pytest.raises(ValueError, match=r"399 samples .* 400"):
        Fbank()(torch.zeros(1, 399))


def test_an_unknown_window_raises() -> None:
    window: Any = "hann"
    with pytest.raises(ValueError, match="'hann'"):
        Fbank(window=window)
