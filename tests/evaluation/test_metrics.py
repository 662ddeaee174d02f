"""Laws of the metrics, against slow references that follow the definitions in exact fractions."""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from simple_spk.evaluation import error_rates, metrics

laws = settings(max_examples=250, deadline=None, derandomize=True)


class Case(NamedTuple):
    """A small list of trials."""

    scores: list[float]
    is_target: list[bool]
    weights: list[int]

    def repeated(self) -> tuple[list[float], list[bool]]:
        """Scores and labels with every trial written out as often as it weighs."""
        rows = list(zip(*self, strict=True))
        return (
            [score for score, _, weight in rows for _ in range(weight)],
            [label for _, label, weight in rows for _ in range(weight)],
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Lists with both classes, from one trial each upward, and from no ties to nothing else."""
    levels = draw(st.sampled_from([1, 2, 5, 1000]))
    trials = st.tuples(st.integers(-levels, levels), st.booleans(), st.integers(0, 3))
    rows = draw(st.lists(trials, max_size=25))
    rows += [(draw(st.integers(-levels, levels)), label, 1) for label in (False, True)]
    rows = draw(st.permutations(rows))
    return Case([row[0] / 4 for row in rows], [row[1] for row in rows], [row[2] for row in rows])


Point = tuple[Fraction, Fraction]  # miss rate, false alarm rate
Costs = tuple[float, float, float]  # target prior, cost of a miss, cost of a false alarm


def reference_points(scores: list[float], is_target: list[bool]) -> dict[float, Point]:
    """Threshold -> rates, by counting all trials again for every threshold."""
    targets = sum(is_target)
    points = {}
    for threshold in [*sorted(set(scores)), math.inf]:
        misses = false_alarms = 0
        for score, same in zip(scores, is_target, strict=True):
            misses += same and score < threshold
            false_alarms += not same and score >= threshold
        nontargets = len(scores) - targets
        points[threshold] = (Fraction(misses, targets), Fraction(false_alarms, nontargets))
    return points


def reference_crossing(start: Point, end: Point) -> Fraction | None:
    """Where the line from start to end has equal rates, if it does."""
    before, after = start[1] - start[0], end[0] - end[1]
    if before < 0 or after < 0 or before + after == 0:
        return None
    return start[0] + before / (before + after) * (end[0] - start[0])


def reference_calibration(scores: list[float], is_target: list[bool]) -> list[list[int]]:
    """Pool adjacent violators: pools of [targets, non-targets], the share of targets rising."""
    pools: list[list[int]] = []
    for level in sorted(set(scores)):
        labels = [same for score, same in zip(scores, is_target, strict=True) if score == level]
        pools.append([sum(labels), len(labels) - sum(labels)])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            last = pools.pop()
            pools[-1] = [pools[-1][0] + last[0], pools[-1][1] + last[1]]
    return pools


def bayes(prior: float, miss_cost: float = 1.0, false_alarm_cost: float = 1.0) -> float:
    """The log likelihood ratio from which accepting has the lower expected cost."""
    return math.log(false_alarm_cost * (1 - prior) / (miss_cost * prior))


def cllr(scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None = None) -> float:
    return metrics.log_likelihood_ratio_cost(error_rates.sort_trials(scores, is_target, weights))


def rates_of(case: Case) -> error_rates.ErrorRates:
    return error_rates.error_rates(case.scores, case.is_target)


@laws
@given(cases())
def test_rates_and_everything_read_from_them_match_the_definitions(case: Case) -> None:
    scores, is_target, _ = case
    rates = rates_of(case)
    expected = reference_points(scores, is_target)
    points = list(expected.values())
    # Equality, not closeness: counts are integers, and one division rounds correctly.
    assert rates.thresholds.tolist() == list(expected)
    assert rates.miss_rates.tolist() == [float(miss) for miss, _ in points]
    assert rates.false_alarm_rates.tolist() == [float(false_alarm) for _, false_alarm in points]

    on_curve = [reference_crossing(*ends) for ends in pairwise(points)]
    equal = metrics.equal_error_rate(rates)
    assert equal.rate == pytest.approx(float(next(x for x in on_curve if x is not None)))
    imbalance = {threshold: abs(miss - alarm) for threshold, (miss, alarm) in expected.items()}
    assert imbalance[equal.threshold] == min(imbalance.values())
    # Below the hull nothing can be reached by mixing two systems; on it, something can.
    mixed = [reference_crossing(*ends) for ends in combinations(points, 2)]
    lowest = min(x for x in mixed if x is not None)
    assert metrics.convex_hull_equal_error_rate(rates) == pytest.approx(float(lowest), abs=1e-12)

    pairs = [
        Fraction(int(high > low) + int(high >= low), 2)
        for high, same in zip(scores, is_target, strict=True)
        if same
        for low, other in zip(scores, is_target, strict=True)
        if not other
    ]
    area = float(sum(pairs) / len(pairs))
    trials = error_rates.sort_trials(scores, is_target)
    assert metrics.area_under_curve(trials) == pytest.approx(area, abs=1e-12)
    reached = rates.false_alarm_rates.tolist()
    for limit in (0.1, *reached, *(math.nextafter(rate, 0.0) for rate in reached)):
        best = max(1 - miss for miss, false_alarm in points if float(false_alarm) <= limit)
        assert metrics.true_positive_rate_at(rates, limit) == pytest.approx(float(best))


@laws
@given(cases(), st.floats(0.001, 0.999), st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_detection_costs_match_the_definition(
    case: Case, prior: float, miss_cost: float, false_alarm_cost: float
) -> None:
    rates = rates_of(case)
    points = reference_points(case.scores, case.is_target)
    do_nothing = min(miss_cost * prior, false_alarm_cost * (1 - prior))
    expected = {
        threshold: (
            miss_cost * prior * float(miss) + false_alarm_cost * (1 - prior) * float(false_alarm)
        )
        / do_nothing
        for threshold, (miss, false_alarm) in points.items()
    }
    costs = metrics.detection_cost(rates, prior, miss_cost, false_alarm_cost)
    assert costs.tolist() == pytest.approx(list(expected.values()))
    lowest = metrics.minimum_detection_cost(rates, prior, miss_cost, false_alarm_cost)
    assert lowest.cost == min(costs) <= 1.0
    assert expected[lowest.threshold] == pytest.approx(min(expected.values()))

    trials = error_rates.sort_trials(case.scores, case.is_target)
    actual = metrics.actual_detection_cost(trials, prior, miss_cost, false_alarm_cost)
    bayes_threshold = metrics.bayes_threshold(prior, miss_cost, false_alarm_cost)
    assert bayes_threshold == pytest.approx(bayes(prior, miss_cost, false_alarm_cost), abs=1e-12)
    reached = min(threshold for threshold in expected if threshold >= bayes_threshold)
    assert actual == pytest.approx(expected[reached])
    assert actual >= lowest.cost


@laws
@given(cases())
def test_likelihood_ratio_costs_match_the_definitions(case: Case) -> None:
    per_class: dict[bool, list[float]] = {True: [], False: []}
    for score, same in zip(case.scores, case.is_target, strict=True):
        per_class[same].append(math.log2(1 + math.exp(-score if same else score)))
    expected = sum(sum(bits) / len(bits) for bits in per_class.values()) / 2
    cost = cllr(case.scores, case.is_target)
    assert cost == pytest.approx(expected)

    targets = sum(case.is_target)
    nontargets = len(case.scores) - targets
    lowest = 0.0
    for pool in reference_calibration(case.scores, case.is_target):
        share, other = pool[0] / targets, pool[1] / nontargets
        ratio = share / other if other else math.inf
        lowest += share * math.log2(1 + 1 / ratio) / 2 if share else 0.0
        lowest += other * math.log2(1 + ratio) / 2 if other else 0.0
    minimum = metrics.minimum_log_likelihood_ratio_cost(rates_of(case))
    assert minimum == pytest.approx(lowest, abs=1e-12)
    assert minimum <= min(cost, 1.0) + 1e-12


def all_values(
    scores: list[float], is_target: list[bool], weights: list[float] | None = None
) -> dict[str, float]:
    """Every metric that is a single number."""
    rates = error_rates.error_rates(scores, is_target, weights)
    trials = error_rates.sort_trials(scores, is_target, weights)
    return {
        "eer": metrics.equal_error_rate(rates).rate,
        "hull": metrics.convex_hull_equal_error_rate(rates),
        "min_dcf": metrics.minimum_detection_cost(rates).cost,
        "min_cllr": metrics.minimum_log_likelihood_ratio_cost(rates),
        "area": metrics.area_under_curve(trials),
        "actual": metrics.actual_detection_cost(trials, 0.2, 3.0),
        "cllr": metrics.log_likelihood_ratio_cost(trials),
    }


@laws
@given(cases(), st.floats(0.01, 100.0))
def test_a_weight_counts_as_repeated_trials_whatever_its_unit(case: Case, unit: float) -> None:
    expected = pytest.approx(all_values(*case.repeated()), abs=1e-9)
    weights = [float(weight) for weight in case.weights]
    assert all_values(case.scores, case.is_target, weights) == expected
    scaled = [unit * weight for weight in weights]
    assert all_values(case.scores, case.is_target, scaled) == expected


@laws
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_trials_does_not_matter(case: Case, random: Random) -> None:
    rows = list(zip(*case, strict=True))
    random.shuffle(rows)
    shuffled = Case(*(list(column) for column in zip(*rows, strict=True)))
    before, after = rates_of(case), rates_of(shuffled)
    assert before.miss_rates.tolist() == after.miss_rates.tolist()
    assert before.false_alarm_rates.tolist() == after.false_alarm_rates.tolist()


@laws
@given(cases(), st.sampled_from([math.atan, math.exp, lambda x: 3 * x - 7, lambda x: x**3]))
def test_rising_transforms_change_nothing(case: Case, rise: Callable[[float], float]) -> None:
    # Within +-32, where floats keep distinct scores distinct under all of these transforms.
    small = Case([score / 8 for score in case.scores], *case[1:])
    moved = Case([rise(score) for score in small.scores], *case[1:])
    before, after = rates_of(small), rates_of(moved)
    equal, equal_after = metrics.equal_error_rate(before), metrics.equal_error_rate(after)
    assert equal_after == (equal.rate, rise(equal.threshold))
    for prior in (0.01, 0.5, 0.99):
        cost = metrics.minimum_detection_cost(before, prior).cost
        assert metrics.minimum_detection_cost(after, prior).cost == cost


@laws
@given(cases(), st.floats(0.01, 0.99))
def test_negated_scores_with_swapped_classes_are_the_same_system(case: Case, prior: float) -> None:
    mirrored = Case([-score for score in case.scores], [not x for x in case.is_target], [])
    before, after = rates_of(case), rates_of(mirrored)
    for measure in (
        lambda rates: metrics.equal_error_rate(rates).rate,
        metrics.convex_hull_equal_error_rate,
        metrics.minimum_log_likelihood_ratio_cost,
    ):
        assert measure(after) == pytest.approx(measure(before), abs=1e-12)
    areas = [
        metrics.area_under_curve(error_rates.sort_trials(one.scores, one.is_target))
        for one in (case, mirrored)
    ]
    assert areas[1] == pytest.approx(areas[0], abs=1e-12)
    cost = metrics.minimum_detection_cost(before, prior, 2.0, 3.0).cost
    swapped = metrics.minimum_detection_cost(after, 1 - prior, 3.0, 2.0).cost
    assert swapped == pytest.approx(cost)


@laws
@given(cases())
def test_the_hull_is_below_the_curve_and_below_chance(case: Case) -> None:
    rates = rates_of(case)
    hull = metrics.convex_hull_equal_error_rate(rates)
    assert 0.0 <= hull <= min(metrics.equal_error_rate(rates).rate, 0.5) + 1e-12


@pytest.mark.parametrize("nontargets", [1, 5, 1000])
def test_equal_scores_are_worth_nothing_and_separate_scores_everything(nontargets: int) -> None:
    is_target = [True] + [False] * nontargets
    equal = error_rates.error_rates([0.3] * len(is_target), is_target)
    assert metrics.equal_error_rate(equal) == (0.5, 0.3)
    assert metrics.minimum_detection_cost(equal).cost == 1.0
    assert metrics.minimum_log_likelihood_ratio_cost(equal) == 1.0
    apart = error_rates.error_rates(is_target, is_target)
    assert metrics.equal_error_rate(apart) == (0.0, 1.0)
    assert metrics.minimum_detection_cost(apart) == (0.0, 1.0)
    assert metrics.minimum_log_likelihood_ratio_cost(apart) == 0.0
    # Reject-all beats this inverted system; the threshold says so.
    inverted = error_rates.error_rates(np.logical_not(is_target), is_target)
    assert metrics.equal_error_rate(inverted).rate == 1.0
    assert metrics.minimum_detection_cost(inverted) == (1.0, math.inf)


def test_a_large_list_agrees_with_the_theory_of_two_normal_distributions() -> None:
    random = np.random.default_rng(0)
    is_target = np.arange(400_000) % 2 == 0
    # True log likelihood ratios: mean and half the variance agree.
    scores = (random.normal(size=len(is_target)) * 2 + np.where(is_target, 2, -2)).astype("float32")
    rates = error_rates.error_rates(scores, is_target)
    assert rates.thresholds.dtype == np.float32
    expected = 0.5 * math.erfc(1 / math.sqrt(2))
    assert metrics.equal_error_rate(rates).rate == pytest.approx(expected, abs=0.003)
    assert metrics.convex_hull_equal_error_rate(rates) == pytest.approx(expected, abs=0.003)
    cost = cllr(scores, is_target)
    assert metrics.minimum_log_likelihood_ratio_cost(rates) == pytest.approx(cost, abs=0.003)
    assert metrics.minimum_log_likelihood_ratio_cost(rates) <= cost


def test_a_curve_that_gives_way_one_corner_at_a_time_keeps_only_its_ends() -> None:
    # Ever better scores, and then, on top, a heap of non-targets that undoes all of it.
    levels = np.arange(3000.0)
    scores = np.concatenate([levels, levels, [1e9]])
    is_target = np.repeat([True, False, False], [3000, 3000, 1])
    weights = np.concatenate([levels + 1, np.ones(3000), [1e12]])
    rates = error_rates.error_rates(scores, is_target, weights)
    assert metrics.convex_hull_equal_error_rate(rates) == pytest.approx(0.5)
    assert metrics.minimum_log_likelihood_ratio_cost(rates) == pytest.approx(1.0)


def test_the_bayes_threshold_is_not_rounded_to_the_precision_of_the_scores() -> None:
    priors = [number / 100 for number in range(1, 50)]
    prior = next(x for x in priors if float(np.float32(bayes(x))) < bayes(x))
    scores = np.array([-5.0, bayes(prior)], dtype=np.float32)
    trials = error_rates.sort_trials(scores, [0, 1])
    assert metrics.actual_detection_cost(trials, prior) == 1.0
    scores[1] = np.nextafter(scores[1], np.float32(math.inf))
    trials = error_rates.sort_trials(scores, [0, 1])
    assert metrics.actual_detection_cost(trials, prior) == 0.0


def test_summary_is_plain_json() -> None:
    scores, is_target = np.array([0.25, 0.5, 0.5, 0.75], np.float32), np.array([0, 0, 1, 1])
    result = metrics.summary(scores, is_target)
    assert json.loads(json.dumps(result, allow_nan=False)) == {
        "eer": 25.0,
        "eer_threshold": 0.5,
        "eer_convex_hull": 25.0,
        "min_dcf": {"0.01": 0.5, "0.05": 0.5},
        "act_dcf": {"0.01": 1.0, "0.05": 1.0},
        "cllr": cllr(scores, is_target),
        "min_cllr": metrics.minimum_log_likelihood_ratio_cost(
            error_rates.error_rates(scores, is_target)
        ),
        "auc": 0.875,
        "trials": 4,
        "targets": 2,
    }
    weighted = metrics.summary(scores, is_target, weights=[1, 0, 1, 1], priors=[0.5, 1e-6])
    assert (weighted["eer"], weighted["trials"], list(weighted["min_dcf"])) == (
        *(0.0, 4),
        ["0.5", "1e-06"],
    )


def assert_parts_read_like_the_whole(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None, costs: Costs
) -> None:
    """Every reading of a part, and every entry of the summary, is that of the whole curve."""
    whole = error_rates.error_rates(scores, is_target, weights)
    trials = error_rates.sort_trials(scores, is_target, weights)
    equal = metrics.equal_error_rate(whole)
    assert metrics.equal_error_rate(metrics.around_equal_rates(trials)) == equal
    lowest = metrics.minimum_detection_cost(whole, *costs)
    part = metrics.around_minimum_cost(trials, *costs)
    assert metrics.minimum_detection_cost(part, *costs) == lowest
    threshold = metrics.bayes_threshold(*costs)
    at = np.searchsorted(whole.thresholds, np.float64(threshold))
    rates = whole.miss_rates[at], whole.false_alarm_rates[at]
    close = pytest.approx(rates, abs=1e-12)
    if weights is None:
        assert error_rates.error_rates_at(scores, is_target, threshold) == close
    prior, *cost_pair = costs
    name = metrics.prior_name(prior)
    summary = metrics.summary(scores, is_target, weights, [prior], *cost_pair)
    assert (summary["eer"], summary["eer_threshold"]) == (100 * equal.rate, equal.threshold)
    assert summary["min_dcf"] == {name: lowest.cost}
    assert summary["act_dcf"] == {name: metrics.detection_cost(whole, *costs)[at]}
    hull = metrics.convex_hull_equal_error_rate(whole)
    assert summary["eer_convex_hull"] == pytest.approx(100 * hull, abs=1e-9)
    lowest_bits = metrics.minimum_log_likelihood_ratio_cost(whole)
    assert summary["min_cllr"] == pytest.approx(lowest_bits, abs=1e-9)
    assert summary["cllr"] == cllr(scores, is_target, weights)
    steps = whole.false_alarm_rates[:-1] - whole.false_alarm_rates[1:]
    area = 1.0 - float(steps @ (whole.miss_rates[:-1] + whole.miss_rates[1:])) / 2
    assert summary["auc"] == pytest.approx(area, abs=1e-9)


@settings(laws, max_examples=1000)
@given(cases(), st.booleans(), st.sampled_from([0.001, 0.01, 0.3, 0.5, 0.9]), st.integers(1, 9))
def test_the_parts_of_the_curve_that_matter_read_like_the_whole(
    case: Case, weighted: bool, prior: float, miss_cost: int
) -> None:
    weights = [float(weight) for weight in case.weights] if weighted else None
    costs = (prior, float(miss_cost), 2.0)
    assert_parts_read_like_the_whole(case.scores, case.is_target, weights, costs)


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_longer_curves_read_like_the_whole(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(100, 20_000))
    targets = int(random.choice([1, 3, count // 100 + 1, count // 2, count - 1]))
    is_target = random.permutation(count) < targets
    scores = random.normal(size=count) + random.choice([-1.0, 0.0, 1.0, 4.0]) * is_target
    scores = np.round(scores, int(random.integers(0, 9))).astype(random.choice(["f4", "f8"]))
    weights = random.choice([0.0, 0.1, 1.0, 7.3], size=count) if seed % 3 == 0 else None
    if weights is not None:
        weights[is_target.argmax()] = weights[is_target.argmin()] = 1.0  # no class is empty
    costs = (float(random.uniform(0.001, 0.999)), float(random.uniform(0.1, 10.0)), 1.0)
    assert_parts_read_like_the_whole(scores, is_target, weights, costs)


def test_the_parts_are_short() -> None:
    random = np.random.default_rng(0)
    is_target = np.arange(300_000) % 3 == 0
    trials = error_rates.sort_trials(
        random.normal(size=len(is_target)) + 3.0 * is_target, is_target
    )
    assert len(metrics.around_equal_rates(trials).thresholds) < 0.01 * len(is_target)
    assert len(metrics.around_minimum_cost(trials, 0.01).thresholds) < 0.1 * len(is_target)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "no scores"),
        (([1.0, 2.0], [True]), r"shape \(2,\) and is_target \(1,\)"),
        (([1.0, 2.0], [True, False], [1.0]), r"shape \(2,\) and weights \(1,\)"),
        (([[1.0, 2.0]], [[True, False]]), "one-dimensional"),
        (([0.0, math.nan, math.inf], [0, 1, 1]), "2 of 3 are not, the first at index 1: nan"),
        (([0.0, 1.0], [0, 2]), "0 and 1: 1 of 2 are not, the first at index 1: 2"),
        (([0.0, 1.0], [1, 1]), "2 targets and 0 non-targets"),
        (([0.0, 1.0], [0, 0]), "0 targets and 2 non-targets"),
        (([0.0, 1.0], [0, 1], [1.0, 0.0]), "0 targets and 1 non-targets"),
        (([0.0, 1.0], [0, 1], [1.0, -1.0]), ">= 0: 1 of 2 are not, the first at index 1: -1.0"),
    ],
)
def test_unusable_trials_are_refused(arguments: tuple[list[float], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.summary(*arguments)


def test_unusable_settings_are_refused() -> None:
    rates = error_rates.error_rates([0.0, 1.0], [0, 1])
    for prior in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            metrics.detection_cost(rates, prior)
    with pytest.raises(ValueError, match="false_alarm_cost must be positive"):
        metrics.detection_cost(rates, 0.5, false_alarm_cost=0.0)
    with pytest.raises(ValueError, match="threshold must be a number"):
        error_rates.error_rates_at([0.0, 1.0], [0, 1], math.nan)
    with pytest.raises(ValueError, match=r"in \[0, 1\], not 1.5"):
        metrics.true_positive_rate_at(rates, 1.5)
