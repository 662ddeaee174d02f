"""The DET curves of scored lists as one picture: SVG by ourselves, all else by matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure  # without pyplot: no window system, no global state

from simple_spk.evaluation.metrics import PRIORS, equal_error_rate
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.io.atomic_file import atomic_write
from simple_spk.report.charts import Curve, curve_of, det_file
from simple_spk.report.det_curve import det_curve, det_limits, probit
from simple_spk.report.operating_points import OWN_THRESHOLD

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = "o^svP"


def write_det_plot(
    path: str | Path,
    results: Sequence[ScoredTrials],
    priors: Sequence[float] = PRIORS,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
) -> None:
    """Draw the curves of labeled lists into a .png, .svg or .pdf file, whole or not at all.

    The .svg is small, and follows its reader into light and dark.
    """
    path = Path(path)
    if not results:
        raise ValueError(f"no lists to draw in {path}; expected at least one")
    curves = [curve_of(one, priors, miss_cost, false_alarm_cost) for one in results]
    with atomic_write(path) as partial:
        if path.suffix == ".svg":
            partial.write_text(det_file(curves), encoding="utf-8", newline="\n")
        else:
            _drawn(curves).savefig(partial, format=path.suffix.removeprefix(".") or "png")


def _drawn(curves: Sequence[Curve]) -> Figure:
    """The curves, their operating points and what they mean."""
    limits = det_limits([curve.rates for curve in curves])
    figure = Figure(figsize=(6.4, 6.4), dpi=150, layout="constrained")
    axes = figure.add_subplot(
        aspect="equal",
        xlabel="False alarms (%)",
        ylabel="Misses (%)",
        xlim=probit(limits),
        ylim=probit(limits),
    )
    axes.plot(probit(limits), probit(limits), color="0.8", linewidth=1)
    for number, (name, rates, points) in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        style = LINE_STYLES[number // len(COLORS) % len(LINE_STYLES)]
        label = f"{name}, EER {100 * equal_error_rate(rates).rate:.2f} %"
        axes.plot(*det_curve(rates, limits), style, color=color, label=label)
        for place, point in enumerate(points):
            if limits.contain(point.false_alarm_rate, point.miss_rate):
                at = probit(point.false_alarm_rate), probit(point.miss_rate)
                marker = _marker(point.name, place)
                axes.plot(*at, marker, color=color, markeredgecolor="white", zorder=3)
    texts = [f"{100 * tick:g}" for tick in limits.ticks]
    axes.set_xticks(probit(limits.ticks), texts)
    axes.set_yticks(probit(limits.ticks), texts)
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    longest = max((curve.points for curve in curves), key=len)
    for place, point in enumerate(longest):
        axes.plot([], [], _marker(point.name, place), color="0.4", label=point.name)
    axes.legend(fontsize="small", framealpha=1.0, edgecolor="none")  # not crossed by the diagonal
    return figure


def _marker(name: str, place: int) -> str:
    """The marker of an operating point, by its name and its place among the points."""
    return "D" if name == OWN_THRESHOLD else MARKERS[place % len(MARKERS)]
