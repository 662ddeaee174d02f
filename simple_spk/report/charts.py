"""The charts of an evaluation by matplotlib: DET curves, score histograms, calibration."""

import io
import math
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context, style
from matplotlib.figure import Figure  # without pyplot: no window system, no global state
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.error_rates import ErrorRates, error_rates
from simple_spk.evaluation.metrics import equal_error_rate, minimum_detection_cost, prior_name
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.io.atomic_file import atomic_write

# Colors that color-blind readers can tell apart (after Okabe and Ito); brighter on a dark page.
# No two names share a light color: the dark style of a chart finds its parts by it.
LIGHT = {
    "page": "#f6f7f9", "card": "#ffffff", "text": "#1b2330", "quiet": "#5a6677",
    "rule": "#dfe3e9", "grid": "#eceff3", "diagonal": "#acb2bb",
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#008f68", "c3": "#b8558a", "c4": "#2f8fc9",
    "c5": "#b97f00",
}  # fmt: skip
DARK = {
    "page": "#12161d", "card": "#1a2029", "text": "#e6eaf0", "quiet": "#9aa6b6",
    "rule": "#313a47", "grid": "#262e39", "diagonal": "#5a636f",
    "c0": "#5bb4ee", "c1": "#ff9257", "c2": "#3fcf9f", "c3": "#e9a3cb", "c4": "#a6d5f7",
    "c5": "#f0c052",
}  # fmt: skip
COLORS = [LIGHT[f"c{number}"] for number in range(6)]
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = "o^svP"

WIDTH = 400  # points: about the pixels of a phone's screen, so that text stays readable
LABEL_HEIGHT = 15
LEGEND_CHARACTERS = 48  # of a line
HISTOGRAM_BINS = 80
CALIBRATION_BINS = 24

TICKS = (1e-5, 1e-4, 1e-3, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99)
LOWEST = (0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)  # where axes may begin
GRID_LINES = 400  # resolution of a DET curve: finer than a screen shows
OFF_THE_PLOT = 1e-9  # replaces a rate of zero, whose probit is infinite

OWN_THRESHOLD = "own threshold"  # name of the operating point that the model itself chose


class OperatingPoint(NamedTuple):
    """A decision threshold by name, and the shares of targets and non-targets it gets wrong."""

    name: str
    threshold: float  # +inf rejects every trial
    miss_rate: float
    false_alarm_rate: float


class Curve(NamedTuple):
    """What the DET chart shows of one list."""

    name: str
    rates: ErrorRates
    points: Sequence[OperatingPoint]


class Chart(NamedTuple):
    """A chart for a page: the content of its SVG element, and what it shows in words."""

    name: str  # unique in the page, of letters, digits and hyphens
    title: str
    description: str
    height: float  # points; all charts are WIDTH wide
    svg: str


class DetLimits(NamedTuple):
    """The lowest and the highest rate on both axes."""

    low: float
    high: float

    def contain(self, *rates: float) -> bool:
        """Whether all of these rates are shown."""
        return all(self.low <= rate <= self.high for rate in rates)

    @property
    def ticks(self) -> list[float]:
        """Rates to label, from ``low`` to ``high``."""
        return [tick for tick in TICKS if self.contain(tick)]


class ObservedRatios(NamedTuple):
    """Scores in bins (k,): their mean, and the log likelihood ratio that the labels show there."""

    scores: NDArray[np.float64]
    log_ratios: NDArray[np.float64]
    standard_errors: NDArray[np.float64]


def chart_style() -> AbstractContextManager[None]:
    """The context in which charts are drawn and saved; settings of the user do not matter."""
    return style.context(["default", Path(__file__).with_name("charts.mplstyle")])


