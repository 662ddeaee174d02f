"""DET curves: invisible thinning, limits that show what matters, whole files; calibration bins."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import rc_context, rcParams
from matplotlib.image import imread

from simple_spk.data.trials import Trials
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.error_rates import error_rates
from simple_spk.evaluation.metrics import equal_error_rate
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.charts import (
    DARK,
    GRID_LINES,
    LIGHT,
    OWN_THRESHOLD,
    TICKS,
    det_curve,
    det_limits,
    observed_ratios,
    operating_points,
    probit,
    write_det_plot,
)

laws = settings(max_examples=150, deadline=None, derandomize=True)
small_lists = st.lists(
    st.tuples(st.integers(-4, 4).map(lambda n: n / 2), st.booleans()), min_size=2, max_size=30
).filter(lambda rows: 0 < sum(label for _, label in rows) < len(rows))


def distances(points: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Distances (n,) of points (n, 2) from a polyline (k, 2), by looking at every segment."""
    start, step = line[:-1], np.diff(line, axis=0)
    lengths = np.maximum((step**2).sum(1), 1e-300)
    nearest = np.full(len(points), np.inf)
    for point in range(0, len(points), 500):
        block = points[point : point + 500, None]
        along = np.clip(((block - start) * step).sum(2) / lengths, 0.0, 1.0)
        away = np.linalg.norm(block - start - along[..., None] * step, axis=2)
        nearest[point : point + 500] = away.min(1)
    return nearest


@pytest.mark.parametrize("separation", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("decimals", [1, 12])
def test_thinning_moves_no_point_by_a_cell(separation, decimals):
    generator = np.random.default_rng(0)
    is_target = np.arange(40_000) % 4 == 0
    scores = generator.normal(separation * is_target, 1.0 + 0.3 * is_target).round(decimals)
    rates = error_rates(scores, is_target)
    limits = det_limits([rates])
    thin = np.stack(det_curve(rates, limits), axis=1)
    full = np.stack([probit(rates.false_alarm_rates), probit(rates.miss_rates)], axis=1)
    low, high = probit(limits)
    inside = full[((full >= low) & (full <= high)).all(1)]
    assert len(inside) and len(thin) <= 4 * (GRID_LINES + 1)
    assert distances(inside[::7], thin).max() < (high - low) / GRID_LINES


@laws
@given(rows=st.lists(small_lists, min_size=1, max_size=3))
def test_limits_and_points_of_any_lists(rows):
    curves = [error_rates(*zip(*one, strict=True)) for one in rows]
    limits = det_limits(curves)
    assert 0.0 < limits.low < limits.high < 1.0
    assert len(limits.ticks) >= 4 and set(limits.ticks) <= set(TICKS)
    for curve in curves:
        rate = equal_error_rate(curve).rate
        assert limits.contain(rate) or rate > 0.95 or rate == 0.0
        x, y = det_curve(curve, limits)
        assert np.isfinite(x).all() and np.isfinite(y).all()
        assert (np.diff(x) <= 0).all() and (np.diff(y) >= 0).all()


@laws
@given(rows=small_lists, own=st.integers(-5, 5))
def test_operating_points_are_what_their_thresholds_give(rows, own):
    scores, labels = map(np.array, zip(*rows, strict=True))
    rates = error_rates(scores, labels)
    points = operating_points(rates, MetricOptions((0.01, 0.5)), own)
    assert [p.name for p in points] == ["EER", "minDCF(0.01)", "minDCF(0.5)", OWN_THRESHOLD]
    for point in points:
        assert point.miss_rate == np.mean(scores[labels] < point.threshold)
        assert point.false_alarm_rate == np.mean(scores[~labels] >= point.threshold)
    assert points[-1].threshold == own
    assert len(operating_points(rates, MetricOptions((0.01,)))) == 2


def scored(seed: int = 0, labeled: bool = True) -> ScoredTrials:
    generator = np.random.default_rng(seed)
    is_target = np.arange(2000) % 3 == 0
    index = np.arange(2000, dtype=np.int32)
    trials = Trials([f"r{i}" for i in index], index, index[::-1], is_target if labeled else None)
    return ScoredTrials(trials, generator.normal(2.0 * is_target), f"list {seed}", threshold=1.0)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_file_is_whole_and_the_same_each_time(tmp_path, suffix):
    for name in ("a", "b"):
        write_det_plot(tmp_path / f"{name}.{suffix}", [scored(0), scored(1)])
    write_det_plot(tmp_path / f"one.{suffix}", [scored(0)])
    both, again, one = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("a", "b", "one"))
    assert both == again and both != one, "the second curve is drawn"
    assert not list(tmp_path.glob("*.partial"))
    if suffix == "png":
        assert min(imread(tmp_path / "a.png").shape[:2]) >= 600


