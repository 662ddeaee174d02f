"""Error rates of scores, as any toolkit writes them, with intervals by resampling speakers."""

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.figures import plan_report, report
from simple_spk.cli.options import add_figures
from simple_spk.cli.outputs import check_outputs, inputs_of
from simple_spk.data.trials import read_trials
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.evaluation.score_files import ScoredTrials, read_scores


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of metrics."""
    parser.add_argument(
        "scores",
        type=Path,
        nargs="+",
        metavar="SCORES",
        help="score files: 'enroll test score target|nontarget', 'enroll test 0|1 score', "
        "'0|1 enroll test score'; with --trials also 'enroll test score', 'score enroll "
        "test', or 'score'",
    )
    parser.add_argument("--trials", type=Path, metavar="LIST", help="the list, with its labels")
    parser.add_argument(
        "--threshold", type=float, metavar="T", help="a decision threshold to judge, such as -b"
    )
    add_figures(parser, always_intervals=True)


def run(options: Namespace) -> None:
    """Read, measure and report."""
    check_outputs([options.json, options.report, options.det], inputs_of(options))
    if options.threshold is not None and not math.isfinite(options.threshold):
        raise ValueError(f"--threshold must be a finite number, not {options.threshold}")
    listed = None if options.trials is None else read_trials(options.trials)
    results = []
    for path in options.scores:
        trials, scores = read_scores(path, listed)
        if trials.is_target is None:
            raise ValueError(f"{path} has no labels: give a list with labels (--trials)")
        name = list_name(trials)
        if len(options.scores) > 1 and listed is not None:
            name = f"{path.name} on {name}"
        results.append(
            ScoredTrials(trials, scores, name, model=str(path), threshold=options.threshold)
        )
    report(results, plan_report([one.trials for one in results], options), options)
