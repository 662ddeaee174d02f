"""Laws of embedding whole recordings: order, batches and padding do not show in the answer."""

import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from simple_spk.audio import AudioError, read_recording
from simple_spk.recordings import ask_all, embed_recordings, length_batches, recording_seconds


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


def test_durations_that_are_given_are_believed_and_change_nothing(recordings: list[Path]) -> None:
    found = embed_recordings(recordings, describe, batch_seconds=1.5, progress=False)
    order = []

    def noting(waveforms: Tensor, lengths: Tensor) -> Tensor:
        order.extend(lengths.tolist())
        return describe(waveforms, lengths)

    wrong = np.array([1.0, 6.0, 2.0, 5.0, 3.0, 4.0])
    options = {"batch_seconds": 0.1, "progress": False, "durations_seconds": wrong}
    again = embed_recordings(recordings, noting, **options)
    np.testing.assert_allclose(again, found, rtol=1e-5)
    assert order == found[np.argsort(-wrong), 0].tolist()  # longest first, by what was said


def test_a_recording_too_short_is_named_whatever_its_duration_is_said_to_be(
    recordings: list[Path], tmp_path: Path
) -> None:
    short = tmp_path / "short.wav"
    soundfile.write(short, np.linspace(-0.5, 0.5, 399), 16000)
    for durations in (None, np.array([1.0, 1.0])):
        with pytest.raises(AudioError, match=r"short\.wav lasts 24\.9 ms"):
            embed_recordings(
                [recordings[0], short], describe, progress=False, durations_seconds=durations
            )
    soundfile.write(short, np.linspace(-0.5, 0.5, 400), 16000)
    assert len(embed_recordings([short], describe, progress=False)) == 1


def test_files_are_asked_together_and_answer_in_order(recordings: list[Path]) -> None:
    everyone = threading.Barrier(len(recordings))  # nobody answers before all are asked

    def name(path: Path) -> str:
        everyone.wait(timeout=60)
        return path.name

    assert ask_all(name, recordings, "names") == [path.name for path in recordings]
    seconds = recording_seconds(recordings)
    assert seconds.tolist() == [soundfile.info(path).duration for path in recordings]


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
