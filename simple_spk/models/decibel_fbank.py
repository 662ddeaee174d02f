"""SpeechBrain's log-mel energies of batches, for encoders that were trained with them.

Written by hand because its filterbank knows no lengths: padding would move the floor of a recording
and change its last frames.
"""

import torch
from torch import Tensor
from torch.nn import functional

from simple_spk import SAMPLE_RATE
from simple_spk.models.fbank import Fbank
from simple_spk.models.saved_arguments import remember_arguments

LEAST_ENERGY = 1e-10
RANGE_DECIBEL = 80.0  # below the loudest energy of a recording


@remember_arguments
class DecibelFbank(Fbank):
    """Log-mel energies of waveforms in decibels, minus their mean over time.

    Frames of 25 ms lie around every tenth millisecond, the first around the first sample; zeros
    surround a recording. There is no pre-emphasis and no dither.
    """

    def __init__(self, sample_rate: int = SAMPLE_RATE, num_mels: int = 80) -> None:
        super().__init__(sample_rate, num_mels, lowest_hertz=0.0, dither=0.0)
        self.transform_samples = self.frame_samples
        self.window = torch.hamming_window(self.frame_samples, dtype=torch.float64)
        self.mel = _mel_matrix(sample_rate, self.frame_samples // 2, num_mels).float()

    def num_frames(self, samples: Tensor) -> Tensor:
        """Numbers of frames in recordings of so many samples."""
        return 1 + samples // self.shift_samples

    def padded(self, waveforms: Tensor, lengths: Tensor | None) -> Tensor:
        """Waveforms between zeros of half a frame, with zeros after their ends."""
        if lengths is not None:
            positions = torch.arange(waveforms.shape[1], device=waveforms.device)
            waveforms = waveforms * (positions < lengths[:, None])
        half = self.frame_samples // 2
        return functional.pad(waveforms, (half, half))

    def spectrum(self, waveforms: Tensor) -> Tensor:
        """Spectra (n, frames, bins, 2), real and imaginary, of the frames of waveforms."""
        frames = waveforms.unfold(-1, self.frame_samples, self.shift_samples)
        frames = frames * self.window.to(waveforms.dtype)
        return torch.view_as_real(torch.fft.rfft(frames, n=self.transform_samples))

    def logarithms(self, energies: Tensor) -> Tensor:
        """Log-mel energies (n, frames, num_mels) in decibels, none far below the loudest."""
        decibels = 10.0 * energies.clamp(min=LEAST_ENERGY).log10()
        return decibels.maximum(decibels.amax(dim=(1, 2), keepdim=True) - RANGE_DECIBEL)


def _mel_matrix(sample_rate: int, bins: int, num_mels: int) -> Tensor:
    """The matrix (bins, num_mels) of filters, triangles as wide to the right as to the left."""
    highest = 2595.0 * torch.tensor(1.0 + sample_rate / 2 / 700.0).double().log10()
    mels = torch.linspace(0.0, 1.0, num_mels + 2, dtype=torch.float64) * highest
    edges = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    hertz = torch.arange(bins, dtype=torch.float64) * sample_rate / (2 * bins)
    distances = (hertz[:, None] - edges[1:-1]) / (edges[1:-1] - edges[:-2])
    return (1.0 - distances.abs()).clamp(min=0.0)
