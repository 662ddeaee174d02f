"""The charts of a report: DET curves, score histograms, and how far scores are to be believed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.error_rates import ErrorRates, error_rates
from simple_spk.evaluation.metrics import equal_error_rate
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.det_curve import det_curve, det_limits, probit
from simple_spk.report.operating_points import OWN_THRESHOLD, OperatingPoint, operating_points
from simple_spk.report.style import CHART_STYLE
from simple_spk.report.svg_chart import KEY_HEIGHT, LABEL_HEIGHT, MARKERS, Chart, round_ticks

COLORS = 6  # of the page's palette; more lists than that repeat them with another dash
HISTOGRAM_BINS = 80
CALIBRATION_BINS = 24


class Curve(NamedTuple):
    """What the DET chart shows of one list."""

    name: str
    rates: ErrorRates
    points: Sequence[OperatingPoint]


class Calibration(NamedTuple):
    """Scores in bins (k,): their mean, and the log likelihood ratio that the labels show there."""

    scores: NDArray[np.float64]
    log_ratios: NDArray[np.float64]
    standard_errors: NDArray[np.float64]


def curve_of(
    scored: ScoredTrials, priors: Sequence[float], miss_cost: float, false_alarm_cost: float
) -> Curve:
    """The curve of a list, which must have labels."""
    if scored.trials.is_target is None:
        raise ValueError(f"{scored.name} has no labels; a curve of its errors needs them")
    rates = error_rates(scored.scores, scored.trials.is_target)
    points = operating_points(rates, priors, miss_cost, false_alarm_cost, scored.threshold)
    return Curve(scored.name, rates, points)


def curve_style(number: int) -> str:
    """The classes of the line of a list, by its place in the report."""
    return f"c{number % COLORS} dash{number // COLORS % 4}"


def point_marker(name: str, number: int) -> str:
    """The marker of an operating point, by its name and its place among the points."""
    outlines = list(MARKERS)
    return "diamond" if name == OWN_THRESHOLD else outlines[number % (len(outlines) - 1)]


def det_chart(curves: Sequence[Curve]) -> str:
    """Misses against false alarms of all lists, both on probit scales, as SVG for a page."""
    return _det_chart(curves).svg()


def det_file(curves: Sequence[Curve]) -> str:
    """The same as an SVG file of its own, which says what its lines and markers mean."""
    points = max((curve.points for curve in curves), key=len)
    chart = _det_chart(curves, below=KEY_HEIGHT * (len(curves) + (len(points) + 1) // 2) + 6)
    for number, curve in enumerate(curves):
        rate = 100 * equal_error_rate(curve.rates).rate
        chart.key(number, 0, f"{curve.name}: EER {rate:.2f} %", curve_style(number))
    for place, point in enumerate(points):
        row = len(curves) + place // 2
        chart.key(row, place % 2, point.name, "", point_marker(point.name, place))
    return chart.svg(CHART_STYLE) + "\n"


def _det_chart(curves: Sequence[Curve], below: int = 0) -> Chart:
    """The chart of det_chart, with room for keys below it."""
    limits = det_limits([curve.rates for curve in curves])
    low, high = probit(limits).tolist()
    equal = [equal_error_rate(curve.rates).rate for curve in curves]
    texts = (
        f"{curve.name}: equal error rate {100 * rate:.2f} percent; "
        + ", ".join(
            f"{point.name} at {100 * point.miss_rate:.2f} percent misses and "
            f"{100 * point.false_alarm_rate:.2f} percent false alarms"
            for point in curve.points[1:]
        )
        for curve, rate in zip(curves, equal, strict=True)
    )
    frame = ((low, high), (low, high))
    chart = Chart("det", "DET curves", ". ".join(texts), *frame, height=394 + below, below=below)
    ticks = [(float(probit(tick)), f"{100 * tick:g}") for tick in limits.ticks]
    chart.axes(ticks, ticks, "False alarms (%)", "Misses (%)")
    chart.line((low, high), (low, high), "diagonal")
    for number, curve in enumerate(curves):
        chart.line(*det_curve(curve.rates, limits), curve_style(number))
    for number, (curve, rate) in enumerate(zip(curves, equal, strict=True)):
        for place, point in enumerate(curve.points):
            # The interpolated rate is the point where the curve meets the diagonal.
            errors = (rate, rate) if place == 0 else (point.false_alarm_rate, point.miss_rate)
            if limits.contain(*errors):
                x, y = probit(errors).tolist()
                chart.marker(x, y, point_marker(point.name, place), f"c{number % COLORS}")
    return chart


def histogram_chart(
    name: str,
    scores: NDArray[np.floating],
    is_target: NDArray[np.bool_],
    points: Sequence[OperatingPoint],
) -> str:
    """Densities of target and non-target scores (n,), with the thresholds of ``points``, as SVG."""
    low, high = _widened(float(scores.min()), float(scores.max()))
    classes = {"targets": scores[is_target], "non-targets": scores[~is_target]}
    edges = np.linspace(low, high, HISTOGRAM_BINS + 1)
    densities = {
        title: np.histogram(values.astype(np.float64), edges, density=True)[0]
        for title, values in classes.items()
    }
    parts = [
        f"{title}: mean {values.mean():.4g}, standard deviation {values.std():.3g}"
        for title, values in classes.items()
    ]
    parts += [f"{point.name} threshold {point.threshold:.4g}" for point in points]
    tallest = max(float(density.max()) for density in densities.values())
    chart = Chart(
        name,
        "Histogram of scores",
        "; ".join(parts),
        (low, high),
        (0.0, 1.05 * tallest),
        top=10 + LABEL_HEIGHT * sum(low <= point.threshold <= high for point in points),
    )
    chart.axes(round_ticks(low, high), [], "Score", "Density")
    chart.steps(edges, densities["non-targets"], "nontarget")
    chart.steps(edges, densities["targets"], "target")
    chart.uprights(
        [(p.threshold, p.name, "own" if p.name == OWN_THRESHOLD else "") for p in points]
    )
    return chart.svg()


def calibration(scores: NDArray[np.floating], is_target: NDArray[np.bool_]) -> Calibration:
    """How likely targets are against non-targets among like scores (n,), in up to 24 bins.

    The bins lie between the median non-target and the median target, widened to where the classes
    still mix; what lies beyond, nearly all of one class, is left out. Half a trial is added to each
    count, so a bin without one class gets a finite ratio with a wide error and is not dropped.
    """
    values = scores.astype(np.float64)
    # Existing scores, not means of two: some trials lie within, however odd the list.
    nontargets, targets = (values[members] for members in (~is_target, is_target))
    low = min(
        np.quantile(nontargets, 0.5, method="lower"), np.quantile(targets, 0.001, method="lower")
    )
    high = max(
        np.quantile(targets, 0.5, method="higher"), np.quantile(nontargets, 0.999, method="higher")
    )
    edges = np.linspace(*_widened(float(low), float(high)), CALIBRATION_BINS + 1)
    counts = [np.histogram(of_class, edges)[0] for of_class in (targets, nontargets)]
    totals = counts[0] + counts[1]
    sums = np.histogram(values, edges, weights=values)[0]
    some = totals > 0
    shares = [
        (count + 0.5) / (len(of_class) + 1.0)
        for count, of_class in zip(counts, (targets, nontargets), strict=True)
    ]
    ratios = np.log(shares[0] / shares[1])
    errors = np.sqrt(1.0 / (counts[0] + 0.5) + 1.0 / (counts[1] + 0.5))
    return Calibration(sums[some] / totals[some], ratios[some], errors[some])


def calibration_chart(
    name: str,
    scores: NDArray[np.floating],
    is_target: NDArray[np.bool_],
    bayes_thresholds: Sequence[tuple[float, str]],
) -> str:
    """What scores (n,) say, as log likelihood ratios, against what the labels show, as SVG.

    ``bayes_thresholds`` are (score, name) of the thresholds that actual costs are paid at.
    """
    found = calibration(scores, is_target)
    low, high = _widened(float(found.scores.min()), float(found.scores.max()), 0.05)
    bottom, top = _widened(float(found.log_ratios.min()), float(found.log_ratios.max()), 0.08)
    shown = [line for line in bayes_thresholds if low <= line[0] <= high]
    pairs = zip(found.scores.tolist(), found.log_ratios.tolist(), strict=True)
    chart = Chart(
        name,
        "Calibration of scores",
        "Score and observed log likelihood ratio of each bin: "
        + ", ".join(f"{score:.3g} and {ratio:.2f}" for score, ratio in pairs),
        (low, high),
        (bottom, top),
        top=10 + LABEL_HEIGHT * max(len(shown), 1),
    )
    chart.axes(round_ticks(low, high), round_ticks(bottom, top), "Score", "Observed log ratio")
    ends = (min(low, bottom), max(high, top))
    chart.line(ends, ends, "diagonal")
    deviations = 1.96 * found.standard_errors
    chart.whiskers(found.scores, found.log_ratios - deviations, found.log_ratios + deviations, "c0")
    for score, ratio in zip(found.scores, found.log_ratios, strict=True):
        chart.marker(float(score), float(ratio), "circle", "c0 small")
    chart.uprights([(value, text, "") for value, text in shown])
    return chart.svg()


def strip_chart(value: float, interval: Sequence[float] | None, whole: float, high: float) -> str:
    """A condition's rate and its interval on a scale from 0 to ``high``, as a small SVG.

    A line marks the rate of the whole list. The table around it has the figures, so the drawing is
    hidden from readers who listen.
    """
    at = [120 * max(n, 0.0) / high for n in (value, whole, *(interval or (value, value)))]
    return (
        '<svg class="strip" viewBox="0 0 120 16" aria-hidden="true">'
        f'<path class="axis" d="M0,15.5H120"/><path class="whole" d="M{at[1]:.1f},0V16"/>'
        f'<path class="whisker c0" d="M{at[2]:.1f},7.5H{at[3]:.1f}"/>'
        f'<path class="marker c0" transform="translate({at[0]:.1f},7.5)" d="{MARKERS["circle"]}"/>'
        "</svg>"
    )


def _widened(low: float, high: float, share: float = 0.0) -> tuple[float, float]:
    """Limits moved apart by a share of their distance, or if they are (nearly) equal, by more.

    Closer together than that, there would be no numbers left between them for bins.
    """
    are_apart = high - low > max(1e-9 * max(abs(low), abs(high)), 1e-290)
    margin = share * (high - low) if are_apart else max(0.5, 0.01 * abs(low))
    return low - margin, math.nextafter(high + margin, math.inf)
