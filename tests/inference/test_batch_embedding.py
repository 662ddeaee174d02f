"""Laws of embedding whole recordings: order, batches and padding do not show in the answer."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.data.audio import AudioError, duration_seconds, read_recording
from simple_spk.inference import batch_embedding as recordings_module
from simple_spk.inference.batch_embedding import (
    ASKED_AHEAD,
    ExtractionOptions,
    ask_all,
    embed_recordings,
    embedded_batches,
    length_batches,
    windows,
)
from simple_spk.inference.speech_quality import QualityMeter
from tools.write_m4a import write_m4a


def describe(waveforms: Tensor, lengths: Tensor) -> Tensor:
    """A stand-in for a model: length, energy and last sample, all blind to padding."""
    last = waveforms.gather(1, lengths[:, None] - 1)[:, 0]
    return torch.stack([lengths.float(), waveforms.square().sum(dim=1), last], dim=1)


@pytest.mark.parametrize("batch_seconds", [0.001, 1.5, 2.0, 1000.0])
def test_the_order_is_kept_and_batches_do_not_matter(
    batch_seconds: float, recordings: list[Path]
) -> None:
    shuffled = [recordings[number] for number in (3, 0, 5, 1, 4, 2, 0)]
    found = embed_recordings(shuffled, describe, ExtractionOptions(batch_seconds=batch_seconds))
    assert found.dtype == np.float32
    for path, row in zip(shuffled, found, strict=True):
        waveform = torch.from_numpy(read_recording(path))
        alone = describe(waveform[None], torch.tensor([len(waveform)]))[0]
        np.testing.assert_allclose(row, alone, rtol=1e-5)


def test_durations_that_are_given_are_believed_and_change_nothing(recordings: list[Path]) -> None:
    found = embed_recordings(recordings, describe, ExtractionOptions(batch_seconds=1.5))
    order = []

    def noting(waveforms: Tensor, lengths: Tensor) -> Tensor:
        order.extend(lengths.tolist())
        return describe(waveforms, lengths)

    wrong = np.array([1.0, 6.0, 2.0, 5.0, 3.0, 4.0])
    options = ExtractionOptions(batch_seconds=0.1, durations_seconds=wrong)
    again = embed_recordings(recordings, noting, options)
    np.testing.assert_allclose(again, found, rtol=1e-5)
    assert order == found[np.argsort(-wrong), 0].tolist()  # longest first, by what was said


def test_a_recording_too_short_is_named_whatever_its_duration_is_said_to_be(
    recordings: list[Path], tmp_path: Path
) -> None:
    short = tmp_path / "short.wav"
    soundfile.write(short, np.linspace(-0.5, 0.5, 399), 16000)
    for durations in (None, np.array([1.0, 1.0])):
        with pytest.raises(AudioError, match=r"short\.wav lasts 24\.9 ms"):
            options = ExtractionOptions(durations_seconds=durations)
            embed_recordings([recordings[0], short], describe, options)
    soundfile.write(short, np.linspace(-0.5, 0.5, 400), 16000)
    assert len(embed_recordings([short], describe)) == 1


def test_files_are_asked_together_and_answer_in_order(recordings: list[Path]) -> None:
    everyone = threading.Barrier(len(recordings))  # nobody answers before all are asked

    def name(path: Path) -> str:
        everyone.wait(timeout=60)
        return path.name

    assert ask_all(name, recordings, "names") == [path.name for path in recordings]
    seconds = ask_all(duration_seconds, recordings, "durations")
    assert seconds == [soundfile.info(path).duration for path in recordings]


def test_files_are_asked_a_few_at_a_time_however_many_there_are() -> None:
    class Numbers(Sequence[int]):
        drawn = 0

        def __len__(self) -> int:
            return 20 * ASKED_AHEAD

        def __getitem__(self, place: Any) -> int:
            if place >= len(self):
                raise IndexError
            self.drawn = max(self.drawn, place)
            return place

    numbers = Numbers()
    ahead = ask_all(lambda number: (number, numbers.drawn - number), numbers, "numbers", False)
    assert [number for number, _ in ahead] == list(range(len(numbers)))
    assert max(distance for _, distance in ahead) <= ASKED_AHEAD


def test_the_number_of_readers_changes_nothing(recordings: list[Path]) -> None:
    options = ExtractionOptions(batch_seconds=1.5, workers=1)
    one = embed_recordings(recordings, describe, options)
    for workers in (0, 5):
        options = ExtractionOptions(batch_seconds=1.5, workers=workers, progress=True)
        many = embed_recordings(recordings, describe, options)
        assert np.array_equal(one, many)
    with pytest.raises(ValueError, match="0 or more, not -1"):
        embed_recordings(recordings, describe, ExtractionOptions(workers=-1))


def test_the_next_recordings_are_read_while_a_batch_is_computed(
    recordings: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without being asked: the second is read although the first embedding is not done."""
    second_is_read = threading.Event()
    original = recordings_module.recording_blocks

    def noting(path: Path, *more: float) -> Iterator[NDArray[np.float32]]:
        yield from original(path, *more)
        if path == recordings[-2]:  # the longest but one
            second_is_read.set()

    def wait_for_second(waveforms: Tensor, lengths: Tensor) -> Tensor:
        assert second_is_read.wait(timeout=60)
        return describe(waveforms, lengths)

    monkeypatch.setattr(recordings_module, "recording_blocks", noting)
    embed_recordings(recordings, wait_for_second, ExtractionOptions(batch_seconds=0.1))


