"""Laws of score normalization, against a reference that goes trial by trial."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from simple_spk.evaluation.score_norm import cohort_statistics, normalize, speaker_cohort
from simple_spk.evaluation.scoring import NumpySimilarity, queries_and_keys, similarity_in_words
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

SIMILARITIES = [GeneralizedInnerProduct(0.3), CosineSimilarity()]


@pytest.mark.parametrize(
    ("plain", "similarity"),
    [
        (NumpySimilarity(), CosineSimilarity()),
        (NumpySimilarity(scale=3.0), CosineSimilarity(3.0)),
        (NumpySimilarity(0.0), GeneralizedInnerProduct(0.0)),
        (NumpySimilarity(0.7), GeneralizedInnerProduct(0.7)),
    ],
)
def test_scores_without_torch_are_those_of_torch(
    plain: NumpySimilarity, similarity: Similarity
) -> None:
    embeddings = np.concatenate([vectors(9, 0), np.zeros((1, 8), np.float32)])
    found, expected = (queries_and_keys(embeddings, one) for one in (plain, similarity))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6, atol=1e-6)
    assert similarity_in_words(plain) == similarity_in_words(similarity)


def vectors(count: int, seed: int, dim: int = 8) -> NDArray[np.float32]:
    """Random embeddings (count, dim)."""
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def reference(
    embeddings: NDArray[np.float32],
    cohort: NDArray[np.float32],
    similarity: Similarity,
    pairs: list[tuple[int, int]],
    top_n: int | None,
) -> list[float]:
    """Normalized scores as the definition has them: every trial scores both sides anew."""

    def score(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
        return float(similarity(torch.tensor(left[None]), torch.tensor(right[None])))

    found = []
    for enroll, test in pairs:
        raw = score(embeddings[enroll], embeddings[test])
        sides = []
        for side in (enroll, test):
            scores = sorted((score(embeddings[side], member) for member in cohort), reverse=True)
            highest = np.array(scores[:top_n])
            sides.append((raw - highest.mean()) / np.sqrt(((highest - highest.mean()) ** 2).mean()))
        found.append(sum(sides) / 2)
    return found


@pytest.mark.parametrize("similarity", SIMILARITIES, ids=["generalized", "cosine"])
@pytest.mark.parametrize("top_n", [None, 3, 5, 17])
def test_equals_the_definition_trial_by_trial(similarity: Similarity, top_n: int | None) -> None:
    embeddings, cohort = vectors(7, 0), vectors(17, 1)
    cohort[3] = cohort[2]  # a tie, at the edge of the highest for some
    pairs = [(0, 1), (1, 0), (2, 2), (3, 6), (5, 4)]
    enroll, test = np.array(pairs).T
    scores = similarity.pairs(torch.tensor(embeddings[enroll]), torch.tensor(embeddings[test]))
    statistics = cohort_statistics(embeddings, cohort, similarity, top_n, block=3)
    normalized = normalize(scores.numpy(), enroll, test, statistics)
    expected = reference(embeddings, cohort, similarity, pairs, top_n)
    assert normalized == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert normalized[0] == pytest.approx(normalized[1]), "enrollment and test are alike"


def test_all_of_the_cohort_as_top_n_is_s_norm() -> None:
    embeddings, cohort = vectors(5, 0), vectors(9, 1)
    every, none = (cohort_statistics(embeddings, cohort, SIMILARITIES[0], n) for n in (9, None))
    np.testing.assert_allclose(every, none, rtol=1e-6)


@pytest.mark.parametrize("top_n", [None, 4])
def test_neither_scale_nor_offset_of_the_scores_matters(top_n: int | None) -> None:
    class Moved(GeneralizedInnerProduct):
        def lift_queries(self, queries: torch.Tensor) -> torch.Tensor:
            return 3.0 * torch.cat([super().lift_queries(queries), torch.ones(len(queries), 1)], 1)

        def lift_keys(self, keys: torch.Tensor) -> torch.Tensor:
            return torch.cat([super().lift_keys(keys), torch.full((len(keys), 1), 5.0)], 1)

    embeddings, cohort = vectors(6, 0), vectors(30, 1)
    normalized = []
    for similarity in (GeneralizedInnerProduct(), Moved()):
        statistics = cohort_statistics(embeddings, cohort, similarity, top_n)
        scores = similarity(torch.tensor(embeddings), torch.tensor(embeddings)).detach().numpy()
        rows, columns = np.indices(scores.shape)
        normalized.append(normalize(scores.ravel(), rows.ravel(), columns.ravel(), statistics))
    np.testing.assert_allclose(normalized[0], normalized[1], atol=1e-3)


@pytest.mark.parametrize("top_n", [None, 10])
def test_statistics_follow_the_length_of_an_embedding(top_n: int | None) -> None:
    """Recordings whose scores are all larger by a factor are why one normalizes."""
    embeddings, cohort = vectors(20, 4), vectors(50, 5)
    gains = np.random.default_rng(3).uniform(0.5, 2.0, size=20).astype(np.float32)
    plain, louder = (
        cohort_statistics(table, cohort, GeneralizedInnerProduct(), top_n)
        for table in (embeddings, gains[:, np.newaxis] * embeddings)
    )
    np.testing.assert_allclose(louder, gains * np.array(plain), rtol=1e-4, atol=1e-5)


def test_the_cohort_is_the_mean_of_each_speaker() -> None:
    embeddings = vectors(12, 0)
    speakers = np.array(["c", "a", "b", "a", "c", "c", "a", "b", "a", "c", "a", "a"])
    cohort = speaker_cohort(embeddings, speakers)
    for row, name in zip(cohort, "abc", strict=True):
        np.testing.assert_allclose(row, embeddings[speakers == name].mean(axis=0), rtol=1e-5)
    assert cohort.dtype == np.float32
    np.testing.assert_array_equal(speaker_cohort(embeddings, np.arange(12)), embeddings)


def test_what_does_not_fit_is_refused() -> None:
    similarity = GeneralizedInnerProduct()
    with pytest.raises(ValueError, match=r"shape \(3, 8\) and the cohort \(4, 5\)"):
        cohort_statistics(vectors(3, 0), vectors(4, 0, dim=5), similarity)
    with pytest.raises(ValueError, match="between 2 and the 4 members of the cohort, not 300"):
        cohort_statistics(vectors(3, 0), vectors(4, 0), similarity)
    with pytest.raises(ValueError, match="cohort has 1 members"):
        cohort_statistics(vectors(3, 0), vectors(1, 0), similarity, None)
    with pytest.raises(
        ValueError, match=r"2 of 3 recordings have equal scores .* first at index 1"
    ):
        embeddings = vectors(3, 0) * np.array([[1.0], [0.0], [np.nan]], np.float32)
        cohort_statistics(embeddings, vectors(9, 0), similarity, 5)
    with pytest.raises(ValueError, match=r"shape \(3, 8\) and speakers \(2,\)"):
        speaker_cohort(vectors(3, 0), [0, 1])