def palette_css() -> str:
    """Style rules: colors as variables, and charts in the dark colors on a dark screen."""
    light, dark = (
        " ".join(f"--{name}: {color};" for name, color in palette.items())
        for palette in (LIGHT, DARK)
    )
    recolored = "\n".join(
        f'[style*="{part}: {color}"] {{ {part}: var(--{name}) !important; }}'
        for name, color in LIGHT.items()
        for part in ("fill", "stroke")
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{\n:root {{ {dark} }}\n{recolored}\n}}\n"
        "svg * { stroke-linejoin: round; }\n"
    )


def write_det_plot(
    path: str | Path, results: Sequence[ScoredTrials], costs: MetricOptions | None = None
) -> None:
    """Draw the DET curves of labeled lists into a .png, .svg or .pdf file, whole or not at all.

    The .svg has text as text, and dark colors on a dark screen.
    """
    path = Path(path)
    if not results:
        raise ValueError(f"no lists to draw in {path}; expected at least one")
    curves = [curve_of(one, costs or MetricOptions()) for one in results]
    with chart_style(), atomic_write(path) as partial:
        figure = det_figure(curves, with_names=True)
        kind = path.suffix.removeprefix(".") or "png"
        if kind == "svg":
            text = _saved_svg(figure, "det", Title="DET curves", Description=_det_text(curves))
            own_style = f"{palette_css()}text {{ font-family: system-ui, sans-serif; }}"
            text = re.sub(r"(?<=<style type=\"text/css\">)[^<]*", own_style, text, count=1)
            partial.write_text(text, encoding="utf-8", newline="\n")
        else:
            undated = {"CreationDate": None} if kind == "pdf" else None
            figure.savefig(partial, format=kind, metadata=undated)


def det_chart(curves: Sequence[Curve]) -> Chart:
    """The DET curves for a page, which names the lists beside the chart."""
    return _chart(det_figure(curves), "det", "DET curves", _det_text(curves))


def det_figure(curves: Sequence[Curve], with_names: bool = False) -> Figure:
    """Misses against false alarms of all lists on probit scales, with operating points."""
    limits = det_limits([curve.rates for curve in curves])
    ends = probit(limits)
    equal = [equal_error_rate(curve.rates).rate for curve in curves]
    # Lists differ only in whether they have a threshold of their own, which comes last.
    points = max((curve.points for curve in curves), key=len)
    labels = [point.name for point in points]
    shapes = [_marker(name, place, LIGHT["quiet"]) for place, name in enumerate(labels)]
    if with_names:
        named = zip(curves, equal, strict=True)
        texts = [f"{curve.name}: EER {100 * rate:.2f} %" for curve, rate in named]
        labels = [textwrap.fill(text, LEGEND_CHARACTERS) for text in texts] + labels
        shapes = [_line(number) for number in range(len(curves))] + shapes
    columns = 1 if with_names else 2
    rows = math.ceil(sum(1 + label.count("\n") for label in labels) / columns)
    figure, axes = _axes(
        388 + 17.5 * rows, xlabel="False alarms (%)", ylabel="Misses (%)", xlim=ends, ylim=ends
    )
    ticks = probit(limits.ticks), [f"{100 * tick:g}" for tick in limits.ticks]
    axes.set_xticks(*ticks)
    axes.set_yticks(*ticks)
    axes.plot(ends, ends, color=LIGHT["diagonal"], linewidth=1)
    for number, (curve, rate) in enumerate(zip(curves, equal, strict=True)):
        axes.plot(*det_curve(curve.rates, limits), **_line(number))
        for place, point in enumerate(curve.points):
            # The interpolated rate is the point where the curve meets the diagonal.
            errors = (rate, rate) if place == 0 else (point.false_alarm_rate, point.miss_rate)
            if limits.contain(*errors):
                color = COLORS[number % len(COLORS)]
                axes.plot(*probit(errors), **_marker(point.name, place, color))
    handles = [Line2D([], [], **look) for look in shapes]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    return figure


