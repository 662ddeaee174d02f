"""Figures of retrieval beside pytorch-metric-learning's and beside all orders of equal scores."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.vision import retrieval_metrics as under_test
from simple_spk.vision.retrieval_metrics import (
    clustering_nmi,
    k_means,
    neighbors,
    normalized_mutual_information,
    retrieval_metrics,
)

NAMES = {
    "precision_at_1": "precision_at_1",
    "r_precision": "r_precision",
    "map_at_r": "mean_average_precision_at_r",
}


def figures(embeddings: Tensor, labels: Tensor, similarity: Similarity, **options) -> dict:
    queries, keys = similarity.lift_queries(embeddings), similarity.lift_keys(embeddings)
    return retrieval_metrics(queries, keys, labels, **options)


def theirs(embeddings: Tensor, labels: Tensor, similarity: Similarity) -> dict[str, float]:
    """The same of pytorch-metric-learning; equal scores stay in the order of the rows."""
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")

    def nearest(query: Tensor, k: int, reference: Tensor, ref_includes_query: bool):
        assert ref_includes_query
        scores = similarity(query, reference)
        scores.fill_diagonal_(-torch.inf)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :k]
        return scores.gather(1, order), order

    calculator = calculators.AccuracyCalculator(
        include=tuple(NAMES.values()),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=nearest,
        kmeans_func=lambda *_: None,
    )
    found = calculator.get_accuracy(embeddings, labels)
    return {name: 100.0 * found[their_name] for name, their_name in NAMES.items()}


@pytest.mark.parametrize("similarity", [CosineSimilarity(), GeneralizedInnerProduct(0.3)])
@pytest.mark.parametrize("seed", range(4))
def test_equal_to_pytorch_metric_learning(similarity: Similarity, seed: int, monkeypatch) -> None:
    """Random data with classes of very different sizes, some of one item; in several blocks."""
    monkeypatch.setattr(under_test, "BLOCK_NUMBERS", 20_000)
    generator = torch.Generator().manual_seed(seed)
    sizes = [1, 2, 3, 40, 1, 7, 90, 12, 1, 25]
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    centers = torch.randn(len(sizes), 8, generator=generator)
    embeddings = centers[labels] + torch.randn(len(labels), 8, generator=generator)
    ours = figures(embeddings, labels, similarity)
    assert ours["queries"] == len(labels) - 3
    for name, value in theirs(embeddings, labels, similarity).items():
        assert ours[name] == pytest.approx(value, abs=1e-6)
    assert ours["recall"]["1"] == pytest.approx(ours["precision_at_1"], abs=1e-9)


def over_all_orders(
    scores: Tensor, labels: Tensor, figure: Callable[[list[bool], int], float]
) -> float:
    """A figure by its definition, as the mean over all orders of items with equal scores."""
    means = []
    for query in range(len(labels)):
        others = [item for item in range(len(labels)) if item != query]
        relevant = sum(bool(labels[item] == labels[query]) for item in others)
        if relevant == 0:
            continue
        values = []
        for order in itertools.permutations(others):
            falling = [float(scores[query, item]) for item in order]
            if falling == sorted(falling, reverse=True):
                hits = [bool(labels[item] == labels[query]) for item in order]
                values.append(figure(hits, relevant))
        means.append(np.mean(values))
    return 100.0 * float(np.mean(means))


def map_at_r(hits: list[bool], relevant: int) -> float:
    precisions = [sum(hits[: place + 1]) / (place + 1) for place in range(relevant) if hits[place]]
    return sum(precisions) / relevant


@pytest.mark.parametrize("seed", range(8))
def test_equal_scores_count_as_the_mean_of_all_their_orders(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = torch.from_numpy(random.integers(0, 3, size=7))
    embeddings = torch.from_numpy(random.integers(-1, 2, size=(7, 2))).float()
    scores = embeddings @ embeddings.T
    found = retrieval_metrics(embeddings, embeddings, labels, recall_at=(1, 2, 3))
    expected = {
        "precision_at_1": lambda hits, _: hits[0],
        "r_precision": lambda hits, relevant: sum(hits[:relevant]) / relevant,
        "map_at_r": map_at_r,
    }
    for name, figure in expected.items():
        assert found[name] == pytest.approx(over_all_orders(scores, labels, figure), abs=1e-6)
    for k in (1, 2, 3):
        recall = over_all_orders(scores, labels, lambda hits, _, k=k: any(hits[:k]))
        assert found["recall"][str(k)] == pytest.approx(recall, abs=1e-6)


def test_equal_scores_are_the_mean_of_pytorch_metric_learning_over_orders_of_rows() -> None:
    similarity = CosineSimilarity()
    labels = torch.tensor([0, 0, 1, 1, 2])
    embeddings = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1]])
    ours = figures(embeddings, labels, similarity)
    orders = [list(order) for order in itertools.permutations(range(5))]
    found = [theirs(embeddings[order], labels[order], similarity) for order in orders]
    for name in NAMES:
        assert ours[name] == pytest.approx(np.mean([one[name] for one in found]), abs=1e-6)


def test_embeddings_that_are_all_equal_are_worth_guessing() -> None:
    labels = torch.arange(60) % 6
    found = figures(torch.ones(60, 4), labels, GeneralizedInnerProduct())
    assert found["precision_at_1"] == pytest.approx(100 * 9 / 59)
    assert found["r_precision"] == pytest.approx(100 * 9 / 59)
    assert found["recall"]["2"] == pytest.approx(100 * (1 - 50 / 59 * 49 / 58))


def test_the_order_of_rows_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(3)
    embeddings = torch.randint(-2, 3, (200, 4), generator=generator).float()
    labels = torch.randint(12, (200,), generator=generator)
    order = torch.randperm(200, generator=generator)
    similarity = GeneralizedInnerProduct(0.0)
    first = figures(embeddings, labels, similarity)
    second = figures(embeddings[order], labels[order], similarity)
    for name in NAMES:
        assert first[name] == pytest.approx(second[name], abs=1e-9)


@pytest.mark.parametrize("k", [1, 3, 50, 999])
def test_neighbors_are_the_largest_scores(k: int, monkeypatch) -> None:
    monkeypatch.setattr(under_test, "BLOCK_NUMBERS", 300_000)
    points = torch.randn(1000, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.zeros(1000, dtype=torch.long)
    scores = points @ points.T
    scores.fill_diagonal_(-torch.inf)
    expected = scores.sort(dim=1, descending=True).values[:, :k]
    found = list(neighbors(points, points, labels, k))
    assert torch.cat([block.queries for block in found]).tolist() == list(range(1000))
    rows = torch.cat([block.rows for block in found])
    torch.testing.assert_close(scores.gather(1, rows), expected)
    torch.testing.assert_close(torch.cat([block.scores for block in found]), expected)


def test_mistakes_are_told() -> None:
    points = torch.randn(4, 2)
    with pytest.raises(ValueError, match="no class has two items"):
        retrieval_metrics(points, points, torch.arange(4))
    with pytest.raises(ValueError, match="not finite"):
        retrieval_metrics(points * torch.nan, points, torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="recall_at"):
        retrieval_metrics(points, points, torch.zeros(4, dtype=torch.long), recall_at=(0,))


@pytest.mark.parametrize("seed", range(5))
def test_mutual_information_is_that_of_scikit_learn(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    one, other = random.integers(0, 2 + 3 * seed, 80), random.integers(0, 5, 80)
    expected = metrics.normalized_mutual_info_score(one, other)
    assert normalized_mutual_information(one, other) == pytest.approx(expected, abs=1e-12)


def test_clusters_of_separate_groups_are_found() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 8
    centers = functional.normalize(torch.randn(8, 16, generator=generator))
    points = centers[labels] + 0.05 * torch.randn(400, 16, generator=generator)
    assert clustering_nmi(points, labels) > 85.0
    assert clustering_nmi(torch.randn(400, 16, generator=generator), labels) < 25.0
    assert len(k_means(torch.ones(10, 2), 3)) == 10  # fewer points than clusters want
