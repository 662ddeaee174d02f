"""Average linkage against scipy, and that of many embeddings against all of their pairs."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.quality_measures import TYPICALITY, pack_background
from simple_spk.inference.diarization import neighbor_graph, recording_clusters
from simple_spk.inference.diarization.likeness import Items, Likeness, Merges
from simple_spk.inference.diarization.linkage import linked
from simple_spk.inference.diarization.pipeline import Wanted, speaker_groups
from simple_spk.inference.diarization.recording_clusters import sort_recordings
from simple_spk.inference.diarization.resegmentation import templates
from simple_spk.inference.diarization.segmentation import Windows
from simple_spk.inference.model import Model
from simple_spk.models.similarity import GeneralizedInnerProduct


def model(quality=None, threshold=None):
    """A model that only scores; its calibration is 2 S - 1 and the weights of measures."""
    calibration = Calibration(2.0, -1.0, quality or {}, 0.5, "list", 10, 5)
    similarity = GeneralizedInnerProduct(0.3)
    return Model(None, None, similarity, threshold, None if threshold else calibration)


def some_items(speakers=6, each=8, noise=0.6, seed=0, dim=8):
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(speakers), each))
    centers = 3.0 * random.normal(size=(speakers, dim)) / np.sqrt(dim)
    embeddings = centers[labels] + noise * random.normal(size=(len(labels), dim)) / np.sqrt(dim)
    seconds = random.uniform(1, 3, len(labels))
    return Items.of(embeddings.astype(np.float32), seconds, {}, model()), labels


def all_values(items, likeness):
    """The likeness (n, n) of all pairs, by a double loop."""
    queries, keys = likeness.sides(items.embeddings)
    found = np.empty((len(items), len(items)))
    for i in range(len(items)):
        for j in range(len(items)):
            sides = (items.some(np.array([k])).measures for k in (i, j))
            found[i, j] = likeness.values(np.array([queries[i] @ keys[j]]), *sides)[0]
    return found


@pytest.mark.parametrize("quality", [{}, {"least_log_duration": -1.0, "greatest_length": 0.3}])
def test_few_are_linked_as_by_scipy(quality):
    items, _ = some_items()
    likeness = Likeness(model(quality))
    values = all_values(items, likeness)
    far = values.max() + 3.0 - values
    tree = hierarchy.linkage(squareform(far, checks=False), "average")
    found = linked(items, likeness)
    assert np.allclose(values.max() + 3.0 - found.values, tree[:, 2], atol=1e-4)
    for count in (0, 5, 20, len(items) - 1):
        expected = hierarchy.fcluster(tree, len(items) - count, "maxclust")
        assert adjusted_rand_score(expected, found.groups(count)) == 1.0
    expected = hierarchy.fcluster(tree, values.max() + 3.0, "distance")
    assert adjusted_rand_score(expected, found.groups(found.above_zero())) == 1.0


def test_without_a_calibration_the_own_threshold_is_zero():
    items, labels = some_items(noise=0.5, dim=256)
    found = linked(items, Likeness(model(threshold=0.4)))
    values = all_values(items, Likeness(model(threshold=0.4)))
    torch_scores = model().similarity(*[torch.from_numpy(items.embeddings)] * 2).numpy()
    assert np.allclose(values, torch_scores - 0.4, atol=1e-4)
    assert adjusted_rand_score(labels, found.groups(found.above_zero())) == 1.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("below_zero", [False, True])
def test_all_neighbors_give_the_exact_linkage(seed, below_zero):
    items, _ = some_items(noise=1.0, seed=seed)
    likeness = Likeness(model())
    exact = linked(items, likeness)
    found = linked(items, likeness, below_zero, most_exact=1)
    count = exact.above_zero()
    assert found.above_zero() == count
    assert len(found.values) == (len(items) - 1 if below_zero else count)
    assert np.allclose(found.values, exact.values[: len(found.values)], atol=1e-4)
    assert np.array_equal(found.groups(count), exact.groups(count))


def test_few_neighbors_leave_no_two_groups_that_are_likelier_one_speaker(monkeypatch):
    monkeypatch.setattr(neighbor_graph, "NEIGHBORS", 2)
    monkeypatch.setattr(neighbor_graph, "MOST_COMPLETE", 3)
    monkeypatch.setattr(neighbor_graph, "SCORES_AT_ONCE", 100)
    items, labels = some_items(speakers=12, each=20, noise=3.0, dim=256)
    likeness = Likeness(model())
    found = linked(items, likeness, below_zero=False, most_exact=1)
    groups = found.groups(len(found.values))
    values = all_values(items, likeness)
    for first in range(groups.max() + 1):
        for second in range(first):
            assert values[np.ix_(groups == first, groups == second)].mean() < 1e-4
    exact = linked(items, likeness)
    assert adjusted_rand_score(exact.groups(exact.above_zero()), groups) > 0.95
    assert adjusted_rand_score(labels, groups) > 0.9


def test_large_groups_are_counted_after_every_merge():
    items, _ = some_items()
    merges = linked(items, Likeness(model()))
    weights = np.random.default_rng(0).uniform(0.1, 2.0, len(items))
    counts = merges.large_groups(weights, 4.0)
    for count in range(len(items)):
        totals = np.bincount(merges.groups(count), weights)
        assert counts[count] == np.count_nonzero(totals >= 4.0)


def test_one_item_has_no_merges():
    items, _ = some_items(speakers=1, each=1)
    merges = linked(items, Likeness(model()))
    assert isinstance(merges, Merges) and merges.groups(merges.above_zero()).tolist() == [0]


@pytest.mark.parametrize("most", [2, 200])
def test_recordings_are_sorted_with_evidence(most, monkeypatch):
    # The best of other groups is among the two of the highest scores: here no measures count.
    monkeypatch.setattr(recording_clusters, "MOST_COMPARED", most)
    items, labels = some_items(speakers=5, each=6, noise=1.0, dim=256)
    likeness = Likeness(model())
    found = sort_recordings(items, likeness)
    assert adjusted_rand_score(labels, found.groups) == 1.0
    values = all_values(items, likeness)
    for row, group in enumerate(found.groups):
        means = [values[row][(found.groups == g)].mean() for g in range(5)]
        mates = (found.groups == group) & (np.arange(len(items)) != row)
        means[group] = -np.inf
        assert found.others[row] == int(np.argmax(means))
        expected = values[row][mates].mean() - max(0.0, max(means))
        assert found.evidence[row] == pytest.approx(expected, abs=1e-3)
    exact = sort_recordings(items, likeness, speakers=3)
    assert len(set(exact.groups.tolist())) == 3
    for wrong in (0, 31):
        with pytest.raises(ValueError, match="cannot be of"):
            sort_recordings(items, likeness, wrong)


def test_a_prior_moves_zero():
    items, _ = some_items(noise=2.0)
    even, low = (linked(items, Likeness(model(), prior)) for prior in (0.5, 0.01))
    assert np.allclose(low.values - even.values, np.log(0.01 / 0.99), atol=1e-4)
    assert low.above_zero() < even.above_zero()
    with pytest.raises(ValueError, match="not calibrated, so a prior"):
        Likeness(model(threshold=0.4), 0.1)
    with pytest.raises(ValueError, match="strictly between"):
        Likeness(model(), 1.0)


def test_a_model_that_knows_no_threshold_needs_a_number():
    items, _ = some_items()
    likeness = Likeness(model()._replace(calibration=None))
    with pytest.raises(ValueError, match="give their number"):
        sort_recordings(items, likeness)
    assert set(sort_recordings(items, likeness, 4).groups.tolist()) == {0, 1, 2, 3}


def test_the_typicality_of_a_template_is_its_own():
    others = np.array([[0.5, -0.25, *[0.125] * 6]])
    background = pack_background(others)
    calibration = dataclasses.replace(model().calibration, background=background)
    scorer = model()._replace(calibration=calibration)
    plain, labels = some_items()
    items = Items.of(plain.embeddings, np.ones(len(plain)), {}, scorer)
    voices = templates(items, labels, 6, scorer)
    expected = voices.embeddings.astype(np.float64) @ others[0]
    assert voices.measures[TYPICALITY] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("wanted", [Wanted(3, 3), Wanted(1, 3)])
def test_a_fragment_is_given_up_before_people_are_joined(wanted):
    """Three people, and a few windows that are less like each of them than they are alike."""
    centers = 1.5 * np.eye(64)[:4]
    centers[3] -= centers[:3].sum(axis=0) / 2.0
    labels = np.repeat(np.arange(4), [100, 100, 100, 6])
    noise = np.random.default_rng(0).normal(size=(len(labels), 64)) / 8.0
    embeddings = (centers[labels] + 0.3 * noise).astype(np.float32)
    items = Items.of(embeddings, np.full(len(labels), 1.5), {}, model())
    starts = 2.0 * np.arange(len(labels))
    spans = np.stack([starts, starts + 1.5], axis=1)
    windows = Windows(spans, np.arange(len(labels)))
    likeness = Likeness(model())
    natural, count = speaker_groups(items, windows, likeness, Wanted(), "meeting")
    assert count == 4 and adjusted_rand_score(labels, natural) == 1.0
    found, count = speaker_groups(items, windows, likeness, wanted, "meeting")
    known = found >= 0
    assert count == 3 and set(labels[known].tolist()) == {0, 1, 2}
    assert adjusted_rand_score(labels[known], found[known]) == 1.0
