"""From a trial list to error rates."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from simple_spk.data.manifest import write_manifest
from simple_spk.data.trials import Trials
from simple_spk.evaluation.score_files import read_scores
from simple_spk.evaluation.scoring import score_trials, similarity_in_words
from simple_spk.inference.trial_evaluation import VerificationEvaluation, locate, trial_metrics
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity


def make_trials(recordings: int = 9, count: int = 50, labeled: bool = True) -> Trials:
    generator = np.random.default_rng(0)
    enroll, test = generator.integers(0, recordings, (2, count)).astype(np.int32)
    is_target = np.arange(count) % 3 == 0 if labeled else None
    return Trials([f"r{n}" for n in range(recordings)], enroll, test, is_target)


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
    trials = make_trials(labeled=False)
    assert trial_metrics(trials, np.zeros(len(trials), dtype=np.float32)) == {"trials": 50}


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
    found = locate(["c0.wav", "b0.wav"], manifest=tmp_path / "m.csv")
    assert found.paths == [audio_folder / "c0.wav", audio_folder / "b0.wav"]
    assert found.durations_seconds is not None
    assert found.durations_seconds.tolist() == [3.0, 1.0]
    below = locate(["c0.wav", "b0.wav"], audio_folder=audio_folder)
    assert below == (found.paths, None)


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
    assert trial_metrics(found, scores.astype(np.float32)) == result
