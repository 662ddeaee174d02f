"""Laws of the checks before somebody is enrolled."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from torch import nn

from simple_spk.evaluation.calibration import Calibration
from simple_spk.inference.decisions import quality_warnings
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.model_folder import load_model
from simple_spk.inference.voice_stores.enrollment_checks import (
    EnrollmentLimits,
    disagreeing,
    repeated,
)
from simple_spk.inference.voice_stores.voice import Voice
from simple_spk.models.similarity import CosineSimilarity


def voice(*numbers: float, recordings: int = 1) -> Voice:
    return Voice(np.array(numbers, np.float32), recordings, 2.0 * recordings)


def product(first: Voice, second: Voice) -> float:
    return float(first.embedding @ second.embedding)


def test_a_recording_is_compared_with_the_mean_of_all_others() -> None:
    limits = EnrollmentLimits(0.0, 1.0, False)
    pairs = []

    def likeness(first: Voice, second: Voice) -> float:
        pairs.append((first, second))
        return product(first, second)

    parts = [("known", voice(1, 0, recordings=3)), ("a", voice(0.9, 0.1)), ("b", voice(-0.5, 0.1))]
    (sentence,) = disagreeing(parts, limits, likeness)
    assert sentence.startswith("b sounds unlike the other recordings (score -0.4")
    known, rest = pairs[0]
    assert known is parts[0][1] and rest[1:3] == (2, 4.0)
    np.testing.assert_allclose(rest.embedding, [0.2, 0.1], atol=1e-7)
    np.testing.assert_allclose(pairs[2][1].embedding, [3.9 / 4, 0.1 / 4], atol=1e-7)
    assert disagreeing(parts[:1], limits, likeness) == []
    assert disagreeing(parts[:2], limits, likeness) == []


def test_every_repetition_is_named_once() -> None:
    parts = [("a", voice(1, 2)), ("b", voice(1, 3)), ("c", voice(1, 2)), ("d", voice(1, 2))]
    assert repeated(parts[:2]) == []
    assert repeated(parts) == ["a and c are the same recording", "a and d are the same recording"]


@pytest.fixture(scope="module")
def spoken(
    noisy_tone: Callable[..., NDArray[np.float32]], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Recordings of equal length, a0, a1 (one voice) and c0, c1 (another)."""
    folder = tmp_path_factory.mktemp("spoken")
    for name, hertz, seed in (("a0", 90, 0), ("a1", 90, 1), ("c0", 260, 2), ("c1", 260, 3)):
        soundfile.write(folder / f"{name}.wav", noisy_tone(3.2, hertz, seed), 16000)
    return sorted(folder.iterdir())


class Centered(nn.Module):
    """An encoder without the part that all embeddings of an untrained one share."""

    def __init__(self, encoder: nn.Module, mean: NDArray[np.float32]) -> None:
        super().__init__()
        self.encoder, self.mean = encoder, torch.from_numpy(mean)

    def forward(self, *features: torch.Tensor) -> torch.Tensor:
        return self.encoder(*features) - self.mean


@pytest.fixture
def judge(model_folder: Path, spoken: list[Path]) -> Extractor:
    """An extractor that tells a0, a1 (ratio e^10) from c0, c1 (at most e^-10)."""
    model, similarity = load_model(model_folder), CosineSimilarity()
    mean = Extractor(model).embed(spoken).mean(axis=0)
    encoder = Centered(model.encoder, mean)
    model = model._replace(encoder=encoder, similarity=similarity, fingerprint="a judge")
    embeddings = torch.from_numpy(Extractor(model).embed(spoken))
    scores = similarity(embeddings, embeddings).numpy()
    same, different = min(scores[0, 1], scores[2, 3]), scores[:2, 2:].max()
    slope = 20.0 / float(same - different)
    assert slope > 0
    rates = ((0.1, 2.0), (0.01, 4.0))
    offset = 10.0 - slope * float(same)
    calibration = Calibration(slope, offset, {}, 0.5, "list", 1000, 10, rates)
    return Extractor(model._replace(calibration=calibration))