def histogram_chart(
    name: str,
    scores: NDArray[np.floating],
    is_target: NDArray[np.bool_],
    points: Sequence[OperatingPoint],
) -> Chart:
    """Densities of target and non-target scores (n,), with the thresholds of ``points``."""
    low, high = _widened(float(scores.min()), float(scores.max()))
    edges = np.linspace(low, high, HISTOGRAM_BINS + 1)
    lines = [
        (p.threshold, p.name, LIGHT["c3" if p.name == OWN_THRESHOLD else "text"]) for p in points
    ]
    figure, axes = _axes(300, lines, xlabel="Score", ylabel="Density", xlim=(low, high), yticks=[])
    parts = []
    for title, members, color, dashes in (
        ("non-targets", ~is_target, LIGHT["c1"], (0, (4, 1.5))),
        ("targets", is_target, LIGHT["c0"], "-"),
    ):
        values = scores[members].astype(np.float64)
        density = np.histogram(values, edges, density=True)[0]
        look = {"facecolor": (color, 0.22), "edgecolor": color, "linestyle": dashes}
        axes.stairs(density, edges, fill=True, linewidth=1.5, label=title, **look)
        parts.append(f"{title}: mean {values.mean():.4g}, standard deviation {values.std():.3g}")
    axes.set_ylim(bottom=0.0)
    figure.legend(loc="outside lower center", ncols=2)
    parts += [f"{point.name} threshold {point.threshold:.4g}" for point in points]
    return _chart(figure, name, "Histogram of scores", "; ".join(parts))


def calibration_chart(
    name: str,
    scores: NDArray[np.floating],
    is_target: NDArray[np.bool_],
    bayes_thresholds: Sequence[tuple[float, str]],
) -> Chart:
    """Scores (n,), as log likelihood ratios, against the ratios that the labels show.

    ``bayes_thresholds`` are (score, name) of the thresholds of the actual costs.
    """
    found = observed_ratios(scores, is_target)
    x_limits = _widened(float(found.scores.min()), float(found.scores.max()), 0.05)
    y_limits = _widened(float(found.log_ratios.min()), float(found.log_ratios.max()), 0.08)
    lines = [(score, text, LIGHT["text"]) for score, text in bayes_thresholds]
    figure, axes = _axes(300, lines, xlabel="Score", xlim=x_limits, ylim=y_limits)
    axes.set_ylabel("Observed log ratio")
    ends = min(x_limits[0], y_limits[0]), max(x_limits[1], y_limits[1])
    axes.plot(ends, ends, color=LIGHT["diagonal"], linewidth=1)
    look = {"color": LIGHT["c0"], "ecolor": (LIGHT["c0"], 0.55), "markeredgecolor": LIGHT["card"]}
    errors = 1.96 * found.standard_errors
    axes.errorbar(found.scores, found.log_ratios, errors, fmt="o", markersize=7, **look)
    pairs = zip(found.scores.tolist(), found.log_ratios.tolist(), strict=True)
    text = "Score and observed log likelihood ratio of each bin: " + ", ".join(
        f"{score:.3g} and {ratio:.2f}" for score, ratio in pairs
    )
    return _chart(figure, name, "Calibration of scores", text)


def curve_of(scored: ScoredTrials, costs: MetricOptions) -> Curve:
    """The error rates and operating points of a list, which must have labels."""
    if scored.trials.is_target is None:
        raise ValueError(f"{scored.name} has no labels; a curve of its errors needs them")
    rates = error_rates(scored.scores, scored.trials.is_target)
    return Curve(scored.name, rates, operating_points(rates, costs, scored.threshold))


