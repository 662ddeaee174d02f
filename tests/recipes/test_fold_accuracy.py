"""Laws of accuracy over folds, beside a reference that tries every threshold by counting."""

import math
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipes.Face.metrics import fold_accuracies, most_accurate_threshold, verification_rates
from recipes.Face.pairs import read_face_pairs
from simple_spk.evaluation.error_rates import error_rates
from simple_spk.evaluation.metrics import true_positive_rate_at

laws = settings(max_examples=60, deadline=None, derandomize=True)


class Case(NamedTuple):
    """Pairs in folds."""

    scores: list[float]
    is_target: list[bool]
    folds: list[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Two to five folds, each with both labels, from no ties to nothing else."""
    levels = draw(st.sampled_from([1, 2, 5, 1000]))
    level = st.integers(-levels, levels)
    folds = draw(st.integers(2, 5))
    pair = st.tuples(level, st.booleans(), st.integers(1, folds))
    rows = draw(st.lists(pair, max_size=25))
    rows += [(draw(level), label, fold + 1) for fold in range(folds) for label in (False, True)]
    rows = draw(st.permutations(rows))
    return Case([row[0] / 4 for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def errors(scores: list[float], is_target: list[bool], threshold: float) -> int:
    """How many pairs are judged wrongly by accepting from a threshold upwards."""
    return sum((s >= threshold) != label for s, label in zip(scores, is_target, strict=True))


def reference_threshold(scores: list[float], is_target: list[bool]) -> float:
    """The first of all places between scores, before and behind them, with the fewest errors."""
    distinct = sorted(set(scores))
    between = [(low + high) / 2 for low, high in pairwise(distinct)]
    places = [-math.inf, *between, math.inf]
    return min(places, key=lambda place: errors(scores, is_target, place))


@laws
@given(cases())
def test_folds_are_judged_by_the_threshold_of_the_others(case: Case) -> None:
    found = fold_accuracies(*case)
    for place, fold in enumerate(sorted(set(case.folds))):
        rows = list(zip(*case, strict=True))
        others = [(score, label) for score, label, number in rows if number != fold]
        inside = [(score, label) for score, label, number in rows if number == fold]
        threshold = reference_threshold(*map(list, zip(*others, strict=True)))
        assert found.thresholds[place] == threshold
        wrong = errors(*map(list, zip(*inside, strict=True)), threshold)
        assert found.accuracies[place] == 1 - wrong / len(inside) or math.isclose(
            found.accuracies[place], 1 - wrong / len(inside)
        )


@laws
@given(cases(), st.integers(-8, 8))
def test_a_fold_has_no_say_in_its_own_threshold(case: Case, change: int) -> None:
    moved = [
        s + change if fold == 1 else s for s, fold in zip(case.scores, case.folds, strict=True)
    ]
    flipped = [b != (fold == 1) for b, fold in zip(case.is_target, case.folds, strict=True)]
    before = fold_accuracies(*case).thresholds[0]
    assert fold_accuracies(moved, case.is_target, case.folds).thresholds[0] == before
    assert fold_accuracies(case.scores, flipped, case.folds).thresholds[0] == before


@laws
@given(cases(), st.sampled_from([0.5, 4.0]), st.integers(-3, 3))
def test_neither_scale_nor_order_matters(case: Case, scale: float, shift: int) -> None:
    expected = fold_accuracies(*case).accuracies.tolist()
    scaled = [scale * score + shift for score in case.scores]
    assert fold_accuracies(scaled, case.is_target, case.folds).accuracies.tolist() == expected
    turned = [column[::-1] for column in case]
    assert fold_accuracies(*turned).accuracies.tolist() == expected


def test_what_tells_nothing_apart_is_right_half_of_the_time() -> None:
    folds, labels = np.repeat(np.arange(1, 11), 6), np.tile([True, False], 30)
    assert fold_accuracies(np.zeros(60), labels, folds).accuracies.tolist() == [0.5] * 10
    assert fold_accuracies(labels * 1.0, labels, folds).accuracies.tolist() == [1.0] * 10


def test_between_neighboring_floats_the_upper_one_is_the_threshold() -> None:
    low = 1.0
    high = math.nextafter(low, 2.0)
    assert most_accurate_threshold([low, high], [False, True]) == high


def test_folds_that_cannot_be_judged_are_refused() -> None:
    with pytest.raises(ValueError, match="found 1 folds"):
        fold_accuracies([0.0, 1.0], [0, 1], [1, 1])
    with pytest.raises(ValueError, match="other than fold 1: found 0 targets"):
        fold_accuracies([0.0, 1.0, 2.0], [0, 1, 0], [1, 1, 2])


@laws
@given(cases())
def test_rates_are_those_of_the_whole_curve(case: Case) -> None:
    limits = [0.0, 0.01, 0.1, 0.25, 1 / 3, 0.5, 1.0]
    found = verification_rates(case.scores, case.is_target, limits)
    curve = error_rates(case.scores, case.is_target)
    for limit in limits:
        assert found["tpr_at_far"][str(limit)] == 100 * true_positive_rate_at(curve, limit)
    assert (found["pairs"], found["targets"]) == (len(case.scores), sum(case.is_target))


def test_pairs_are_read_and_may_stand_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "toy_pairs.txt"
    path.write_text("1 a/1 a/2 1\n0 a/1 b/1 2\n1 a/1 a/2 10\n")
    pairs = read_face_pairs(path)
    assert pairs.trials.ids == ["a/1", "a/2", "b/1"]
    assert pairs.trials.enroll.tolist() == [0, 0, 0]
    assert pairs.trials.test.tolist() == [1, 2, 1]
    assert pairs.trials.is_target is not None
    assert pairs.trials.is_target.tolist() == [True, False, True]
    assert pairs.folds.tolist() == [1, 2, 10]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 a b 1\n1 a b\n", "line 2: found '1 a b'; expected '0|1 image image fold'"),
        ("1 a b 1\n2 a b 1\n", "line 2: found '2 a b 1'"),
        ("1 a b 0\n", "line 1: found 4 fields"),
        ("1 a b 1.5\n", "line 1: found 4 fields"),
        ("1 a b x\n", "line 1: found 4 fields"),
        ("1 a b 1\n\n0 a c 1\n", "line 2: found a blank line"),
        ("1 a# b# 1\n0 a# c 1.5", "line 2: found '0 a# c 1.5'"),
        ("", "line 1: found a blank line"),
    ],
)
def test_what_is_no_pair_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_face_pairs(path)
    assert message in str(caught.value)