def test_two_people_under_one_name_are_refused(judge: Extractor, spoken: list[Path]) -> None:
    for recordings in ([spoken[0], spoken[2]], [*spoken[:2], spoken[2]]):
        with pytest.raises(ValueError, match=r"Ann is not enrolled: .*c0\.wav sounds unlike"):
            judge.enroll("Ann", recordings)
    assert "Ann" not in judge.voices
    assert judge.enroll("Ann", spoken[:2]).recordings == 2
    with pytest.raises(ValueError, match=r"c0\.wav sounds unlike the other recordings"):
        judge.enroll("Ann", spoken[2])
    assert judge.voices["Ann"].recordings == 2


def test_a_second_name_is_refused(judge: Extractor, spoken: list[Path]) -> None:
    judge.enroll("Ann", spoken[0])
    judge.enroll("Cid", spoken[2])
    with pytest.raises(
        ValueError, match=r"sounds like Ann, who is enrolled \(likelihood ratio e\^"
    ):
        judge.enroll("Anna", spoken[1])
    judge.enroll("Ann", spoken[1])  # her own name is no second one
    assert list(judge.voices) == ["Ann", "Cid"]


def test_the_same_recording_twice_is_refused(
    judge: Extractor, spoken: list[Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.flac"
    soundfile.write(copy, *soundfile.read(spoken[0], dtype="int16"))
    with pytest.raises(ValueError, match=r"a0\.wav and .*copy\.flac are the same recording"):
        judge.enroll("Ann", [spoken[0], spoken[1], copy])
    judge.enroll("Ann", spoken[0])
    with pytest.raises(ValueError, match=r"what is enrolled and .*copy\.flac are the same"):
        judge.enroll("Ann", copy)


def test_force_enrolls_and_says_what_was_wrong(
    judge: Extractor, spoken: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        judge.enroll("Ann", [spoken[0], spoken[2], spoken[2]], force=True)
    assert judge.voices["Ann"].recordings == 3
    assert "Ann is enrolled although" in caplog.text and "are the same recording" in caplog.text
    assert "sounds unlike the other recordings" in caplog.text


@pytest.mark.parametrize("threshold", [1e9, -1e9])
def test_a_model_without_calibration_uses_its_threshold(
    threshold: float, judge: Extractor, spoken: list[Path]
) -> None:
    extractor = Extractor(judge.model._replace(calibration=None, threshold=threshold))
    if threshold > 0:
        with pytest.raises(ValueError, match=r"sounds unlike the other recordings \(score "):
            extractor.enroll("Ann", spoken[:2])
    extractor.enroll("Ann", spoken[0])
    if threshold < 0:
        with pytest.raises(ValueError, match=r"sounds like Ann, who is enrolled \(score "):
            extractor.enroll("Bob", spoken[2])
    undecided: Callable[..., Voice] = Extractor(extractor.model._replace(threshold=None)).enroll
    assert undecided("Ann", [spoken[0], spoken[2]]).recordings == 2


def test_two_speakers_in_one_recording_are_noticed(
    judge: Extractor, noisy_tone: Callable[..., NDArray[np.float32]]
) -> None:
    low, other_low, high = (
        noisy_tone(3.2, hertz, seed) for hertz, seed in ((90, 4), (90, 5), (260, 6))
    )
    alone, together = np.concatenate([low, other_low]), np.concatenate([low, high])
    decision = judge.verify(alone, together, sample_rate=16000)
    (one,), (two,) = decision.qualities
    assert "perhaps more than one speaker" in quality_warnings(two)
    assert "perhaps more than one speaker" not in quality_warnings(one)
    assert one.part_ratio is not None and two.part_ratio is not None
    assert one.part_ratio > two.part_ratio
    (short,), _ = judge.verify(low, high, sample_rate=16000).qualities
    assert short.part_ratio is None
