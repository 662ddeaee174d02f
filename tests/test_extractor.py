"""Laws of the extractor: an answer depends on the recordings in question alone."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from simple_spk.audio import AudioError, read_recording
from simple_spk.extractor import Extractor
from simple_spk.fbank import Fbank
from simple_spk.loss import SimPLELoss
from simple_spk.model import Model, trained_model
from simple_spk.model_folder import save_model
from simple_spk.resnet import ResNet
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct

Parts = tuple[Fbank, ResNet, SimPLELoss]


@pytest.fixture
def extractor(model_folder: Path) -> Extractor:
    return Extractor.load(model_folder)


def relative_error(found: NDArray, expected: NDArray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_answers_do_not_depend_on_batches_or_earlier_calls(
    extractor: Extractor, recordings: list[Path]
) -> None:
    first = extractor.embed(recordings)
    assert first.shape == (6, 16)
    assert first.dtype == np.float32
    alone = np.concatenate([extractor.embed([path]) for path in recordings])
    small = extractor.embed(recordings, batch_seconds=1.5)
    backwards = extractor.embed(recordings[::-1])[::-1]
    for other in (alone, small, backwards):
        for row, expected in zip(other, first, strict=True):
            assert relative_error(row, expected) < 1e-4
    assert np.array_equal(extractor.embed(recordings), first)
    distances = [relative_error(a, b) for a, b in combinations(first, 2)]
    assert min(distances) > 1e-2  # the recordings are not all the same to it


def test_embedding_files_is_embedding_their_waveforms(
    extractor: Extractor, recordings: list[Path]
) -> None:
    waveform = torch.from_numpy(read_recording(recordings[0]))
    found = extractor.embed_waveforms(waveform[None])
    assert not found.requires_grad
    assert relative_error(found.numpy(), extractor.embed(recordings[:1])) < 1e-5


def test_an_extractor_of_a_model_in_training_answers_the_same(
    tiny_model: Parts, extractor: Extractor, recordings: list[Path]
) -> None:
    """Dither and BatchNorm would make answers depend on chance and on batches."""
    front_end, encoder, loss = tiny_model
    model = Model(front_end.train(), encoder.train(), loss.similarity, None)
    found = Extractor(model).embed(recordings)
    assert relative_error(found, extractor.embed(recordings)) < 1e-4


def test_recordings_of_another_rate_are_brought_to_the_models(
    extractor: Extractor, recordings: list[Path], tmp_path: Path
) -> None:
    """A recording that was made at 8 kHz is the same at 16 kHz, as read_recording brings it."""
    waveform = read_recording(recordings[0], 8000)
    soundfile.write(tmp_path / "8.wav", waveform, 8000, subtype="FLOAT")
    soundfile.write(tmp_path / "16.wav", read_recording(tmp_path / "8.wav"), 16000, subtype="FLOAT")
    low, high = extractor.embed([tmp_path / "8.wav", tmp_path / "16.wav"])
    assert relative_error(low, high) < 1e-4


@pytest.mark.parametrize("similarity", [GeneralizedInnerProduct(), CosineSimilarity()])
def test_a_score_is_the_similarity_and_symmetric(
    similarity: torch.nn.Module, tiny_model: Parts, recordings: list[Path]
) -> None:
    extractor = Extractor(Model(*tiny_model[:2], similarity, None))
    embeddings = torch.from_numpy(extractor.embed(recordings))
    expected = similarity(embeddings, embeddings)
    for i, j in combinations(range(4), 2):
        score = extractor.verify(recordings[i], recordings[j]).score
        assert score == pytest.approx(float(expected[i, j]), rel=1e-3, abs=1e-5)
        back = extractor.verify(recordings[j], recordings[i]).score
        assert back == pytest.approx(score, rel=1e-4, abs=1e-6)


def test_no_recording_resembles_two_recordings_more_than_they_themselves(
    extractor: Extractor, recordings: list[Path]
) -> None:
    """S(a, a) + S(b, b) >= 2 S(a, b) for every generalized inner product with b_theta <= 1."""
    selves = [extractor.verify(path, path).score for path in recordings[:3]]
    for i, j in combinations(range(3), 2):
        other = extractor.verify(recordings[i], recordings[j]).score
        assert selves[i] + selves[j] > 2 * other


def test_decisions_follow_the_threshold(tiny_model: Parts, recordings: list[Path]) -> None:
    front_end, encoder, loss = tiny_model
    first, second = recordings[:2]
    score = Extractor(Model(front_end, encoder, loss.similarity, None)).verify(first, second).score
    for threshold, accepted in ((score - 0.1, True), (score + 0.1, False), (None, None)):
        model = Model(front_end, encoder, loss.similarity, threshold)
        verdict = Extractor(model).verify(first, second)
        assert verdict.accepted is accepted
        assert verdict.threshold == threshold


def test_a_saved_threshold_is_used(
    tiny_model: Parts, recordings: list[Path], tmp_path: Path
) -> None:
    """A pair is accepted if S + b > 0."""
    front_end, encoder, loss = tiny_model
    for bias in (-1e6, 1e6):
        torch.nn.init.constant_(loss.bias, bias)
        save_model(tmp_path / "model", trained_model(front_end, encoder, loss))
        assert Extractor.load(tmp_path / "model").verify(*recordings[:2]).accepted is (bias > 0)


def test_a_recording_that_is_too_short_is_named_in_any_company(
    extractor: Extractor, recordings: list[Path], tmp_path: Path
) -> None:
    """Less than one frame has no embedding, alone or beside longer recordings."""
    short = tmp_path / "short.wav"
    soundfile.write(short, np.zeros(399, dtype=np.float32), 16000)
    with pytest.raises(ValueError, match=r"short\.wav"):
        extractor.embed([*recordings[:2], short])
    with pytest.raises(ValueError, match=r"short\.wav"):
        extractor.embed([short])


def test_digital_silence_within_a_recording_does_no_harm(
    extractor: Extractor, tmp_path: Path, noisy_tone: Callable[..., NDArray[np.float32]]
) -> None:
    silence, half = tmp_path / "silence.wav", tmp_path / "half.wav"
    soundfile.write(silence, np.zeros(8000, dtype=np.float32), 16000)
    soundfile.write(half, np.concatenate([noisy_tone(0.5), np.zeros(8000)]), 16000)
    assert np.isfinite(extractor.embed([half])).all()
    with pytest.raises(AudioError, match=r"silence\.wav is silent"):
        extractor.embed([half, silence])


def test_a_missing_recording_is_named(extractor: Extractor, recordings: list[Path]) -> None:
    with pytest.raises(AudioError, match=r"missing\.wav"):
        extractor.embed([*recordings, "missing.wav"])


def test_no_recordings_at_all_are_called_so(extractor: Extractor) -> None:
    with pytest.raises(ValueError, match="no recordings"):
        extractor.embed([])