def test_recordings_are_brought_to_the_rate_asked_for(recordings: list[Path]) -> None:
    full = embed_recordings(recordings, describe)[:, 0]
    half = embed_recordings(recordings, describe, ExtractionOptions(sample_rate=8000))[:, 0]
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


@pytest.mark.parametrize("samples", [1, 99, 100, 101, 199, 200, 201, 300, 999])
@pytest.mark.parametrize("block", [1, 7, 100, 250, 5000])
def test_windows_are_the_waveform_cut_and_do_not_depend_on_blocks(samples: int, block: int) -> None:
    waveform = np.arange(samples, dtype=np.float32)
    blocks = [waveform[start : start + block] for start in range(0, samples, block)]
    found = list(windows(blocks, 100))
    assert np.array_equal(np.concatenate(found), waveform)
    sizes = [len(window) for window in found]
    assert sizes == [len(window) for window in windows([waveform], 100)]
    assert max(sizes) <= 100
    assert samples <= 100 or min(sizes) >= 50
    assert len(sizes) == -(-samples // 100)  # no more windows than it takes


@pytest.mark.parametrize("suffix", ["wav", "flac", "m4a"])
@pytest.mark.parametrize("batch_seconds", [0.1, 1.0, 100.0])
def test_a_long_recording_is_the_mean_of_its_windows(
    suffix: str, batch_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weighted by their lengths, beside other recordings, and without its silent windows."""
    monkeypatch.setattr(recordings_module, "WINDOW_SECONDS", 0.5)
    dice = np.random.default_rng(0)
    waveform = (0.1 * dice.standard_normal(31000)).astype(np.float32)
    waveform[8000:16000] = 0.0  # the second window
    path, short = tmp_path / f"long.{suffix}", tmp_path / "short.wav"
    if suffix == "m4a":
        write_m4a(path, waveform)
    else:
        soundfile.write(path, waveform, 16000)
    soundfile.write(short, waveform[:7000], 16000)
    whole = read_recording(path)
    parts = [torch.from_numpy(part.copy()) for part in windows([whole], 8000)]
    assert len(parts) >= 4
    parts = [part for part in parts if part.min() < part.max()]
    rows = torch.cat([describe(part[None], torch.tensor([len(part)])) for part in parts])
    weights = torch.tensor([float(len(part)) for part in parts])
    expected = (weights @ rows) / weights.sum()
    meter = QualityMeter(16000)
    meter.add(whole)
    options = ExtractionOptions(batch_seconds=batch_seconds, with_quality=True)
    for sources in ([path], [short, path, short]):
        for durations in (None, np.full(len(sources), 0.3)):  # a wrong one, too
            answers = {
                index: (row, quality)
                for batch in embedded_batches(
                    sources, describe, replace(options, durations_seconds=durations)
                )
                for index, row, quality in zip(
                    batch.indexes, batch.embeddings, batch.qualities, strict=True
                )
            }
            assert sorted(answers) == list(range(len(sources)))
            row, quality = answers[sources.index(path)]
            np.testing.assert_allclose(row, expected, rtol=1e-5)
            assert quality.sample_rate == (16000 if durations is None else None)
            expected_quality = meter.quality()._replace(
                embedding_length=quality.embedding_length, sample_rate=quality.sample_rate
            )
            assert quality == pytest.approx(expected_quality)


def test_unusable_recordings_are_named_and_the_others_embedded(
    recordings: list[Path], tmp_path: Path
) -> None:
    bad = {
        "missing.wav": "no audio file at",
        "text.wav": "not readable audio|no known audio",
        "silent.wav": "is silent",
        "constant.wav": "is silent",
        "short.wav": "less than one frame",
        "cut.flac": "breaks off|promises|not readable",
    }
    (tmp_path / "text.wav").write_text("not audio")
    soundfile.write(tmp_path / "silent.wav", np.zeros(16000), 16000)
    soundfile.write(tmp_path / "constant.wav", np.full(16000, 0.3), 16000)
    soundfile.write(tmp_path / "short.wav", np.linspace(-0.5, 0.5, 300), 16000)
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 32000)
    soundfile.write(tmp_path / "cut.flac", noise, 16000)
    content = (tmp_path / "cut.flac").read_bytes()
    (tmp_path / "cut.flac").write_bytes(content[: len(content) // 2])
    sources = [*recordings, *(tmp_path / name for name in bad)]
    batches = list(embedded_batches(sources, describe, ExtractionOptions(batch_seconds=1.0)))
    done = [index for batch in batches for index in batch.indexes]
    assert sorted(done) == list(range(len(recordings)))
    errors = {index: error for batch in batches for index, error in batch.errors.items()}
    for index, (name, words) in enumerate(bad.items(), start=len(recordings)):
        assert isinstance(errors.pop(index), AudioError), name
        with pytest.raises(AudioError, match=rf"(?s){name}.*|{words}"):
            embed_recordings([recordings[0], tmp_path / name], describe)
    assert not errors


def test_a_generator_that_is_left_early_leaves_no_threads(recordings: list[Path]) -> None:
    before = threading.active_count()
    batches = embedded_batches(recordings, describe, ExtractionOptions(batch_seconds=0.1))
    next(batches)
    batches.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("seconds", [1.0, 130.0])
def test_channels_that_cancel_are_not_called_silent(seconds: float, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, round(seconds * 16000)).astype(np.float32)
    stereo = np.stack([noise, -noise])
    soundfile.write(tmp_path / "stereo.wav", stereo.T, 16000)
    for recording in (tmp_path / "stereo.wav", stereo):
        with pytest.raises(AudioError, match="channels that cancel each other"):
            embed_recordings([recording], describe, ExtractionOptions(source_rate=16000))
    with pytest.raises(AudioError, match="is silent"):
        embed_recordings([0.0 * stereo], describe, ExtractionOptions(source_rate=16000))


def test_a_long_recording_has_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    def slowly(waveforms: Tensor, lengths: Tensor) -> Tensor:
        time.sleep(0.7)
        return describe(waveforms, lengths)

    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 6 * 60 * 16000).astype(np.float32)
    embed_recordings([noise], slowly, ExtractionOptions(source_rate=16000, progress=True))
    assert "long recording" in (bar := capsys.readouterr().err) and "/6 " in bar
