"""The two defects of the published code do what is said of them, and no more."""

import pytest
import torch

from recipes.OpenSpeech.queue_defects import OwnKeyLeakQueue, RandomStartQueue
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.simple import SimPLELoss

BATCH, SIZE, DIM = 4, 12, 3


def batch(seed):
    """Keys and labels; every batch has the same speakers."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(BATCH, DIM, generator=generator, dtype=torch.float64)
    return keys, torch.arange(BATCH) // 2


def published(loss, queries, labels, keys, key_labels, first_slots):
    """The loss with the published mask: of positives, the pairs of query i with slot i are gone."""
    scores = loss.similarity(queries, keys) + loss.bias
    same = labels[:, None] == key_labels
    positive = same.clone()
    positive[torch.arange(len(queries)), first_slots] = False
    of_positives = torch.log1p(torch.exp(-scores[positive] / loss.sharpness)).mean()
    of_negatives = torch.log1p(torch.exp(scores[~same] * loss.sharpness)).mean()
    weight = loss.positive_weight
    return loss.scale * (weight * of_positives + (1.0 - weight) * of_negatives)


@pytest.mark.parametrize("batches_before", range(5))
def test_the_leak_is_that_of_the_published_mask(batches_before):
    """All slots but the first hold other crops, so the own key is left out at pointer 0 only."""
    right, leaking = KeyQueue(SIZE, DIM).double(), OwnKeyLeakQueue(SIZE, DIM).double()
    for number in range(batches_before + 1):
        keys, labels = batch(number)
        own, said = right.enqueue(keys, labels), leaking.enqueue(keys, labels)
    for one, other in zip(right.contents(), leaking.contents(), strict=True):
        assert torch.equal(one, other)  # the queue itself is sound
    loss = SimPLELoss(positive_weight=0.3, sharpness=2.0, initial_bias=-0.5).double()
    queries = torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(99)).double()
    actual = loss(queries, labels, *leaking.contents(), said)
    expected = published(loss, queries, labels, *leaking.contents(), torch.arange(BATCH))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=0)
    sound = loss(queries, labels, *right.contents(), own)
    assert torch.equal(actual, sound) == (batches_before % (SIZE // BATCH) == 0)


def test_a_random_start_is_a_full_queue_of_nobody():
    queue, sound = RandomStartQueue(SIZE, DIM).double(), KeyQueue(SIZE, DIM).double()
    keys, labels = queue.contents()
    assert keys.shape == (SIZE, DIM) and (labels > 1000).all()
    assert len(torch.unique(labels)) == SIZE and 0.05 < keys.std() < 0.2
    assert torch.equal(RandomStartQueue(SIZE, DIM).double().keys, keys)  # on every process
    for number in range(3):
        fresh = queue.contents()[1] < 1000
        assert fresh.sum() == number * BATCH
        assert torch.equal(queue.enqueue(*batch(number)), sound.enqueue(*batch(number)))
    for one, other in zip(queue.contents(), sound.contents(), strict=True):
        assert torch.equal(one, other)  # a whole round later nothing is left of it


def test_a_restored_random_start_goes_on():
    queue, restored = RandomStartQueue(SIZE, DIM).double(), RandomStartQueue(SIZE, DIM).double()
    queue.enqueue(*batch(0))
    restored.load_state_dict(queue.state_dict())
    assert torch.equal(queue.enqueue(*batch(1)), restored.enqueue(*batch(1)))
    assert torch.equal(queue.contents()[0], restored.contents()[0])
