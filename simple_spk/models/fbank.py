"""Kaldi-compatible log-mel filterbank energies of batches, on any device.

Written by hand because ``torchaudio.compliance.kaldi.fbank`` takes one recording at a time, without
padding.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk import SAMPLE_RATE
from simple_spk.models.saved_arguments import remember_arguments

INT16_SCALE = 32768.0  # Kaldi's samples are 16-bit integers, ours lie in [-1, 1]
PRE_EMPHASIS = 0.97
Window = Literal["povey", "hamming"]
# Frames computed at a time: on a CPU as many as its cache holds, which is three times faster.
BLOCK_FRAMES = {"cpu": 800, "cuda": 2**15}


@remember_arguments
class Fbank(nn.Module):
    """Log-mel energies of waveforms, minus their mean over time.

    With ``dither=0`` and ``mean_normalization=False`` the values equal Kaldi's. Dither (in units of
    16-bit samples) is added as noise in training; at test time its expected energy is added
    instead, so that digital silence looks the same in both and results are deterministic. The
    window is Kaldi's default, Povey's, or the Hamming window of WeSpeaker. Full scale, to which the
    floor of the logarithm is relative, is 32768 for Kaldi and 1 for 3D-Speaker. The highest band
    ends at half of the sample rate, or at ``highest_hertz``.
    """

    window: Tensor
    mel: Tensor
    dither_energies: Tensor

    def __init__(
        self,
        sample_rate: int = SAMPLE_RATE,
        num_mels: int = 80,
        frame_milliseconds: float = 25.0,
        shift_milliseconds: float = 10.0,
        lowest_hertz: float = 20.0,
        dither: float = 1.0,
        mean_normalization: bool = True,
        window: Window = "povey",
        full_scale: float = INT16_SCALE,
        highest_hertz: float | None = None,
    ) -> None:
        super().__init__()
        if window not in get_args(Window):
            raise ValueError(f"the window must be one of {get_args(Window)}, not {window!r}")
        highest = sample_rate / 2 if highest_hertz is None else highest_hertz
        if not lowest_hertz < highest <= sample_rate / 2:
            raise ValueError(
                f"highest_hertz must be above lowest_hertz, {lowest_hertz:g}, and at most half of "
                f"the sample rate, {sample_rate / 2:g}; it is {highest:g}"
            )
        self.sample_rate = sample_rate
        self.num_mels = num_mels
        self.frame_samples = int(sample_rate * frame_milliseconds / 1000)
        self.shift_samples = int(sample_rate * shift_milliseconds / 1000)
        self.dither = dither
        self.full_scale = full_scale
        self.mean_normalization = mean_normalization
        self.transform_samples = 2 ** math.ceil(math.log2(self.frame_samples))
        self.ends_at_zero = window == "povey"
        if window == "povey":
            weights = torch.hann_window(self.frame_samples, False, dtype=torch.float64).pow(0.85)
        else:
            weights = torch.hamming_window(self.frame_samples, False, dtype=torch.float64)
        bins = self.transform_samples // 2
        mel = _mel_matrix(sample_rate, bins, num_mels, lowest_hertz, highest)
        # brings samples to full scale on the way
        self.register_buffer("window", weights * full_scale, persistent=False)
        self.register_buffer("mel", mel.float(), persistent=False)
        # White noise is a sum of impulses of random height; their expected energies add up.
        impulses = torch.eye(self.frame_samples) * (dither / INT16_SCALE)
        energies = self._energies(impulses.double()).sum(dim=0)
        self.register_buffer("dither_energies", energies, persistent=False)

    @property
    def frame_seconds(self) -> float:
        """Duration of a frame; shorter recordings have no features."""
        return self.frame_samples / self.sample_rate

    def num_frames(self, samples: Tensor) -> Tensor:
        """Numbers of whole frames in recordings of so many samples."""
        frames = 1 + (samples - self.frame_samples) // self.shift_samples
        return frames.clamp(min=0)

    def forward(
        self, waveforms: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Features (n, frames, num_mels) of waveforms (n, samples) in [-1, 1], and their lengths.

        lengths (n,) counts the samples of each row that are not padding (None: all are); the
        lengths returned count frames. Frames that touch padding are zero.
        """
        if waveforms.shape[-1] < self.frame_samples:
            raise ValueError(
                f"a recording of {waveforms.shape[-1]} samples is shorter than one frame of "
                f"{self.frame_samples} samples: leave it out or make it longer"
            )
        with torch.autocast(waveforms.device.type, enabled=False):
            return self._features(waveforms.float(), lengths)

    def _features(self, waveforms: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.training and self.dither > 0.0:
            noise = torch.randn_like(waveforms)
            waveforms = torch.add(waveforms, noise, alpha=self.dither / INT16_SCALE)
        else:
            # Without noise, a spectrum may span more than the seven digits of single precision,
            # and the logarithm shows them all.
            waveforms = waveforms.double()
        waveforms = self.padded(waveforms, lengths)
        block = BLOCK_FRAMES.get(waveforms.device.type, 2**15)
        rows = max(1, block * self.shift_samples // waveforms.shape[-1])
        energies = torch.cat([self._energies(part) for part in waveforms.split(rows)])
        return self.normalized_logarithms(energies, lengths)

    def padded(self, waveforms: Tensor, lengths: Tensor | None) -> Tensor:
        """The waveforms whose frames, from their first sample on, have the energies."""
        return waveforms

    def normalized_logarithms(
        self, energies: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The features and lengths of ``forward``, from mel energies (n, frames, num_mels)."""
        if lengths is None:
            features = self.logarithms(energies)
            if self.mean_normalization:
                features = features - features.mean(dim=1, keepdim=True)
            return features, None
        frame_lengths = self.num_frames(lengths)
        positions = torch.arange(energies.shape[1], device=energies.device)
        valid = (positions < frame_lengths[:, None])[..., None]
        features = self.logarithms(energies * valid) * valid
        if self.mean_normalization:
            mean = features.sum(dim=1, keepdim=True) / frame_lengths.clamp(min=1)[:, None, None]
            features = (features - mean) * valid
        return features, frame_lengths

    def logarithms(self, energies: Tensor) -> Tensor:
        """Log-mel energies (n, frames, num_mels)."""
        if not self.training:
            energies = energies + self.dither_energies
        return energies.clamp(min=torch.finfo(torch.float32).eps).log()

    def _energies(self, waveforms: Tensor) -> Tensor:
        """Mel energies (n, frames, num_mels) of waveforms (n, samples)."""
        spectrum = self.spectrum(waveforms)
        powers = spectrum[..., 0].square() + spectrum[..., 1].square()
        return powers[..., :-1].float() @ self.mel  # no mel filter reaches the Nyquist bin

    def spectrum(self, waveforms: Tensor) -> Tensor:
        """Spectra (n, frames, bins, 2), real and imaginary, of the frames of waveforms."""
        # Kaldi subtracts the mean of each frame, then emphasizes. Emphasis is linear: it comes
        # first here, once for all frames, and scales the means.
        plain = waveforms.unfold(-1, self.frame_samples, self.shift_samples)
        means = plain.mean(-1, keepdim=True)
        emphasized = waveforms - PRE_EMPHASIS * functional.pad(waveforms, (1, 0))[..., :-1]
        frames = emphasized.unfold(-1, self.frame_samples, self.shift_samples)
        frames = (frames - (1.0 - PRE_EMPHASIS) * means) * self.window.to(waveforms.dtype)
        if not self.ends_at_zero:  # what precedes a frame's first sample matters: for Kaldi, itself
            first = (1.0 - PRE_EMPHASIS) * (plain[..., 0] - means[..., 0])
            frames[..., 0] = first * self.window[0].to(waveforms.dtype)
        return torch.view_as_real(torch.fft.rfft(frames, n=self.transform_samples))


def _mel_matrix(
    sample_rate: int, bins: int, num_mels: int, lowest_hertz: float, highest_hertz: float
) -> Tensor:
    """The matrix (bins, num_mels) of triangular filters, equally spaced on Kaldi's mel scale."""

    def mel(hertz: Tensor) -> Tensor:
        return 1127.0 * torch.log1p(hertz / 700.0)

    lowest, highest = mel(torch.tensor([lowest_hertz, highest_hertz], dtype=torch.float64))
    edges = (
        torch.linspace(0.0, 1.0, num_mels + 2, dtype=torch.float64) * (highest - lowest) + lowest
    )
    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    hertz = torch.arange(bins, dtype=torch.float64) * sample_rate / (2 * bins)
    position = mel(hertz)[:, None]
    rising, falling = (position - left) / (center - left), (right - position) / (right - center)
    return torch.minimum(rising, falling).clamp(min=0.0)
