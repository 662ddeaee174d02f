"""Laws of the key queue, against collections.deque."""

from collections import deque

import numpy as np
import pytest
import torch
from torch import Tensor

from simple_spk.losses.key_queue import KeyQueue


def batch(first: int, count: int) -> tuple[Tensor, Tensor]:
    """Keys and labels that are numbered, so that each can be told from all others."""
    numbers = torch.arange(first, first + count)
    return torch.stack([numbers, -numbers], dim=1).float(), numbers % 7


def pairs(keys: Tensor, labels: Tensor) -> list[tuple]:
    """Keys with their labels, without order."""
    return sorted(zip(keys[:, 0].tolist(), keys[:, 1].tolist(), labels.tolist(), strict=True))


@pytest.mark.parametrize("size", [1, 7, 12])
def test_holds_what_a_deque_holds(size: int) -> None:
    """Over random batch sizes, most of which do not divide the queue, at every pointer position."""
    random = np.random.default_rng(size)
    queue, reference = KeyQueue(size, embedding_dim=2), deque(maxlen=size)
    first, pointers = 0, set()
    for count in random.integers(0, size + 1, size=60).tolist():
        keys, labels = batch(first, count)
        pointers.add(first % size)
        first += count
        slots = queue.enqueue(keys, labels)
        reference.extend(zip(keys, labels, strict=True))
        stored_keys, stored_labels = queue.contents()
        assert torch.equal(stored_keys[slots], keys)
        assert torch.equal(stored_labels[slots], labels)
        assert len(stored_keys) == len(reference) == min(first, size)
        if reference:
            expected = [torch.stack(column) for column in zip(*reference, strict=True)]
            assert pairs(stored_keys, stored_labels) == pairs(*expected)
    assert pointers == set(range(size))


def test_slots_never_written_do_not_exist() -> None:
    queue = KeyQueue(5, embedding_dim=2)
    keys, labels = queue.contents()
    assert keys.shape == (0, 2)
    assert labels.shape == (0,)


def test_a_batch_larger_than_the_queue_raises_and_changes_nothing() -> None:
    queue = KeyQueue(5, embedding_dim=2)
    queue.enqueue(*batch(1, 3))
    before = pairs(*queue.contents())
    with pytest.raises(ValueError, match=r"holds 5 keys .* brings 6"):
        queue.enqueue(*batch(10, 6))
    assert pairs(*queue.contents()) == before


@pytest.mark.parametrize("done", [2, 11], ids=["before it is full", "after it wrapped"])
def test_a_restored_queue_goes_on_identically(done: int) -> None:
    queue = KeyQueue(5, embedding_dim=2)
    for number in range(done):
        queue.enqueue(*batch(2 * number, 2))
    restored = KeyQueue(5, embedding_dim=2)
    restored.load_state_dict(queue.state_dict())
    for number in range(done, done + 4):
        slots = queue.enqueue(*batch(2 * number, 2))
        assert torch.equal(restored.enqueue(*batch(2 * number, 2)), slots)
        for mine, other in zip(queue.contents(), restored.contents(), strict=True):
            assert torch.equal(mine, other)


def test_holds_no_parameters_and_no_gradients() -> None:
    queue = KeyQueue(5, embedding_dim=2)
    keys, labels = batch(0, 3)
    queue.enqueue(keys.requires_grad_(), labels)
    assert not list(queue.parameters())
    assert not queue.contents()[0].requires_grad


def test_half_precision_keys_are_stored_in_the_precision_of_the_queue() -> None:
    queue = KeyQueue(5, embedding_dim=2)
    keys, labels = batch(0, 3)
    queue.enqueue(keys.bfloat16(), labels)
    assert queue.contents()[0].dtype == torch.float32
    assert torch.equal(queue.contents()[0], keys)


@pytest.mark.parametrize("size", [0, -3])
def test_a_queue_without_room_raises(size: int) -> None:
    with pytest.raises(ValueError, match=str(size)):
        KeyQueue(size, embedding_dim=2)
