"""Laws of embedding whole recordings: order, batches and padding do not show in the answer."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from simple_spk.audio import read_recording
from simple_spk.recordings import embed_recordings, length_batches


def describe(waveforms: Tensor, lengths: Tensor) -> Tensor:
    """A stand-in for a model: length, energy and last sample, all blind to padding."""
    last = waveforms.gather(1, lengths[:, None] - 1)[:, 0]
    return torch.stack([lengths.float(), waveforms.square().sum(dim=1), last], dim=1)


@pytest.mark.parametrize("batch_seconds", [0.001, 1.5, 2.0, 1000.0])
def test_the_order_is_kept_and_batches_do_not_matter(
    batch_seconds: float, recordings: list[Path]
) -> None:
    shuffled = [recordings[number] for number in (3, 0, 5, 1, 4, 2, 0)]
    found = embed_recordings(shuffled, describe, batch_seconds=batch_seconds, progress=False)
    assert found.dtype == np.float32
    for path, row in zip(shuffled, found, strict=True):
        waveform = torch.from_numpy(read_recording(path))
        alone = describe(waveform[None], torch.tensor([len(waveform)]))[0]
        np.testing.assert_allclose(row, alone, rtol=1e-5)


def test_readers_in_other_processes_change_nothing(recordings: list[Path]) -> None:
    here = embed_recordings(recordings, describe, batch_seconds=1.5, progress=False)
    there = embed_recordings(recordings, describe, batch_seconds=1.5, workers=1, progress=False)
    assert np.array_equal(here, there)


def test_recordings_are_brought_to_the_rate_asked_for(recordings: list[Path]) -> None:
    full = embed_recordings(recordings, describe, progress=False)[:, 0]
    half = embed_recordings(recordings, describe, sample_rate=8000, progress=False)[:, 0]
    assert np.array_equal(half, np.ceil(full / 2))


@pytest.mark.parametrize("bound", [0.5, 3.0, 10.0, 1e6])
def test_batches_are_bounded_and_whole(bound: float) -> None:
    durations = np.random.default_rng(0).uniform(0.3, 8.0, 200)
    batches = length_batches(durations, bound)
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    for batch in batches:
        padded = len(batch) * durations[batch].max()
        assert padded <= bound or len(batch) == 1
    for batch, following in pairwise(batches):
        assert durations[batch].min() >= durations[following].max()
        assert (len(batch) + 1) * durations[batch].max() > bound  # no room was left


def test_no_recordings_make_no_batches() -> None:
    assert length_batches(np.zeros(0), 10.0) == []
