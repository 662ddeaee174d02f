"""The part of a report that is about one list: its scores, its conditions, its worst trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.list_summary import NOTES
from simple_spk.evaluation.metrics import PRIORS, bayes_threshold, prior_name
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.breakdown import (
    MINIMUM_SPEAKERS,
    MINIMUM_TRIALS,
    Breakdown,
    Condition,
    ConditionColumn,
)
from simple_spk.report.charts import (
    Curve,
    calibration_chart,
    curve_of,
    histogram_chart,
    strip_chart,
)
from simple_spk.report.html_parts import Cell, card, facts_list, figure, measure, table, under

WORST_TRIALS = 20


@dataclass(frozen=True, eq=False)
class ReportedList:
    """A scored list with labels, and all that was computed about it: the page computes no figure.

    ``summary`` is that of ``metrics.summary``, perhaps with more of ``list_summary.summarize``;
    ``intervals`` are those of ``bootstrap.intervals``.
    """

    scored: ScoredTrials
    summary: Mapping[str, Any]
    intervals: Mapping[str, Any] | None = None
    breakdown: Breakdown | None = None


@dataclass(frozen=True)
class Costs:
    """What the detection costs of all lists are of."""

    priors: Sequence[float] = PRIORS
    miss: float = 1.0
    false_alarm: float = 1.0


class DrawnList(NamedTuple):
    """A list with what its charts and tables are drawn from."""

    reported: ReportedList
    is_target: NDArray[np.bool_]
    curve: Curve


def drawn_list(reported: ReportedList, costs: Costs) -> DrawnList:
    """A list with its error rates and operating points."""
    curve = curve_of(reported.scored, costs.priors, costs.miss, costs.false_alarm)
    is_target = reported.scored.trials.is_target
    assert is_target is not None  # curve_of has seen to it
    return DrawnList(reported, is_target, curve)


def list_section(number: int, one: DrawnList, costs: Costs) -> str:
    """All about one list."""
    scored = one.reported.scored
    trials = scored.trials
    facts = {
        "File": trials.path.name if trials.path else "not from a file",
        "Trials": f"{len(trials):,}",
        "Targets": f"{np.count_nonzero(one.is_target):,}",
        "Recordings": f"{len(trials.ids):,}",
    }
    bayes = [
        (bayes_threshold(prior, costs.miss, costs.false_alarm), f"actDCF({prior_name(prior)})")
        for prior in costs.priors
    ]
    charts = (
        '<div class="pair">'
        + figure(
            "Scores",
            histogram_chart(f"scores-{number}", scored.scores, one.is_target, one.curve.points),
            "Target and non-target trials, each with area one. Errors are where the two overlap: "
            "targets left of a threshold are missed, non-targets right of it are false alarms.",
            '<ul class="legend"><li class="key target">targets</li>'
            '<li class="key nontarget">non-targets</li></ul>',
        )
        + figure(
            "Calibration",
            calibration_chart(f"calibration-{number}", scored.scores, one.is_target, bayes),
            "How much likelier a target is than a non-target among trials of a like score, as a "
            "natural logarithm (2.3 is ten to one), with 95\u00a0% intervals that take trials as "
            "independent. On the diagonal, scores mean what they say; a straight line elsewhere "
            "can be brought there by calibration. Scores beyond those drawn are nearly all of one "
            "class." + _beyond(scored.scores, bayes),
        )
        + "</div>"
    )
    notes = map(one.reported.summary.get, NOTES)
    parts = [
        f'<section id="list-{number}">',
        f"<h2>{escape(scored.name)}</h2>",
        facts_list(facts),
        f'<p class="quiet">{_hash(one.reported)}</p>',
        *(f'<p class="warning">{escape(note)}</p>' for note in notes if note),
        charts,
        _clusters(one.reported.summary.get("clusters")),
        _conditions(one.reported, costs),
        _worst(one),
        "</section>",
    ]
    return "\n".join(parts)


def _hash(reported: ReportedList) -> str:
    """What the list is known by: the hash of its file, or else of its trials."""
    sha256, number = reported.scored.trials.sha256, reported.summary.get("list_fingerprint")
    if sha256 is None and number is not None:
        return f"Fingerprint of the trials: <code>{escape(number)}</code>"
    return f"SHA-256: <code>{escape(sha256 or 'unknown')}</code>"


def _beyond(scores: NDArray[np.floating], bayes: Sequence[tuple[float, str]]) -> str:
    """Which actual costs are paid at thresholds that no score reaches, or that all exceed."""
    beyond = [name for score, name in bayes if not scores.min() <= score <= scores.max()]
    return f" No score is near the threshold of {' and '.join(beyond)}." if beyond else ""


def _clusters(found: Mapping[str, Any] | None) -> str:
    """How well one threshold tells the speakers apart, if that was asked for."""
    if found is None:
        return ""
    note = (
        f"The least similarity within a speaker is {found['smallest_within']:.4f} "
        f"({' and '.join(found['smallest_within_pair'])}), the greatest between speakers is "
        f"{found['largest_between']:.4f} ({' and '.join(found['largest_between_pair'])}). "
        f"{100 * found['share_within_below_largest_between']:.3g}\u00a0% of the pairs within "
        f"speakers are no higher than that, "
        f"{100 * found['share_between_above_smallest_within']:.3g}\u00a0% of those between "
        f"speakers no lower than the least. Below, hierarchical clusterings of "
        f"{found['clustered_recordings']:,} of {found['recordings']:,} recordings, of "
        f"{found['clustered_speakers']:,} speakers, cut at a threshold; an adjusted Rand index of "
        "1 means that the clusters are the speakers."
    )
    rows = [
        [
            Cell(f"{method} linkage", f"{name} threshold", look=""),
            Cell(f"{cut['threshold']:.4f}"),
            Cell(f"{cut['adjusted_rand_index']:.4f}", look="number main"),
            Cell(f"{cut['clusters']:,}"),
        ]
        for method, cuts in found["linkage"].items()
        for name in ("own", "best")
        if (cut := cuts[f"at_{name}_threshold"]) is not None
    ]
    title = "Speakers as clusters"
    head = ["Clustering", "Threshold", "Adjusted Rand index", "Clusters"]
    return card(title, table(title, head, rows), note)


def _conditions(reported: ReportedList, costs: Costs) -> str:
    """The tables of a breakdown, one per column of the metadata."""
    found = reported.breakdown
    if found is None:
        return ""
    known = found.recordings - found.recordings_without_metadata
    silent = [column for column in found.columns if not column.conditions]
    notes = [
        f"Metadata of {known:,} of {found.recordings:,} recordings, found by {found.keyed_by}. "
        f"Misses and false alarms are those at the list's EER threshold, {found.threshold:.4f}: "
        "one threshold for all conditions, as in use."
    ]
    notes += [f"{column.name} {column.how}." for column in silent]
    return "\n".join(
        [
            f'<h3 class="part">By condition</h3><p class="quiet">{escape(" ".join(notes))}</p>',
            *(
                _condition_table(column, costs, reported.summary["eer"])
                for column in found.columns
                if column.conditions
            ),
        ]
    )


def _condition_table(column: ConditionColumn, costs: Costs, whole_eer: float) -> str:
    """The conditions of one column: those that could be measured as rows, the others by name."""
    priors = [prior_name(prior) for prior in costs.priors]
    head = ["Condition", "EER (%)", "Line: whole list"]
    head += [*(f"minDCF({prior})" for prior in priors), "Misses (%)", "False alarms (%)"]
    head += ["Trials", "Targets", "Speakers"]
    rows, small = [], []
    rates = [whole_eer]
    for one in column.conditions:
        rates += [one.eer or 0.0, *(under(one.intervals, ("eer",)) or ())]
    for one in column.conditions:
        if one.miss_rate is None and one.false_alarm_rate is None:
            small.append(f"{one.label} ({one.trials:,} trials, {one.note})")
            continue
        figures = {"eer": one.eer, "min_dcf": one.min_dcf}
        rows.append(
            [
                Cell(one.label, one.note, look=""),
                measure(figures, one.intervals, ("eer",), 3, "number main"),
                Cell("", look="", svg=_strip(one, whole_eer, 1.1 * max(rates))),
                *(measure(figures, one.intervals, ("min_dcf", prior)) for prior in priors),
                Cell("-" if one.miss_rate is None else f"{100 * one.miss_rate:.3f}"),
                Cell("-" if one.false_alarm_rate is None else f"{100 * one.false_alarm_rate:.3f}"),
                Cell(f"{one.trials:,}"),
                Cell(f"{one.targets:,}"),
                Cell(f"{one.speakers:,}"),
            ]
        )
    content = table(column.name, head, rows) if rows else ""
    if small:
        content += (
            f'<p class="how after">Too few to measure (under {MINIMUM_TRIALS} targets and '
            f"non-targets, or under {MINIMUM_SPEAKERS} speakers): {escape(', '.join(small))}.</p>"
        )
    return card(column.name, content, f"Trials {column.how}.")


def _strip(one: Condition, whole_eer: float, high: float) -> str:
    """The drawing of a condition's equal error rate, if it has one and there is a scale."""
    if one.eer is None or high == 0.0:
        return ""
    return strip_chart(one.eer, under(one.intervals, ("eer",)), whole_eer, high)


