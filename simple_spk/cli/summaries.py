"""The summaries of scored lists as a table, JSON, a report page and a DET plot."""

import dataclasses
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simple_spk.cli.messages import warn
from simple_spk.cli.outputs import print_results
from simple_spk.data.trials import Trials, speakers_of_recordings
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.list_summary import NOTES, EvaluatedTrials, check_classes
from simple_spk.evaluation.metrics import prior_name

if TYPE_CHECKING:
    from simple_spk.report.breakdown import Breakdown
    from simple_spk.report.metadata import Metadata

DET_FORMATS = (".png", ".svg", ".pdf")


@dataclasses.dataclass(frozen=True, eq=False)
class SummaryOptions:
    """Which metrics are computed, and the outputs that are made of them."""

    metrics: MetricOptions
    json: Path | None
    report: Path | None
    det: Path | None
    metadata: "Metadata | None"


def metric_options(options: Namespace) -> MetricOptions:
    """The options of ``options.add_metrics``, checked."""
    names = ("priors", "miss_cost", "false_alarm_cost", "replicates", "seed")
    return MetricOptions(**{name: getattr(options, name) for name in names})


def summary_options(lists: Sequence[Trials], options: Namespace) -> SummaryOptions:
    """The options of ``options.add_summary``; raise if they cannot be met for these lists."""
    metrics = metric_options(options)
    metadata = None
    if options.metadata is not None:
        from simple_spk.report.metadata import read_metadata, rows_of_recordings

        metadata = read_metadata(options.metadata)
    labeled = [trials for trials in lists if trials.is_target is not None]
    for trials in labeled:
        check_classes(trials)
        if metadata is not None:
            rows_of_recordings(metadata, trials.ids)  # raises if it has none of them
    picture = options.report or options.det
    if picture and not labeled:
        raise ValueError(f"{picture} is not written: without labels, there are no errors to show")
    if options.det is not None and options.det.suffix not in DET_FORMATS:
        raise ValueError(f"{options.det}: expected a name that ends in {', '.join(DET_FORMATS)}")
    return SummaryOptions(metrics, options.json, options.report, options.det, metadata)


def show_summaries(results: Sequence[EvaluatedTrials], options: SummaryOptions) -> None:
    """Print and write the summaries of evaluated lists."""
    summaries = [one.summary for one in results]
    breakdowns = [_breakdown(one, options) for one in results]
    plain = [
        summary if found is None else summary | {"breakdown": dataclasses.asdict(found)}
        for summary, found in zip(summaries, breakdowns, strict=True)
    ]
    text = json.dumps(plain[0] if len(plain) == 1 else plain, indent=2, allow_nan=False)
    print_results(summary_table(summaries), text, options.json)
    for summary in summaries:
        for note in filter(None, map(summary.get, NOTES)):
            warn(f"note on {summary['list']}: {note}")
    if options.det is None and options.report is None:
        return
    # Plotting takes long to import, and most calls draw nothing.
    from simple_spk.report.charts import write_det_plot
    from simple_spk.report.page import write_report
    from simple_spk.report.sections import ReportedList

    lists = [
        ReportedList(one.scored, one.summary, one.summary["intervals"], found)
        for one, found in zip(results, breakdowns, strict=True)
        if one.scored.trials.is_target is not None
    ]
    if options.det is not None:
        write_det_plot(options.det, [one.scored for one in lists], options.metrics)
    if options.report is not None:
        write_report(options.report, lists, options.metrics)


def _breakdown(result: EvaluatedTrials, options: SummaryOptions) -> "Breakdown | None":
    """The metrics of a labeled list by the columns of the metadata, if there are any."""
    trials = result.scored.trials
    if options.metadata is None or trials.is_target is None:
        return None
    from simple_spk.report.breakdown import breakdown

    return breakdown(
        result.scored,
        options.metadata,
        speakers_of_recordings(trials) if result.speakers is None else result.speakers,
        options.metrics,
        progress=True,
    )


def summary_table(summaries: Sequence[dict[str, Any]]) -> str:
    """The summaries of lists as aligned lines of text, one column per list."""
    columns = [_column(summary) | _clusters(summary.get("clusters")) for summary in summaries]
    titles = dict.fromkeys(title for column in columns for title in column)
    rows = [[title, *(column.get(title, "-") for column in columns)] for title in titles]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _column(summary: dict[str, Any]) -> dict[str, str]:
    """The summary of one list, as texts by title."""
    column = {"list": summary["list"], "trials": f"{summary['trials']:,}"}
    if "eer" not in summary:
        return column | {"labels": "none, so no error rates"}
    column["targets"] = f"{100 * summary['target_share']:.1f} %"
    column["EER"] = _with_interval(summary, ["eer"], 3, " %")
    for metric, title in (("min_dcf", "minDCF"), ("act_dcf", "actDCF")):
        for prior in map(prior_name, summary["priors"]):
            column[f"{title}({prior})"] = _with_interval(summary, [metric, prior])
    column["Cllr"] = _with_interval(summary, ["cllr"])
    column["minCllr"] = _with_interval(summary, ["min_cllr"])
    for key, title in (("at_eer_threshold", "EER threshold"), ("own_threshold", "own threshold")):
        rates = summary[key]
        if rates is not None:
            miss, false_alarm = 100 * rates["miss_rate"], 100 * rates["false_alarm_rate"]
            errors = f"misses {miss:.2f} %, false alarms {false_alarm:.2f} %"
            column[title] = f"{rates['threshold']:.4g}: {errors}"
    return column


def _clusters(found: dict[str, Any] | None) -> dict[str, str]:
    """The metrics of clusters, if there are any, as texts by title."""
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
    summary: dict[str, Any], keys: Sequence[str], decimals: int = 4, unit: str = ""
) -> str:
    """The metric under ``keys``, with the interval under the same keys if there is one."""
    value, bounds = summary, summary["intervals"]
    for key in keys:
        value, bounds = value[key], bounds and bounds[key]
    text = f"{value:.{decimals}f}{unit}"
    return text if not bounds else f"{text} [{bounds[0]:.{decimals}f}, {bounds[1]:.{decimals}f}]"
