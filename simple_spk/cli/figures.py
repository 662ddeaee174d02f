"""How commands show what they found of scored lists: a table, JSON, a page, a DET plot."""

import dataclasses
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.cli.outputs import show_figures
from simple_spk.data.manifest import read_speakers
from simple_spk.data.trials import Trials, speakers_of_recordings
from simple_spk.evaluation.list_summary import NOTES, FigureSettings, figures_of
from simple_spk.evaluation.metrics import prior_name
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.breakdown import Breakdown, breakdown
from simple_spk.report.metadata import Metadata, read_metadata, rows_of_recordings

DET_FORMATS = (".png", ".svg", ".pdf")


class Found(NamedTuple):
    """A scored list and all that was found of it."""

    scored: ScoredTrials
    figures: dict[str, Any]  # of figures_of
    conditions: Breakdown | None = None


class ReportPlan(NamedTuple):
    """What is asked of lists, read and checked before these are scored."""

    settings: FigureSettings
    speakers: list[NDArray[np.int64] | None]  # of each list's recordings, (ids,), if a file tells
    metadata: Metadata | None


def plan_report(lists: Sequence[Trials], options: Namespace) -> ReportPlan:
    """Read what the options name; raise if what they ask of the lists cannot be had."""
    settings = FigureSettings(
        tuple(options.priors),
        options.miss_cost,
        options.false_alarm_cost,
        options.replicates,
        options.seed,
    )
    metadata = None if options.metadata is None else read_metadata(options.metadata)
    labeled = 0
    for trials in lists:
        if trials.is_target is None:
            continue
        labeled += 1
        targets = np.count_nonzero(trials.is_target)
        if not 0 < targets < len(trials):
            raise ValueError(
                f"{trials.path}: found {targets} targets and {len(trials) - targets} non-targets; "
                "error rates need at least one of each: complete the list, or drop its labels"
            )
        if metadata is not None:
            rows_of_recordings(metadata, trials.ids)  # raises if it knows none
    picture = options.report or options.det
    if picture and not labeled:
        raise ValueError(f"{picture} is not written: without labels, there are no errors to show")
    if options.det is not None and options.det.suffix not in DET_FORMATS:
        raise ValueError(f"{options.det}: expected a name that ends in {', '.join(DET_FORMATS)}")
    speakers: list[NDArray[np.int64] | None] = [None] * len(lists)
    if options.speakers is not None:
        speakers = [read_speakers(options.speakers, trials.ids) for trials in lists]
    return ReportPlan(settings, speakers, metadata)


def report(
    results: Sequence[ScoredTrials],
    plan: ReportPlan,
    options: Namespace,
    clusters: Sequence[dict[str, Any]] | None = None,
) -> None:
    """Show the figures of scored lists, and those of clusters, in every way that was asked for."""
    settings = plan.settings
    found = [_find(*one, plan) for one in zip(results, plan.speakers, strict=True)]
    if clusters is not None:
        for one, of_list in zip(found, clusters, strict=True):
            one.figures["clusters"] = of_list
    show_figures(as_table([one.figures for one in found]), _as_json(found), options.json)
    for _, figures, _ in found:
        for note in filter(None, map(figures.get, NOTES)):
            print(f"simple-spk: note on {figures['list']}: {note}", file=sys.stderr)
    labeled = [one for one in found if one.scored.trials.is_target is not None]
    if options.det is None and options.report is None:
        return
    # Imported where they are needed: most calls draw nothing, and drawing takes long to import.
    from simple_spk.report.charts import DetectionCosts, write_det_plot

    costs = DetectionCosts(settings.priors, settings.miss_cost, settings.false_alarm_cost)
    if options.det is not None:
        write_det_plot(options.det, [one.scored for one in labeled], costs)
    if options.report is not None:
        from simple_spk.report.page import write_report
        from simple_spk.report.sections import ReportedList

        lists = [
            ReportedList(scored, figures, figures["intervals"], conditions)
            for scored, figures, conditions in labeled
        ]
        write_report(options.report, lists, costs)