def test_settings_of_the_user_do_not_matter(tmp_path):
    write_det_plot(tmp_path / "a.svg", [scored(0)])
    with rc_context({"svg.fonttype": "path", "font.size": 30, "axes.facecolor": "red"}):
        write_det_plot(tmp_path / "b.svg", [scored(0)])
        assert rcParams["font.size"] == 30, "they are restored"
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_drawing_is_a_file_that_explains_itself(tmp_path):
    odd = replace(scored(1), name="_list of $5$ & <1> euro")
    long = replace(scored(2), name="a name that needs more than one line " * 3)
    write_det_plot(tmp_path / "a.svg", [scored(0), odd, long])
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert len(text) < 70_000 and "prefers-color-scheme: dark" in text
    drawing = ElementTree.fromstring(text)  # a browser shows only well-formed XML as a file
    space = "{http://www.w3.org/2000/svg}"
    words = [element.text for element in drawing.iter(f"{space}text")]
    rates = error_rates(odd.scores, odd.trials.is_target)
    assert f"{odd.name}: EER {100 * equal_error_rate(rates).rate:.2f} %" in words
    assert {"EER", "minDCF(0.01)", OWN_THRESHOLD, "Misses (%)", "False alarms (%)"} <= set(words)
    width, height = map(float, drawing.get("viewBox").split()[2:])
    for element in drawing.iter(f"{space}text"):
        x, y = (float(element.get(axis, 0.0)) for axis in "xy")
        assert 0 <= y < height and 0 <= x < width, f"{element.text} is cut off"
        if element.get("style").endswith("text-anchor: start"):
            assert x + 6.5 * len(element.text) < width, f"{element.text} is cut off"
    curves = [e for e in drawing.iter(f"{space}path") if "stroke-width: 2" in e.get("style", "")]
    assert len(curves) == 2 * 3, "three lists, and their lines in the legend"


def test_every_color_of_a_chart_has_a_dark_one(tmp_path):
    write_det_plot(tmp_path / "a.svg", [scored(seed) for seed in range(8)])
    drawing = ElementTree.parse(tmp_path / "a.svg")
    styles = " ".join(element.get("style", "") for element in drawing.iter())
    used = set(re.findall("#[0-9a-f]{6}", styles))
    assert used <= set(LIGHT.values()) and set(LIGHT) == set(DARK)
    assert len(set(LIGHT.values())) == len(LIGHT)


def test_lists_without_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="list 1 has no labels"):
        write_det_plot(tmp_path / "x.png", [scored(0), scored(1, labeled=False)])
    with pytest.raises(ValueError, match="no lists"):
        write_det_plot(tmp_path / "x.png", [])
    assert not list(tmp_path.iterdir())


def test_scores_that_are_log_likelihood_ratios_lie_on_the_diagonal():
    generator = np.random.default_rng(0)
    is_target = np.arange(400_000) % 2 == 0
    # Normal scores of variance 2m and means m, -m are their own log likelihood ratios.
    scores = generator.normal(np.where(is_target, 3.0, -3.0), np.sqrt(6.0))
    found = observed_ratios(scores, is_target)
    sure = found.standard_errors < 0.2
    assert sure.sum() > 10
    assert np.abs(found.log_ratios - found.scores)[sure].max() < 0.35


def test_calibration_as_by_counting():
    # Two scores, both of both classes: two bins that hold everything.
    scores = np.repeat([0.0, 1.0], [40, 60])
    is_target = np.isin(np.arange(100), [*range(10), *range(40, 85)])
    found = observed_ratios(scores, is_target)
    assert found.scores.tolist() == [0.0, 1.0]
    odds = [(10.5 / 56) / (30.5 / 46), (45.5 / 56) / (15.5 / 46)]
    assert found.log_ratios == pytest.approx(np.log(odds))
    errors = [1 / 10.5 + 1 / 30.5, 1 / 45.5 + 1 / 15.5]
    assert found.standard_errors == pytest.approx(np.sqrt(errors))
