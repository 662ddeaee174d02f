"""From a trial list to error rates."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from simple_spk.data.manifest import write_manifest
from simple_spk.data.trials import Trials
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.quality_measures import quality_measures
from simple_spk.evaluation.score_files import read_scores
from simple_spk.evaluation.score_norm import cohort_statistics, normalize
from simple_spk.evaluation.scoring import score_trials, similarity_in_words
from simple_spk.inference.trial_evaluation import (
    EmbeddingSource,
    EvaluationOptions,
    VerificationEvaluation,
    evaluate_trials,
    locate_recordings,
)
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity


def make_trials(recordings: int = 9, count: int = 50, labeled: bool = True) -> Trials:
    generator = np.random.default_rng(0)
    enroll, test = generator.integers(0, recordings, (2, count)).astype(np.int32)
    is_target = np.arange(count) % 3 == 0 if labeled else None
    return Trials([f"r{n}" for n in range(recordings)], enroll, test, is_target)


def given(seconds: dict[str, float] | None = None) -> EmbeddingSource:
    """Embeddings of the recordings of ``make_trials``, and their durations."""
    matrix = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    embeddings = Embeddings([f"r{n}" for n in range(9)], matrix)
    return EmbeddingSource(lambda: embeddings, None if seconds is None else lambda: seconds)


@pytest.mark.parametrize("similarity", [CosineSimilarity(), GeneralizedInnerProduct(0.3, True)])
@pytest.mark.parametrize("block", [1, 7, 50, 1000])
def test_scores_are_those_of_a_loop_whatever_the_block(similarity: Similarity, block: int) -> None:
    trials = make_trials()
    embeddings = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    table = torch.from_numpy(embeddings)
    expected = [
        float(similarity(table[i][None], table[j][None]).detach())
        for i, j in zip(trials.enroll, trials.test, strict=True)
    ]
    actual = score_trials(trials, embeddings, similarity, block)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_similarities_are_called_by_name() -> None:
    assert similarity_in_words(CosineSimilarity()) == "cosine"
    words = similarity_in_words(GeneralizedInnerProduct(0.25))
    assert words == "generalized inner product, b_theta 0.25"


def test_a_list_without_labels_is_counted_not_judged() -> None:
    (result,) = evaluate_trials([make_trials(labeled=False)], given(), CosineSimilarity())
    assert result.summary["trials"] == 50 and "eer" not in result.summary


def test_recordings_are_sought_in_one_place_only(tmp_path: Path) -> None:
    trials = tmp_path / "trials.txt"
    trials.write_text("1 a.wav b.wav\n0 a.wav c.wav\n")
    with pytest.raises(ValueError, match="either a manifest or an audio_folder"):
        VerificationEvaluation(trials)
    with pytest.raises(ValueError, match=r"3 of 3 recordings .*a\.wav at "):
        VerificationEvaluation(trials, audio_folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        VerificationEvaluation(trials, audio_folder=tmp_path / "nowhere")
    write_manifest(tmp_path / "m.csv", ["a.wav"], ["a.wav"], [1.0], ["s"])
    with pytest.raises(ValueError, match=r"2 of 3 recordings .*m\.csv \(first: b\.wav, c\.wav\)"):
        VerificationEvaluation(trials, manifest=tmp_path / "m.csv")


def test_a_manifest_brings_the_durations(audio_folder: Path, tmp_path: Path) -> None:
    names = ["b0.wav", "a1.wav", "c0.wav"]
    wavs = [str(audio_folder / name) for name in names]
    write_manifest(tmp_path / "m.csv", names, wavs, [1.0, 2.0, 3.0], list("abc"))
    sides = np.array([0], np.int32), np.array([1], np.int32)
    lists = [Trials(["c0.wav", "b0.wav"], *sides)]
    found = locate_recordings(lists, manifest=tmp_path / "m.csv")
    assert found.paths == [audio_folder / "c0.wav", audio_folder / "b0.wav"]
    assert found.durations_seconds is not None
    assert found.durations_seconds.tolist() == [3.0, 1.0]
    assert found.seconds_of_recording() == {"c0.wav": 3.0, "b0.wav": 1.0}
    below = locate_recordings(lists, audio_folder=audio_folder)
    assert below == (["c0.wav", "b0.wav"], found.paths, None)
    assert below.seconds_of_recording() == pytest.approx({"c0.wav": 1.2, "b0.wav": 1.0}, abs=3.0)


def test_evaluation_during_training_is_light_and_complete(
    audio_folder: Path, tmp_path: Path
) -> None:
    """Error rates by keys that training reads, a score file, and no intervals."""

    def embed(waveforms: Tensor, lengths: Tensor) -> Tensor:
        mean = waveforms.abs().sum(dim=1) / lengths
        return torch.stack([mean, lengths / 16000, torch.ones_like(mean)], dim=1)

    trials = tmp_path / "trials.txt"
    trials.write_text("1 a0.wav a1.wav\n0 a0.wav b0.wav\n1 b0.wav b1.wav\n0 c0.wav b1.wav\n")
    evaluation = VerificationEvaluation(trials, audio_folder=audio_folder, progress=False)
    result = evaluation(embed, CosineSimilarity(), scores_file=tmp_path / "scores.txt")
    assert {"eer", "min_dcf", "trials", "targets"} <= set(result)
    assert "intervals" not in result
    found, scores = read_scores(tmp_path / "scores.txt")
    assert found.is_target is not None
    assert summary(scores.astype(np.float32), found.is_target) == result
    unlabeled = tmp_path / "unlabeled.txt"
    unlabeled.write_text("a0.wav a1.wav\na0.wav b0.wav\n")
    counted = VerificationEvaluation(unlabeled, audio_folder=audio_folder, progress=False)
    assert counted(embed, CosineSimilarity()) == {"trials": 2}


def test_options_are_steps_of_one_pipeline(tmp_path: Path) -> None:
    """Normalized, then calibrated with durations; metrics, intervals and score file are of that."""
    trials, similarity = make_trials(), GeneralizedInnerProduct(0.3)
    seconds = {f"r{n}": 1.0 + n for n in range(9)}
    cohort = np.random.default_rng(2).normal(size=(12, 4)).astype(np.float32)
    calibration = Calibration(2.0, -1.0, {"least_log_duration": 0.5}, 0.01, "x", 10, 5)
    options = EvaluationOptions(
        cohort=cohort,
        top_n=4,
        calibration=calibration,
        metrics=MetricOptions(replicates=20),
        threshold=0.5,
    )
    source = given(seconds)
    (result,) = evaluate_trials([trials], source, similarity, options, [tmp_path / "s.txt"])
    table = source.embed().matrix
    statistics = cohort_statistics(table, cohort, similarity, 4)
    sides = (trials.enroll, trials.test)
    plain = score_trials(trials, table, similarity)
    quality = quality_measures(*sides, np.array(list(seconds.values())), table)
    expected = calibration.apply(normalize(plain, *sides, statistics), quality)
    np.testing.assert_allclose(result.scored.scores, expected)
    written = [float(line.split()[2]) for line in (tmp_path / "s.txt").read_text().splitlines()]
    np.testing.assert_allclose(written, expected)
    assert trials.is_target is not None
    for name, value in summary(expected, trials.is_target).items():
        assert result.summary[name] == value
    assert result.scored.threshold is None, "it is one of plain scores"
    words = "AS-norm with the top 4 of 12, calibrated by the model itself"
    assert str(result.summary["similarity"]).endswith(words)
    assert (result.summary["intervals"] is None) != (result.summary["intervals_missing"] is None)
    with pytest.raises(ValueError, match="quality measures least_log_duration"):
        evaluate_trials([trials], given(), similarity, options)


def test_mistakes_come_before_the_embedding(tmp_path: Path) -> None:
    def fail() -> Embeddings:
        raise AssertionError("embedding began")

    source, similarity = EmbeddingSource(fail), CosineSimilarity()
    one_class = dataclasses.replace(make_trials(), is_target=np.ones(50, dtype=bool))
    with pytest.raises(ValueError, match="50 targets and 0 non-targets"):
        evaluate_trials([one_class], source, similarity)
    (tmp_path / "utt2spk").write_text("r0 a\n")
    with pytest.raises(ValueError, match="utt2spk"):
        options = EvaluationOptions(speakers=tmp_path / "utt2spk")
        evaluate_trials([make_trials()], source, similarity, options)
    with pytest.raises(ValueError, match="not 300"):
        EvaluationOptions(cohort=np.eye(3, dtype=np.float32))
