"""Average linkage of many embeddings: groups are joined along a graph of nearest neighbors.

The mean score of all pairs of two groups is the inner product of their mean lifted embeddings, so
it is exact without the pairs. The graph only limits which groups are compared. When no neighbors
are left to join, the neighbors of the groups are found anew, until nothing more is joined.
"""

import heapq

import numpy as np
import torch
from numpy.typing import NDArray

from simple_spk.inference.diarization.likeness import Items, Likeness, Measures, Merges

NEIGHBORS = 32
SCORES_AT_ONCE = 2**24  # in memory: 64 MB
MOST_COMPLETE = 1024  # groups of which all pairs are neighbors

Edges = list[NDArray[np.int64]]


class _Groups:
    """Groups of items by slot: a joined group takes the slot of its first part."""

    def __init__(self, items: Items, likeness: Likeness) -> None:
        n = len(items)
        self.likeness = likeness
        self.queries, self.keys = (s.copy() for s in likeness.sides(items.embeddings))  # means
        self.names = list(items.measures)
        self.measures = np.stack([items.measures[name] for name in self.names], axis=1)  # means
        self.sizes = np.ones(n)
        self.slots = np.arange(n)  # the slot into which each was joined; its own if it is there
        self.numbers = np.arange(n)  # of the group in a slot, as in Merges
        self.edges: Edges = [np.empty(0, np.int64)] * n

    def alive(self) -> NDArray[np.int64]:
        """The slots in use."""
        return np.flatnonzero(self.slots == np.arange(len(self.slots)))

    def found(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The distinct slots of the groups that have taken in others."""
        found = self.slots[slots]
        while not np.array_equal(found, following := self.slots[found]):
            found = following
        self.slots[slots] = found
        return np.unique(found)

    def measures_at(self, slots: NDArray[np.int64]) -> Measures:
        """The measures of groups."""
        return dict(zip(self.names, self.measures[slots].T, strict=True))

    def best(self, slot: int) -> tuple[float, int] | None:
        """The likeliest neighbor of a group, with its value."""
        others = self.found(self.edges[slot])
        others = self.edges[slot] = others[others != slot]
        if not len(others):
            return None
        scores = self.keys[others] @ self.queries[slot]
        own = self.measures_at(np.array([slot]))
        values = self.likeness.values(scores, own, self.measures_at(others))
        place = int(values.argmax())
        return float(values[place]), int(others[place])

    def join(self, first: int, second: int, number: int) -> None:
        """Join the second group to the first; the result has a number of Merges."""
        pair, sizes = [first, second], self.sizes[[first, second]]
        for means in (self.queries, self.keys, self.measures):
            means[first] = np.average(means[pair], axis=0, weights=sizes)
        self.sizes[first] = sizes.sum()
        self.edges[first] = np.concatenate([self.edges[first], self.edges[second]])
        self.edges[second] = np.empty(0, np.int64)
        self.slots[second] = first
        self.numbers[first] = number

    def connect(self) -> None:
        """Find the nearest neighbors of all groups by score; of few groups, all are neighbors."""
        alive = self.alive()
        if len(alive) <= MOST_COMPLETE:
            for slot in alive:
                self.edges[slot] = alive[alive != slot]
            return
        keys, size = self.keys[alive], max(1, SCORES_AT_ONCE // len(alive))
        near = np.empty((len(alive), NEIGHBORS), np.int64)
        for start in range(0, len(alive), size):
            rows = np.arange(start, min(start + size, len(alive)))
            scores = self.queries[alive[rows]] @ keys.T
            scores[np.arange(len(rows)), rows] = -np.inf
            near[rows] = best_columns(scores, NEIGHBORS)
        # Neighbors are so in both directions: pairs as single numbers, sorted by the first.
        one, other = np.repeat(np.arange(len(alive)), NEIGHBORS), near.ravel()
        pairs = np.concatenate([one * len(alive) + other, other * len(alive) + one])
        one, other = np.divmod(np.unique(pairs), len(alive))
        borders = np.searchsorted(one, np.arange(1, len(alive)))
        for slot, others in zip(alive, np.split(alive[other], borders), strict=True):
            self.edges[slot] = others.copy()  # not a part of the array of all pairs


def best_columns(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The columns (n, count) of the highest scores in each row of (n, m)."""
    return torch.from_numpy(scores).topk(count, dim=1).indices.numpy()


def graph_merges(items: Items, likeness: Likeness, below_zero: bool = True) -> Merges:
    """The merges of items, likeliest neighbors first: all above zero, then perhaps the others."""
    groups = _Groups(items, likeness)
    n = len(items)
    merges: list[tuple[int, int, float]] = []
    for floor in (0.0, -np.inf) if below_zero else (0.0,):
        while len(merges) < n - 1:
            before = len(merges)
            groups.connect()
            _join_neighbors(groups, floor, n, merges)
            if len(merges) == before:
                break
    first, second, values = (np.array(x) for x in zip(*merges, strict=True)) if merges else [[]] * 3
    return Merges(n, np.array(first, np.int64), np.array(second, np.int64), np.array(values, float))


def _join_neighbors(
    groups: _Groups, floor: float, items: int, merges: list[tuple[int, int, float]]
) -> None:
    """Join neighbors, the likeliest first, as long as their value is at least ``floor``.

    The value that a group had with its best neighbor is an upper bound of what it has later, as the
    mean of means is no greater than the greatest. So it is computed again only when it comes first.
    """
    heap: list[tuple[float, int, int, int, int]] = []  # minus value, slots, and their numbers

    def push(slot: int) -> None:
        if (found := groups.best(slot)) is not None and found[0] >= floor:
            numbers = groups.numbers[[slot, found[1]]].tolist()
            heapq.heappush(heap, (-found[0], slot, found[1], *numbers))

    for slot in groups.alive().tolist():
        push(slot)
    while heap:
        value, slot, other, number, other_number = heapq.heappop(heap)
        if groups.slots[slot] != slot or groups.numbers[slot] != number:
            continue  # joined since; the joined group has an entry of its own
        if groups.slots[other] != other or groups.numbers[other] != other_number:
            push(slot)
            continue
        merges.append((number, other_number, -value))
        groups.join(slot, other, items + len(merges) - 1)
        push(slot)
