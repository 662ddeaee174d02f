"""Error rates of score files of any toolkit, with intervals by resampling speakers.

Score files have lines of 'enroll test score target|nontarget', 'enroll test 0|1 score' or '0|1
enroll test score'; with --trials also 'enroll test score', 'score enroll test', or 'score'.
"""

import math
from argparse import ArgumentParser, Namespace

from simple_spk.cli.options import add_summary, add_value
from simple_spk.cli.outputs import check_outputs, inputs_of
from simple_spk.cli.summaries import show_summaries, summary_options
from simple_spk.data.manifest import read_speakers
from simple_spk.data.trials import read_trials
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.evaluation.list_summary import EvaluatedTrials, summarize
from simple_spk.evaluation.score_files import ScoredTrials, read_scores


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of metrics."""
    add_value(parser, "scores SCORES", "score files", nargs="+")
    add_value(parser, "--trials LIST", "trial list with labels, if the scores have none")
    what = "also report the error rates at this decision threshold"
    add_value(parser, "--threshold T", what, float)
    add_summary(parser)


def run(options: Namespace) -> None:
    """Read, summarize and report."""
    check_outputs([options.json, options.report, options.det], inputs_of(options))
    if options.threshold is not None and not math.isfinite(options.threshold):
        raise ValueError(f"--threshold must be a finite number, not {options.threshold}")
    listed = None if options.trials is None else read_trials(options.trials)
    lists = []
    for path in options.scores:
        trials, scores = read_scores(path, listed)
        if trials.is_target is None:
            raise ValueError(f"{path} has no labels: give a list with labels (--trials)")
        name = list_name(trials)
        if len(options.scores) > 1 and listed is not None:
            name = f"{path.name} on {name}"
        lists.append(ScoredTrials(trials, scores, name, str(path), threshold=options.threshold))
    summary = summary_options([one.trials for one in lists], options)
    path = options.speakers
    speakers = [None if path is None else read_speakers(path, one.trials.ids) for one in lists]
    results = [
        EvaluatedTrials(one, told, summarize(one, summary.metrics, told, progress=True))
        for one, told in zip(lists, speakers, strict=True)
    ]
    show_summaries(results, summary)