def operating_points(
    rates: ErrorRates, costs: MetricOptions, own_threshold: float | None = None
) -> list[OperatingPoint]:
    """The points of equal error rate, of minimum cost at each prior, and of the own threshold.

    Rates are those that the threshold really gives; only ``equal_error_rate`` interpolates.
    """
    named = {"EER": equal_error_rate(rates).threshold}
    for prior in costs.priors:
        least = minimum_detection_cost(rates, prior, costs.miss_cost, costs.false_alarm_cost)
        named[f"minDCF({prior_name(prior)})"] = least.threshold
    if own_threshold is not None and math.isfinite(own_threshold):
        named[OWN_THRESHOLD] = own_threshold
    # As float64: a bare Python float would be rounded to the precision of the scores.
    places = np.searchsorted(rates.thresholds, np.array(list(named.values()), dtype=np.float64))
    columns = (named, named.values(), rates.miss_rates[places], rates.false_alarm_rates[places])
    return [
        OperatingPoint(name, threshold, float(miss), float(false_alarm))
        for name, threshold, miss, false_alarm in zip(*columns, strict=True)
    ]


def det_limits(curves: Sequence[ErrorRates]) -> DetLimits:
    """Limits that show each curve's equal error rate and as much around it as its trials tell."""
    highest = max(equal_error_rate(curve).rate for curve in curves)
    high = next(tick for tick in TICKS if tick >= max(0.4, min(1.5 * highest, 0.95)))
    shown = [high]
    for curve in curves:
        sides = (curve.miss_rates, curve.false_alarm_rates)
        for rates, others in (sides, sides[::-1]):
            inside = rates[(rates > 0) & (others <= high)]
            shown += [float(inside.min())] if len(inside) else []
    return DetLimits(next((low for low in LOWEST if low <= min(shown)), LOWEST[-1]), high)


