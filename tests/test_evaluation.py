"""From a trial list to error rates."""

import numpy as np
import pytest
import torch

from simple_spk.evaluation import (
    VerificationEvaluation,
    embeddings_of_trials,
    score_trials,
    trial_metrics,
)
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct
from simple_spk.trials import Trials


def make_trials(recordings=9, count=50, labelled=True, seed=0):
    generator = np.random.default_rng(seed)
    enrol, test = generator.integers(0, recordings, (2, count)).astype(np.int32)
    is_target = np.arange(count) % 3 == 0 if labelled else None
    return Trials([f"r{n}" for n in range(recordings)], enrol, test, is_target)


@pytest.mark.parametrize("similarity", [CosineSimilarity(), GeneralizedInnerProduct(0.3, True)])
@pytest.mark.parametrize("block", [1, 7, 50, 1000])
def test_scores_are_those_of_a_loop_whatever_the_block(similarity, block):
    trials = make_trials()
    embeddings = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    table = torch.from_numpy(embeddings)
    expected = [
        float(similarity(table[i][None], table[j][None]).detach())
        for i, j in zip(trials.enrol, trials.test, strict=True)
    ]
    actual = score_trials(trials, embeddings, similarity, block)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_list_without_labels_is_counted_not_judged():
    trials = make_trials(labelled=False)
    assert trial_metrics(trials, np.zeros(len(trials), dtype=np.float32)) == {"trials": 50}


def test_missing_embeddings_are_counted_and_named():
    trials = make_trials()
    known = {name: np.zeros(2, dtype=np.float32) for name in trials.ids[2:]}
    with pytest.raises(ValueError, match=r"2 of 9 recordings .* r0, r1"):
        embeddings_of_trials(trials, known)


def test_recordings_are_sought_in_one_place_only(tmp_path):
    trials = tmp_path / "trials.txt"
    trials.write_text("1 a.wav b.wav\n0 a.wav c.wav\n")
    with pytest.raises(ValueError, match="either a manifest or an audio_folder"):
        VerificationEvaluation(trials)
    with pytest.raises(ValueError, match=r"3 of 3 recordings"):
        VerificationEvaluation(trials, audio_folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        VerificationEvaluation(trials, audio_folder=tmp_path / "nowhere")