def _find(scored: ScoredTrials, speakers: NDArray[np.int64] | None, plan: ReportPlan) -> Found:
    """The figures of a list, and its breakdown if metadata are given."""
    trials, settings = scored.trials, plan.settings
    figures = figures_of(scored, settings, speakers, progress=True)
    if plan.metadata is None or trials.is_target is None:
        return Found(scored, figures)
    conditions = breakdown(
        scored,
        plan.metadata,
        speakers_of_recordings(trials) if speakers is None else speakers,
        settings.priors,
        settings.miss_cost,
        settings.false_alarm_cost,
        replicates=settings.replicates,
        seed=settings.seed,
        progress=True,
    )
    return Found(scored, figures, conditions)


def as_table(figures: Sequence[dict[str, Any]]) -> str:
    """The figures of lists, a column each, as aligned lines of text."""
    columns = [_column(one) for one in figures]
    titles = dict.fromkeys(title for column in columns for title in column)
    rows = [[title, *(column.get(title, "-") for column in columns)] for title in titles]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _column(figures: dict[str, Any]) -> dict[str, str]:
    """The figures of one list, as texts by title."""
    column = {"list": figures["list"], "trials": f"{figures['trials']:,}"}
    if "eer" not in figures:
        return column | {"labels": "none, so no error rates"} | _clusters(figures)
    column["targets"] = f"{100 * figures['target_share']:.1f} %"
    column["EER"] = _with_interval(figures, ["eer"], 3, " %")
    for measure, title in (("min_dcf", "minDCF"), ("act_dcf", "actDCF")):
        for prior in map(prior_name, figures["priors"]):
            column[f"{title}({prior})"] = _with_interval(figures, [measure, prior])
    column["Cllr"] = _with_interval(figures, ["cllr"])
    column["minCllr"] = _with_interval(figures, ["min_cllr"])
    for key, title in (("at_eer_threshold", "EER threshold"), ("own_threshold", "own threshold")):
        rates = figures[key]
        if rates is not None:
            miss, false_alarm = 100 * rates["miss_rate"], 100 * rates["false_alarm_rate"]
            errors = f"misses {miss:.2f} %, false alarms {false_alarm:.2f} %"
            column[title] = f"{rates['threshold']:.4g}: {errors}"
    return column | _clusters(figures)


def _clusters(figures: dict[str, Any]) -> dict[str, str]:
    """The figures of clusters, if there are any, as texts by title."""
    found = figures.get("clusters")
    if found is None:
        return {}
    within, between = found["smallest_within_pair"], found["largest_between_pair"]
    texts = {
        "least within speakers": f"{found['smallest_within']:.4g}: {' and '.join(within)}",
        "greatest between": f"{found['largest_between']:.4g}: {' and '.join(between)}",
        "overlap": f"{100 * found['share_within_below_largest_between']:.3g} % within below it, "
        f"{100 * found['share_between_above_smallest_within']:.3g} % between above the least",
        "speakers": f"{found['speakers']:,} of {found['recordings']:,} recordings",
    }
    if found["clustered_recordings"] < found["recordings"]:
        texts["of them clustered"] = (
            f"{found['clustered_speakers']:,} of {found['clustered_recordings']:,} recordings"
        )
    for method, cuts in found["linkage"].items():
        texts[f"{method} linkage"] = ", ".join(
            f"ARI {cut['adjusted_rand_index']:.4f} with {cut['clusters']:,} clusters at "
            f"{cut['threshold']:.4g} ({name})"
            for name in ("own", "best")
            if (cut := cuts[f"at_{name}_threshold"]) is not None
        )
    return texts


def _with_interval(
    figures: dict[str, Any], keys: Sequence[str], decimals: int = 4, unit: str = ""
) -> str:
    """The figure under ``keys``, and the interval under the same keys if there is one."""
    value, bounds = figures, figures["intervals"]
    for key in keys:
        value, bounds = value[key], bounds and bounds[key]
    text = f"{value:.{decimals}f}{unit}"
    return text if not bounds else f"{text} [{bounds[0]:.{decimals}f}, {bounds[1]:.{decimals}f}]"


def _as_json(found: Sequence[Found]) -> str:
    """The figures of one list as an object, those of several as an array of them."""
    figures = [
        one.figures | ({"breakdown": dataclasses.asdict(one.conditions)} if one.conditions else {})
        for one in found
    ]
    return json.dumps(figures[0] if len(figures) == 1 else figures, indent=2, allow_nan=False)
