"""Laws of DET curves: thinning that no eye can see, limits that show what matters, whole files."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from simple_spk.data.trials import Trials
from simple_spk.evaluation.error_rates import error_rates
from simple_spk.evaluation.metrics import equal_error_rate
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.det_curve import GRID_LINES, TICKS, det_curve, det_limits, probit
from simple_spk.report.det_plot import write_det_plot
from simple_spk.report.operating_points import OWN_THRESHOLD, operating_points

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
    points = operating_points(rates, (0.01, 0.5), own_threshold=own)
    assert [p.name for p in points] == ["EER", "minDCF(0.01)", "minDCF(0.5)", OWN_THRESHOLD]
    for point in points:
        assert point.miss_rate == np.mean(scores[labels] < point.threshold)
        assert point.false_alarm_rate == np.mean(scores[~labels] >= point.threshold)
    assert points[-1].threshold == own
    assert len(operating_points(rates, (0.01,))) == 2


def scored(seed: int = 0, labeled: bool = True) -> ScoredTrials:
    generator = np.random.default_rng(seed)
    is_target = np.arange(2000) % 3 == 0
    index = np.arange(2000, dtype=np.int32)
    trials = Trials([f"r{i}" for i in index], index, index[::-1], is_target if labeled else None)
    return ScoredTrials(trials, generator.normal(2.0 * is_target), f"list {seed}", threshold=1.0)


def test_the_picture_is_whole_and_the_same_each_time(tmp_path):
    for name in ("a.png", "b.png"):
        write_det_plot(tmp_path / name, [scored(0), scored(1)])
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert not list(tmp_path.glob("*.partial"))
    pixels = imread(tmp_path / "a.png")
    assert min(pixels.shape[:2]) >= 600
    write_det_plot(tmp_path / "one.png", [scored(0)])
    assert (imread(tmp_path / "one.png") != pixels).any(), "the second curve is to be seen"


def test_the_drawing_is_a_file_that_explains_itself(tmp_path):
    for name in ("a.svg", "b.svg"):
        write_det_plot(tmp_path / name, [scored(0), scored(1)])
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert len(text) < 40_000 and "prefers-color-scheme: dark" in text
    drawing = ElementTree.fromstring(text)  # what is no XML, no browser shows as a file
    space = "{http://www.w3.org/2000/svg}"
    words = [element.text for element in drawing.iter(f"{space}text")]
    rates = error_rates(scored(1).scores, scored(1).trials.is_target)
    assert f"list 1: EER {100 * equal_error_rate(rates).rate:.2f} %" in words
    assert {"EER", "minDCF(0.01)", OWN_THRESHOLD, "Misses (%)", "False alarms (%)"} <= set(words)
    size = float(drawing.get("width")), float(drawing.get("height"))
    for element in drawing.iter(f"{space}text"):
        place = [float(element.get(axis, 0.0)) for axis in "xy"]
        assert 0 <= place[0] < size[0] and 0 <= place[1] < size[1], f"{element.text} is cut off"
    curves = [e for e in drawing.iter(f"{space}path") if e.get("clip-path")]
    assert len(curves) == 3, "a diagonal and two lists"


def test_lists_without_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="list 1 has no labels"):
        write_det_plot(tmp_path / "x.png", [scored(0), scored(1, labeled=False)])
    with pytest.raises(ValueError, match="no lists"):
        write_det_plot(tmp_path / "x.png", [])
    assert not list(tmp_path.iterdir())
