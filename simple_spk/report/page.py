"""The report of an evaluation as one HTML page that needs nothing else: no network, no script."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from simple_spk import __version__
from simple_spk.evaluation.metrics import prior_name
from simple_spk.io.atomic_file import write_text
from simple_spk.report.charts import curve_style, det_chart, point_marker
from simple_spk.report.html_parts import Cell, card, document, facts_list, figure, measure, table
from simple_spk.report.operating_points import OperatingPoint
from simple_spk.report.sections import Costs, DrawnList, ReportedList, drawn_list, list_section
from simple_spk.report.style import STYLE
from simple_spk.report.svg_chart import MARKERS


def write_report(
    path: str | Path,
    lists: Sequence[ReportedList],
    costs: Costs | None = None,
    date: str | None = None,
) -> None:
    """Write the page, whole or not at all; the same arguments give the same bytes."""
    path = Path(path)
    if not lists:
        raise ValueError(f"no lists to report in {path}; expected at least one")
    costs = costs or Costs()
    text = _page([drawn_list(one, costs) for one in lists], costs, date)
    write_text(path, text)


def _page(lists: Sequence[DrawnList], costs: Costs, date: str | None) -> str:
    """The text of the page."""
    title = "Speaker verification: " + ", ".join(one.curve.name for one in lists)
    sections = [list_section(number, one, costs) for number, one in enumerate(lists)]
    links = "".join(
        f'<a href="#list-{number}">{escape(one.curve.name)}</a>' for number, one in enumerate(lists)
    )
    body = "\n".join(
        [
            "<header>",
            "<h1>Speaker verification report</h1>",
            _origin(lists, costs, date),
            f'<nav aria-label="Lists">{links}</nav>' if len(lists) > 1 else "",
            "</header>",
            card("Error rates", _error_table(lists, costs), _interval_note(lists)),
            _trade_off(lists),
            *sections,
        ]
    )
    return document(title, STYLE, body)


def _origin(lists: Sequence[DrawnList], costs: Costs, date: str | None) -> str:
    """Where the scores came from, and what the costs mean."""
    scored = [one.reported.scored for one in lists]
    facts = {
        "Model": _distinct(one.model for one in scored),
        "Similarity": _distinct(one.similarity for one in scored),
        "Own threshold": _distinct(
            None if one.threshold is None else f"{one.threshold:.4g}" for one in scored
        ),
        "Target priors": ", ".join(map(prior_name, costs.priors)),
        "Costs": f"miss {costs.miss:g}, false alarm {costs.false_alarm:g}",
        "Software": f"simple_spk {__version__}",
    }
    return facts_list(facts | ({"Date": date} if date else {}))


def _distinct(texts: Iterable[str | None]) -> str:
    """The different texts, in order, or that there are none."""
    return ", ".join(dict.fromkeys(text for text in texts if text)) or "not given"


def _error_table(lists: Sequence[DrawnList], costs: Costs) -> str:
    """The measures of every list with their intervals, a row per list."""
    priors = [prior_name(prior) for prior in costs.priors]
    head = [
        "List",
        "EER (%)",
        *(f"minDCF({prior})" for prior in priors),
        *(f"actDCF({prior})" for prior in priors),
        "Cllr",
        "minCllr",
    ]
    rows = []
    for number, one in enumerate(lists):
        figures, intervals = one.reported.summary, one.reported.intervals
        share = 100 * figures["targets"] / figures["trials"]
        count = f"{figures['trials']:,} trials, {_percent(share)}\u00a0% targets"
        rows.append(
            [
                Cell(one.curve.name, count, look=f"key {curve_style(number)}"),
                measure(figures, intervals, ("eer",), 3, "number main"),
                *(measure(figures, intervals, ("min_dcf", prior)) for prior in priors),
                *(measure(figures, intervals, ("act_dcf", prior)) for prior in priors),
                measure(figures, intervals, ("cllr",)),
                measure(figures, intervals, ("min_cllr",)),
            ]
        )
    return table("Error rates", head, rows)


def _interval_note(lists: Sequence[DrawnList]) -> str:
    """What the figures and the intervals below them are."""
    note = (
        "EER and minDCF look at the best threshold of the list itself. actDCF and Cllr read scores "
        "as natural-log likelihood ratios, which scores are only after calibration; minCllr is "
        "what the best calibration would leave."
    )
    given = [one.reported.intervals for one in lists if one.reported.intervals]
    if not given:
        return f"{note} No confidence intervals were computed."
    level, replicates = given[0].get("level", 0.95), given[0].get("replicates")
    drawn = f" ({replicates:,} resamplings of the speakers)" if replicates else ""
    return f"{note} Below each figure: its {100 * level:g}\u00a0% confidence interval{drawn}."


def _trade_off(lists: Sequence[DrawnList]) -> str:
    """The DET chart beside the table of decision thresholds."""
    # Lists differ only in whether they have a threshold of their own, which comes last.
    points = max((one.curve.points for one in lists), key=len)
    shapes = "".join(
        f'<li><svg viewBox="-7 -7 14 14" aria-hidden="true">'
        f'<path d="{MARKERS[point_marker(point.name, place)]}"/></svg>{escape(point.name)}</li>'
        for place, point in enumerate(points)
    )
    keys = "".join(
        f'<li class="key {curve_style(number)}">{escape(one.curve.name)}</li>'
        for number, one in enumerate(lists)
    )
    rows = [
        [
            Cell(point.name, one.curve.name, look=f"key {curve_style(number)}"),
            Cell(_threshold(point)),
            Cell(f"{100 * point.miss_rate:.3f}"),
            Cell(f"{100 * point.false_alarm_rate:.3f}"),
        ]
        for number, one in enumerate(lists)
        for point in one.curve.points
    ]
    head = ["Threshold", "Score", "Misses (%)", "False alarms (%)"]
    return (
        '<div class="pair">'
        + figure(
            "Misses against false alarms",
            det_chart([one.curve for one in lists]),
            "Each point of a curve is one threshold; lower left is better. Both axes are stretched "
            "so that normally distributed scores give a straight line. The EER is where a curve "
            "meets the diagonal." + _without_curve(lists),
            f'<ul class="legend">{keys}</ul><ul class="legend">{shapes}</ul>',
        )
        + card(
            "Decisions at the marked thresholds",
            table("Decisions at the marked thresholds", head, rows),
            "A trial is accepted from the score upwards.",
        )
        + "</div>"
    )


def _without_curve(lists: Sequence[DrawnList]) -> str:
    """Which lists have no errors to draw."""
    names = [one.curve.name for one in lists if one.reported.summary["eer"] == 0.0]
    return f" Without errors, so without a curve: {', '.join(names)}." if names else ""


def _threshold(point: OperatingPoint) -> str:
    """The score of an operating point."""
    return f"{point.threshold:.4f}" if math.isfinite(point.threshold) else "rejects all"


def _percent(share: float) -> str:
    """A percentage with three digits that matter."""
    return f"{share:.1f}" if share >= 10 else f"{share:.3g}"