def _worst(one: DrawnList) -> str:
    """The trials that the system gets most wrong, by name."""
    scores, trials = one.reported.scored.scores, one.reported.scored.trials
    targets, nontargets = np.flatnonzero(one.is_target), np.flatnonzero(~one.is_target)
    tables = {
        "Targets with the lowest scores": _lowest(targets, scores[targets]),
        "Non-targets with the highest scores": _lowest(nontargets, -scores[nontargets]),
    }
    cards = []
    for title, indexes in tables.items():
        rows = [
            [
                Cell(f"{scores[index]:.4f}"),
                Cell(trials.ids[trials.enroll[index]], trials.ids[trials.test[index]], look="name"),
            ]
            for index in indexes.tolist()
        ]
        cards.append(card(title, table(title, ["Score", "Enrollment, below it test"], rows)))
    return f'<div class="pair long">{"".join(cards)}</div>'


def _lowest(indexes: NDArray[np.int64], keys: NDArray[np.floating]) -> NDArray[np.int64]:
    """The indexes (k,) of the WORST_TRIALS lowest keys, rising; of equals, the earlier."""
    few = min(WORST_TRIALS, len(keys))
    candidates = np.flatnonzero(keys <= np.partition(keys, few - 1)[few - 1])
    return indexes[candidates[np.argsort(keys[candidates], kind="stable")][:few]]
