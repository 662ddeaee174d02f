"""Clusters of speakers against scikit-learn, and the desideratum against a double loop."""

import numpy as np
import pytest
import torch
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

from simple_spk.evaluation import clustering
from simple_spk.evaluation.clustering import LINKAGES, cluster_summary, rand_indices
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct


def recordings(speakers=7, each=5, noise=1.0, seed=0, dim=8):
    """Names, embeddings (n, dim) in no order, and speakers (n,)."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(speakers), each)) + 100
    centers = 2.0 * random.normal(size=(speakers, dim))
    embeddings = centers[labels - 100] + noise * random.normal(size=(len(labels), dim))
    return [f"r{i}" for i in range(len(labels))], embeddings.astype(np.float32), labels


def all_similarities(similarity, embeddings):
    table = torch.from_numpy(embeddings)
    with torch.no_grad():
        return similarity(table, table).numpy().astype(np.float64)


@pytest.mark.parametrize("similarity", [GeneralizedInnerProduct(0.3), CosineSimilarity()])
@pytest.mark.parametrize("pairs_at_once", [1, 100, 2**24])
def test_extremes_equal_a_double_loop(similarity, pairs_at_once, monkeypatch):
    monkeypatch.setattr(clustering, "PAIRS_AT_ONCE", pairs_at_once)
    names, embeddings, speakers = recordings()
    summary = cluster_summary(names, embeddings, speakers, similarity)
    scores = all_similarities(similarity, embeddings)
    within, between = {}, {}
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            kind = within if speakers[i] == speakers[j] else between
            kind[names[i], names[j]] = scores[i, j]
    least, greatest = min(within, key=within.get), max(between, key=between.get)
    assert tuple(summary["smallest_within_pair"]) == least
    assert tuple(summary["largest_between_pair"]) == greatest
    assert summary["smallest_within"] == pytest.approx(within[least], rel=1e-5)
    assert summary["largest_between"] == pytest.approx(between[greatest], rel=1e-5)
    assert summary["gap"] == pytest.approx(within[least] - between[greatest], rel=1e-4)
    below = np.mean([value <= between[greatest] for value in within.values()])
    above = np.mean([value >= within[least] for value in between.values()])
    assert 0.0 < below < 1.0 and 0.0 < above < 1.0, "the case is one of overlap"
    assert summary["share_within_below_largest_between"] == pytest.approx(below)
    assert summary["share_between_above_smallest_within"] == pytest.approx(above)


@pytest.mark.parametrize("method", LINKAGES)
@pytest.mark.parametrize("seed", range(3))
def test_rand_indices_equal_those_of_sklearn_at_every_cut(method, seed):
    _, embeddings, speakers = recordings(noise=1.5, seed=seed)
    scores = all_similarities(CosineSimilarity(), embeddings)
    tree = hierarchy.linkage(squareform(1.0 - scores, checks=False), method)
    actual = rand_indices(tree, speakers)
    for merges in range(len(speakers)):
        clusters = hierarchy.fcluster(tree, len(speakers) - merges, "maxclust")
        if len(np.unique(clusters)) == len(speakers) - merges:  # fcluster counts ties as one
            assert actual[merges] == pytest.approx(adjusted_rand_score(speakers, clusters))


@pytest.mark.parametrize("similarity", [GeneralizedInnerProduct(0.3), CosineSimilarity()])
@pytest.mark.parametrize("method", LINKAGES)
@pytest.mark.parametrize("threshold", [-0.2, 0.1, 0.55])
def test_cuts_equal_those_of_scipy(similarity, method, threshold):
    names, embeddings, speakers = recordings(noise=1.5)
    found = cluster_summary(names, embeddings, speakers, similarity, threshold)["linkage"][method]
    scores = all_similarities(similarity, embeddings)
    far = squareform(scores.max() + 5.0 - scores, checks=False)
    tree = hierarchy.linkage(far, method)
    for key in ("at_own_threshold", "at_best_threshold"):
        cut = found[key]["threshold"]
        clusters = hierarchy.fcluster(tree, scores.max() + 5.0 - cut, "distance")
        assert found[key]["clusters"] == len(np.unique(clusters))
        expected = adjusted_rand_score(speakers, clusters)
        assert found[key]["adjusted_rand_index"] == pytest.approx(expected)
    assert found["at_own_threshold"]["threshold"] == threshold
    cuts = [hierarchy.fcluster(tree, k, "maxclust") for k in range(1, len(names) + 1)]
    best = max(adjusted_rand_score(speakers, cut) for cut in cuts)
    assert found["at_best_threshold"]["adjusted_rand_index"] == pytest.approx(best)


def test_where_the_desideratum_holds_every_linkage_gives_the_speakers():
    """The paper: perfect pairwise similarity means perfect clustering, at any threshold between."""
    names, embeddings, speakers = recordings(noise=0.05)
    similarity = CosineSimilarity()
    free = cluster_summary(names, embeddings, speakers, similarity)
    assert free["gap"] > 0.0
    assert free["share_within_below_largest_between"] == 0.0
    assert all(cut["at_own_threshold"] is None for cut in free["linkage"].values())
    for share in (0.01, 0.5, 0.99):
        threshold = free["largest_between"] + share * free["gap"]
        summary = cluster_summary(names, embeddings, speakers, similarity, threshold)
        for cuts in summary["linkage"].values():
            for cut in cuts.values():
                assert cut["adjusted_rand_index"] == 1.0 and cut["clusters"] == 7


def test_thresholds_beyond_all_scores_join_all_or_nothing():
    data = recordings()
    for threshold, clusters in ((1e9, 35), (-1e9, 1)):
        summary = cluster_summary(*data, CosineSimilarity(), threshold)
        for cuts in summary["linkage"].values():
            assert cuts["at_own_threshold"]["clusters"] == clusters
            assert cuts["at_own_threshold"]["adjusted_rand_index"] == pytest.approx(0.0)


def test_equal_similarities_are_cut_together():
    """Three recordings of one speaker, all alike, and one of another at the very same distance."""
    embeddings = np.eye(4, dtype=np.float32)
    names, speakers = list("abcd"), np.array([0, 0, 0, 1])
    summary = cluster_summary(names, embeddings, speakers, CosineSimilarity(), 0.0)
    for cuts in summary["linkage"].values():
        assert cuts["at_best_threshold"]["clusters"] in (1, 4)  # nothing between can be had


def test_many_recordings_are_clustered_by_whole_speakers():
    names, embeddings, speakers = recordings(speakers=20, each=5)
    summary = cluster_summary(names, embeddings, speakers, CosineSimilarity(), most_clustered=33)
    assert summary["recordings"] == 100 and summary["speakers"] == 20
    assert summary["clustered_recordings"] == 30 and summary["clustered_speakers"] == 6
    whole = cluster_summary(names, embeddings, speakers, CosineSimilarity())
    assert whole["smallest_within"] == summary["smallest_within"]  # of all pairs, all the same
    with pytest.raises(ValueError, match="too many to cluster"):
        cluster_summary(names, embeddings, speakers, CosineSimilarity(), most_clustered=9)


@pytest.mark.parametrize("speakers", [[0, 0, 0], [0, 1, 2]])
def test_what_has_no_pairs_of_a_kind_is_refused(speakers):
    embeddings = np.eye(3, dtype=np.float32)
    with pytest.raises(ValueError, match="clusters need two speakers"):
        cluster_summary(list("abc"), embeddings, np.array(speakers), CosineSimilarity())
