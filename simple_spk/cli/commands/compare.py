"""Compare two systems on one list: paired differences of error rates, intervals and p-values."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from simple_spk.cli.messages import warn
from simple_spk.cli.options import add_json, add_metrics, add_value
from simple_spk.cli.outputs import check_outputs, inputs_of, print_results
from simple_spk.cli.summaries import metric_options
from simple_spk.data.manifest import read_speakers
from simple_spk.data.trials import read_trials, speakers_by_name, speakers_of_recordings
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.evaluation.bootstrap import compare
from simple_spk.evaluation.list_summary import SPEAKERS_GUESSED, list_identity
from simple_spk.evaluation.score_files import read_scores


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of compare."""
    add_value(parser, "a A", "score file of a system")
    add_value(parser, "b B", "score file of another system, its trials in any order")
    add_value(parser, "--trials LIST", "trial list with labels, if the scores have none")
    add_metrics(parser)
    add_json(parser)


def run(options: Namespace) -> None:
    """Read both, compare and report."""
    check_outputs([options.json], inputs_of(options))
    metrics = metric_options(options)
    listed = None if options.trials is None else read_trials(options.trials)
    trials, scores_a = read_scores(options.a, listed)
    if trials.is_target is None:
        raise ValueError(f"{options.a} has no labels: give a list with labels (--trials)")
    _, scores_b = read_scores(options.b, trials)
    if options.speakers is None:
        speakers = speakers_of_recordings(trials)
        if speakers_by_name(trials) is None:
            warn(f"note on {list_name(trials)}: {SPEAKERS_GUESSED}")
    else:
        speakers = read_speakers(options.speakers, trials.ids)
    sides = (speakers[trials.enroll], speakers[trials.test])
    found = compare(scores_a, scores_b, trials.is_target, *sides, metrics, progress=True)
    origin = list_identity(trials, list_name(trials)) | metrics.costs
    origin |= {"a": str(options.a), "b": str(options.b)}
    head = f"{origin['list']}: {len(trials):,} trials, {found['speakers']:,} speakers"
    lines = [head, f"A: {options.a}", f"B: {options.b}", *_lines(found)]
    print_results("\n".join(lines), json.dumps(origin | found, indent=2), options.json)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """The lines of the table of results."""
    metrics = {"EER, %": found["eer"]}
    for kind, title in (("min_dcf", "minDCF"), ("act_dcf", "actDCF")):
        metrics |= {f"{title}({prior})": value for prior, value in found[kind].items()}
    metrics |= {"Cllr": found["cllr"], "minCllr": found["min_cllr"]}
    interval = f"{100 * found['level']:g} % interval"
    yield f"{'':14}{'A':>10}{'B':>10}{'B - A':>10}   {interval:20} {'p':>7}"
    for title, one in metrics.items():
        low, high = one["interval"]
        bounds = f"[{low:+.4f}, {high:+.4f}]"
        values = f"{one['a']:10.4f}{one['b']:10.4f}{one['difference']:+10.4f}"
        p_value = "<0.0001" if one["p_value"] < 0.0001 else f"{one['p_value']:.4f}"
        yield f"{title:14}{values}   {bounds:20} {p_value:>7}"
