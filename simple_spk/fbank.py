"""Kaldi-compatible log-mel filterbank energies, for whole batches, on any device.

Written by hand because ``torchaudio.compliance.kaldi.fbank`` takes one recording at a time and does
not know of padding. Removing the mean of a frame, pre-emphasis, the window and the Fourier
transform are all linear, so together they are one matrix, made once in double precision.
"""

import math

import torch
from torch import Tensor, nn

from simple_spk.arguments import remember_arguments

INT16_SCALE = 32768.0  # Kaldi's samples are 16-bit integers, ours lie in [-1, 1]


@remember_arguments
class Fbank(nn.Module):
    """Log-mel energies of waveforms, minus their mean over time.

    With ``dither=0`` and ``mean_normalisation=False`` the values equal Kaldi's. Dither (in units of
    16-bit samples) is added as noise while training; at test time its expected energy is added
    instead, so that digital silence looks the same in both and results do not depend on chance.
    """

    fourier: Tensor
    mel: Tensor
    dither_energies: Tensor

    def __init__(
        self,
        sample_rate: int = 16000,
        num_mels: int = 80,
        frame_milliseconds: float = 25.0,
        shift_milliseconds: float = 10.0,
        lowest_hertz: float = 20.0,
        dither: float = 1.0,
        mean_normalisation: bool = True,
    ) -> None:
        super().__init__()
        self.sample_rate = sample_rate
        self.num_mels = num_mels
        self.frame_samples = int(sample_rate * frame_milliseconds / 1000)
        self.shift_samples = int(sample_rate * shift_milliseconds / 1000)
        self.dither = dither
        self.mean_normalisation = mean_normalisation
        fourier = _fourier_matrix(self.frame_samples)
        mel = _mel_matrix(sample_rate, len(fourier[0]) // 2, num_mels, lowest_hertz)
        noise_powers = dither**2 * _powers(torch.eye(self.frame_samples).double() @ fourier).sum(0)
        self.register_buffer("fourier", (fourier * INT16_SCALE).float(), persistent=False)
        self.register_buffer("mel", mel.float(), persistent=False)
        self.register_buffer("dither_energies", (noise_powers @ mel).float(), persistent=False)

    def num_frames(self, samples: Tensor) -> Tensor:
        """How many whole frames fit into recordings of so many samples."""
        frames = 1 + (samples - self.frame_samples).div(self.shift_samples, rounding_mode="floor")
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
        # Frames lose their own mean anyway; doing it roughly first keeps single precision exact.
        waveforms = waveforms - waveforms.mean(dim=-1, keepdim=True)
        frames = waveforms.unfold(-1, self.frame_samples, self.shift_samples)
        energies = _powers(frames @ self.fourier) @ self.mel
        if not self.training:
            energies = energies + self.dither_energies
        features = energies.clamp(min=torch.finfo(torch.float32).eps).log()
        if lengths is None:
            if self.mean_normalisation:
                features = features - features.mean(dim=1, keepdim=True)
            return features, None
        frame_lengths = self.num_frames(lengths)
        positions = torch.arange(features.shape[1], device=features.device)
        valid = (positions < frame_lengths[:, None])[..., None]
        features = features * valid
        if self.mean_normalisation:
            mean = features.sum(dim=1, keepdim=True) / frame_lengths.clamp(min=1)[:, None, None]
            features = (features - mean) * valid
        return features, frame_lengths


def _powers(spectrum: Tensor) -> Tensor:
    """Squared magnitudes (..., bins) of a spectrum (..., 2 * bins): real parts, then imaginary."""
    real, imaginary = spectrum.chunk(2, dim=-1)
    return real.square() + imaginary.square()


def _fourier_matrix(frame_samples: int) -> Tensor:
    """The matrix (frame_samples, 2 * bins) from a raw frame to its windowed Fourier transform."""
    transform_samples = 2 ** math.ceil(math.log2(frame_samples))
    identity = torch.eye(frame_samples, dtype=torch.float64)
    centred = identity - 1.0 / frame_samples
    previous = torch.cat([centred[:, :1], centred[:, :-1]], dim=1)  # Kaldi repeats the first sample
    emphasised = centred - 0.97 * previous
    hann = torch.hann_window(frame_samples, periodic=False, dtype=torch.float64)
    spectrum = torch.fft.rfft(emphasised * hann.pow(0.85), n=transform_samples)  # Povey's window
    spectrum = spectrum[:, :-1]  # no mel filter reaches the Nyquist bin
    return torch.cat([spectrum.real, spectrum.imag], dim=1)


def _mel_matrix(sample_rate: int, bins: int, num_mels: int, lowest_hertz: float) -> Tensor:
    """The matrix (bins, num_mels) of triangular filters, equally spaced on Kaldi's mel scale."""

    def mel(hertz: Tensor) -> Tensor:
        return 1127.0 * torch.log1p(hertz / 700.0)

    lowest, highest = mel(torch.tensor([lowest_hertz, sample_rate / 2], dtype=torch.float64))
    edges = (
        torch.linspace(0.0, 1.0, num_mels + 2, dtype=torch.float64) * (highest - lowest) + lowest
    )
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    hertz = torch.arange(bins, dtype=torch.float64) * sample_rate / (2 * bins)
    position = mel(hertz)[:, None]
    rising, falling = (position - left) / (centre - left), (right - position) / (right - centre)
    return torch.minimum(rising, falling).clamp(min=0.0)
