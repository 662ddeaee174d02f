"""Wrong labels are found, their number is estimated, and right ones are left alone."""

import numpy as np
import pytest

from simple_spk.evaluation.label_noise import find_label_noise
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct

SIMILARITIES = [CosineSimilarity(), GeneralizedInnerProduct(0.3)]


def voices(speakers: int, takes: int, noise: float, seed: int = 0):
    """Embeddings of voices as random directions, and their speakers."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(speakers), takes)
    centers = random.normal(size=(speakers, 64))
    embeddings = centers[labels] + noise * random.normal(size=(len(labels), 64))
    return embeddings.astype(np.float32), labels, random


@pytest.mark.parametrize("similarity", SIMILARITIES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("speakers, takes, noise", [(150, 5, 1.0), (400, 6, 1.2)])
def test_five_percent_of_wrong_labels_and_of_second_accounts(similarity, speakers, takes, noise):
    embeddings, right, random = voices(speakers, takes, noise)
    labels = right.copy()
    wrong = random.permutation(len(labels))[: len(labels) // 20]
    labels[wrong] = (labels[wrong] + random.integers(1, speakers, len(wrong))) % speakers
    doubled = random.permutation(speakers)[: speakers // 20]
    for number, speaker in enumerate(doubled):
        labels[np.flatnonzero(labels == speaker)[::2]] = speakers + number
    found = find_label_noise(embeddings, labels, similarity)
    rows = {one.row for one in found.recordings}
    hits = len(rows & set(wrong.tolist()))
    assert hits >= 0.75 * len(wrong) and hits >= 0.8 * len(rows)
    assert 0.6 * len(wrong) < found.wrong_labels < 1.6 * len(wrong)
    assert found.wrongly_suspected <= 0.3 * len(rows)
    pairs = {tuple(sorted((pair.first, pair.second))) for pair in found.pairs}
    expected = {(int(speaker), speakers + number) for number, speaker in enumerate(doubled)}
    assert len(pairs & expected) >= 0.7 * len(expected)
    assert len(pairs - expected) <= 0.3 * len(pairs)
    scores = [pair.score for pair in found.pairs]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("similarity", SIMILARITIES, ids=lambda one: type(one).__name__)
def test_right_labels_are_left_alone(similarity):
    embeddings, labels, _ = voices(300, 5, 1.0)
    found = find_label_noise(embeddings, labels, similarity)
    assert len(found.recordings) <= 1 and len(found.pairs) <= 1 and found.wrong_labels <= 2
    assert found.judged == len(labels)


def test_ranks_are_those_of_their_definition():
    """The rank of a recording, counted one by one."""
    embeddings, labels, random = voices(30, 4, 1.5)
    labels = random.permutation(labels)  # nothing is right
    similarity = CosineSimilarity()
    found = find_label_noise(embeddings, labels, similarity)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    scores = unit @ unit.T
    ranks = []
    for row, label in enumerate(labels):
        rest = np.flatnonzero((labels == label) & (np.arange(len(labels)) != row))
        own = scores[row, rest].mean()
        others = [scores[row, labels == other].mean() for other in set(labels) - {label}]
        ranks.append(np.mean(np.array(others) > own))
    assert found.wrong_labels == 2 * np.sum(np.array(ranks) > 0.5)
    first = max(found.recordings, key=lambda one: one.rank)
    assert first.rank == pytest.approx(max(ranks))


def test_of_two_recordings_that_disagree_both_go_and_single_ones_are_not_judged():
    embeddings, labels, _ = voices(40, 2, 0.3)
    embeddings[1] = -embeddings[0]
    alone = np.append(labels, 40)
    embeddings = np.concatenate([embeddings, embeddings[:1]])
    found = find_label_noise(embeddings, alone, CosineSimilarity())
    assert [one.row for one in found.recordings] == [0, 1]
    assert found.judged == 80


def test_all_recordings_may_be_dropped():
    embeddings, labels, _ = voices(3, 2, 0.3)
    embeddings[1::2] = -embeddings[::2]
    found = find_label_noise(embeddings, labels, CosineSimilarity())
    assert [one.row for one in found.recordings] == [0, 1, 2, 3, 4, 5]
    assert found.pairs == [] and found.wrongly_paired == 0.0


def test_mistakes_are_named():
    embeddings, labels, _ = voices(2, 2, 1.0)
    with pytest.raises(ValueError, match="found 2 speakers"):
        find_label_noise(embeddings, labels, CosineSimilarity())
    embeddings, labels, _ = voices(4, 2, 1.0)
    with pytest.raises(ValueError, match=r"in \(0, 1\), not 1.0"):
        find_label_noise(embeddings, labels, CosineSimilarity(), false_share=1.0)