def det_curve(
    rates: ErrorRates, limits: DetLimits
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probits (k,) of the false alarm and miss rates of a curve, at most a few points per pixel.

    Kept are the points before and after every line of a fine grid that the curve crosses, so every
    dropped point lies between two kept neighbors within one cell. The ends may lie beyond the
    limits.
    """
    low, high = probit(limits).tolist()
    lines = ndtr(np.linspace(low, high, GRID_LINES + 1))
    after_rows = np.searchsorted(rates.miss_rates, lines)
    after_columns = np.searchsorted(-rates.false_alarm_rates, -lines)
    after = np.concatenate([after_rows, after_columns])
    kept = np.unique(np.concatenate([after - 1, after]).clip(0, len(rates.thresholds) - 1))
    return probit(rates.false_alarm_rates[kept]), probit(rates.miss_rates[kept])


def probit(rates: ArrayLike) -> NDArray[np.float64]:
    """Normal quantiles of rates; those of 0 and 1 are large instead of infinite."""
    return np.asarray(ndtri(np.clip(rates, OFF_THE_PLOT, 1.0 - OFF_THE_PLOT)))


def observed_ratios(scores: NDArray[np.floating], is_target: NDArray[np.bool_]) -> ObservedRatios:
    """The observed ratio of targets to non-targets among similar scores (n,), in up to 24 bins.

    The bins lie between the median non-target and the median target, widened to where the classes
    still mix; scores beyond, nearly all of one class, are left out. Half a trial is added to each
    count, so a bin without one class gets a finite ratio with a wide error and is not dropped.
    """
    values = scores.astype(np.float64)
    classes = targets, nontargets = values[is_target], values[~is_target]
    # Existing scores, not means of two, so that some trials lie within any bins.
    low = np.quantile(nontargets, 0.5, method="lower")
    low = min(low, np.quantile(targets, 0.001, method="lower"))
    high = np.quantile(targets, 0.5, method="higher")
    high = max(high, np.quantile(nontargets, 0.999, method="higher"))
    edges = np.linspace(*_widened(float(low), float(high)), CALIBRATION_BINS + 1)
    counts = np.stack([np.histogram(of_class, edges)[0] for of_class in classes])  # (2, bins)
    sums = np.histogram(values, edges, weights=values)[0]
    totals = counts.sum(axis=0)
    some = totals > 0
    shares = (counts + 0.5) / (np.array([[len(targets)], [len(nontargets)]]) + 1.0)
    ratios = np.log(shares[0] / shares[1])
    errors = np.sqrt((1.0 / (counts + 0.5)).sum(axis=0))
    return ObservedRatios(sums[some] / totals[some], ratios[some], errors[some])


def _line(number: int) -> dict[str, Any]:
    """The look of the curve of a list, by its place in the report."""
    dashes = LINE_STYLES[number // len(COLORS) % len(LINE_STYLES)]
    return {"color": COLORS[number % len(COLORS)], "linestyle": dashes, "linewidth": 2}


def _marker(name: str, place: int, color: str) -> dict[str, Any]:
    """The look of an operating point, by its name and its place among the points."""
    shape = "D" if name == OWN_THRESHOLD else MARKERS[place % len(MARKERS)]
    edge = {"markeredgecolor": LIGHT["card"], "markeredgewidth": 1.2}
    look = {"marker": shape, "markersize": 9, "color": color, "linestyle": "", "zorder": 3}
    return look | edge


def _axes(
    height: float, lines: Sequence[tuple[float, str, str]] = (), **options: Any
) -> tuple[Figure, Any]:
    """A figure and its axes, with vertical lines (x, text, color), labeled above the frame.

    Lines beyond the limits are left out. Each label has a row of its own, left of its line where
    there is room: there it meets no other line, as lines further right reach higher.
    """
    low, high = options["xlim"]
    shown = sorted(line for line in lines if low <= line[0] <= high)
    height += LABEL_HEIGHT * len(shown)
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    axes = figure.add_subplot(**options)
    dashed = {"arrowstyle": "-", "linestyle": "--", "shrinkA": 0, "shrinkB": 0}
    for row, (x, text, color) in enumerate(shown):
        is_left = WIDTH * (x - low) / (high - low) > 7 * len(text) + 20
        axes.annotate(
            f"{text} " if is_left else f" {text}",
            xy=(x, 0.0),
            xytext=(x, 1.02 + row * LABEL_HEIGHT / 225),
            xycoords=axes.get_xaxis_transform(),
            horizontalalignment="right" if is_left else "left",
            arrowprops={"color": color, "relpos": (float(is_left), 1.0), **dashed},
        )
    return figure, axes


def _det_text(curves: Sequence[Curve]) -> str:
    """The curves in words: their equal error rates and operating points."""
    return ". ".join(
        f"{curve.name}: equal error rate {100 * equal_error_rate(curve.rates).rate:.2f} percent; "
        + ", ".join(
            f"{point.name} at {100 * point.miss_rate:.2f} percent misses and "
            f"{100 * point.false_alarm_rate:.2f} percent false alarms"
            for point in curve.points[1:]
        )
        for curve in curves
    )


def _chart(figure: Figure, name: str, title: str, description: str) -> Chart:
    """A figure as a chart of a page."""
    text = _saved_svg(figure, name)
    content = text[text.index("</defs>") + len("</defs>") : text.rindex("</svg>")]
    return Chart(name, title, description, 72 * figure.get_figheight(), content)


def _saved_svg(figure: Figure, name: str, **metadata: str) -> str:
    """A figure as the text of an SVG file; equal figures of one name give equal texts."""
    file = io.StringIO()
    with rc_context({"svg.hashsalt": name}):  # identifiers differ between the charts of a page
        unset = dict.fromkeys(["Date", "Creator", "Format", "Type"])
        figure.savefig(file, format="svg", metadata=unset | metadata)
    # Half the size: names of groups and fonts are not needed, nor millionths of a pixel.
    text = re.sub(r' id="[\w.]+_\d+"| font-family: [^;]*;', "", file.getvalue())
    text = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", text)
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)


def _widened(low: float, high: float, share: float = 0.0) -> tuple[float, float]:
    """Limits moved apart by a share of their distance, or if they are (nearly) equal, by more.

    Between limits that are closer, there would be no numbers left for bins.
    """
    are_apart = high - low > max(1e-9 * max(abs(low), abs(high)), 1e-290)
    margin = share * (high - low) if are_apart else max(0.5, 0.01 * abs(low))
    return low - margin, math.nextafter(high + margin, math.inf)
