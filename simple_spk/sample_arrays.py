"""Recordings that are in memory already, as arrays or tensors of any kind of number."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.audio import BLOCK_SAMPLES, resampled
from simple_spk.decoding import AudioError, check_rate, check_samples

Samples = NDArray | Tensor  # (samples,) or (channels, samples)
MOST_CHANNELS = 256  # more are samples, and the array is turned round


def array_seconds(samples: Samples, name: str, source_rate: int) -> float:
    """The length of a recording in memory."""
    check_rate(name, source_rate)
    return samples.shape[-1] / source_rate if samples.ndim else 0.0


def array_blocks(
    samples: Samples, name: str, source_rate: int, sample_rate: int
) -> Iterator[NDArray[np.float32]]:
    """A recording in memory as blocks (samples,), its channels averaged, at the rate asked for.

    Floats are in [-1, 1]; integers of 8, 16 or 32 bits are scaled by their full range.
    """
    check_rate(name, source_rate)
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and len(samples) > MOST_CHANNELS):
        raise AudioError(
            f"{name} has the shape {tuple(samples.shape)}: expected (samples,) or (channels, "
            f"samples), at most {MOST_CHANNELS} channels"
        )
    channels = samples if samples.ndim == 2 else samples[None]
    if not channels.shape[0] * channels.shape[1]:
        raise AudioError(f"{name} holds no samples, its shape is {tuple(samples.shape)}")
    step = max(1, BLOCK_SAMPLES // len(channels))
    starts = range(0, channels.shape[1], step)
    blocks = (_block(channels[:, start : start + step], name) for start in starts)
    yield from resampled(blocks, source_rate, sample_rate)


def _block(channels: Samples, name: str) -> NDArray[np.float32]:
    """The mean (samples,) of channels (channels, samples), with full scale at one."""
    if isinstance(channels, Tensor):
        channels = channels.detach().cpu()
        channels = (channels.float() if channels.dtype == torch.bfloat16 else channels).numpy()
    kind, offset = channels.dtype, 0.0
    if kind.kind in "iu" and kind.itemsize <= 4:
        full_range = 2.0 ** (8 * kind.itemsize - 1)
        offset = full_range if kind.kind == "u" else 0.0
    elif kind.kind == "f":
        full_range = 1.0
    else:
        raise AudioError(
            f"{name} holds samples of the type {kind}: expected floats in [-1, 1] or integers of "
            "8, 16 or 32 bits, which use their full range"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # which the check finds
        mean = channels.mean(axis=0, dtype=np.float64 if kind.itemsize > 2 else np.float32)
        waveform = ((mean - offset) / full_range).astype(np.float32)
    check_samples(name, waveform)
    return waveform
