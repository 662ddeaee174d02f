"""Train a calibration on a scored, labeled list: it turns scores into log likelihood ratios."""

from argparse import ArgumentParser, Namespace

import numpy as np
from numpy.typing import NDArray

from simple_spk.cli.messages import say, warn
from simple_spk.cli.options import add_enrollments, add_value
from simple_spk.cli.outputs import check_outputs, inputs_of
from simple_spk.data.trials import Trials, read_trials
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.evaluation.calibration import quality_measures, train_calibration
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.enrollment import (
    durations_of_trials,
    embeddings_of_trials,
    read_durations,
    read_enrollments,
)
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import read_scores


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of calibrate."""
    add_value(parser, "scores SCORES", "score file of a list that is not a test list")
    add_value(parser, "--trials LIST", "the list, with its labels")
    add_value(parser, "-o --output JSON", "file to write", required=True)
    what = "target prior of the application, for which the ratios are optimized (default 0.01)"
    add_value(parser, "--target-prior P", what, float, default=0.01)
    quality = parser.add_argument_group("quality measures, which scoring then needs as well")
    add_value(quality, "--manifest CSV", "use its durations")
    add_value(quality, "--embeddings FILE", "use their lengths")
    add_enrollments(parser)


def run(options: Namespace) -> None:
    """Train, write and report."""
    check_outputs([options.output], inputs_of(options))
    listed = None if options.trials is None else read_trials(options.trials)
    trials, scores = read_scores(options.scores, listed)
    if trials.is_target is None:
        raise ValueError(f"{options.scores} has no labels: give a list with labels (--trials)")
    quality = _quality(trials, options)
    calibration = train_calibration(
        scores, trials.is_target, quality, options.target_prior, list_name(trials)
    )
    calibration.save(options.output)
    if calibration.score_weight <= 0.0:
        reason = "targets do not have higher scores; are these distances, or labels swapped?"
        warn(f"note on {options.scores}: {reason}")
    ratios = calibration.apply(scores, quality)
    before, after = (_metrics(values, trials.is_target) for values in (scores, ratios))
    say(f"{calibration.trained_on}: {calibration.trials:,} trials, in {options.output}")
    say(f"llr = {calibration.offset:.4g} + {calibration.score_weight:.4g} score")
    for name, weight in calibration.quality_weights.items():
        say(f"      + {weight:.4g} {name}")
    say(f"{'':14}{'before':>10}{'after':>10}   (on the list it was trained on)")
    for title, value in before.items():
        say(f"{title:14}{value:10.4f}{after[title]:10.4f}")
    if after["minCllr"] == 0.0:
        warn(
            f"note on {options.scores}: no target scores below any non-target, so the scale is "
            "guessed from the number of trials: calibrate with more speakers"
        )
    thresholds = calibration.false_accept_thresholds
    measured = f"down to {thresholds[-1][0]:g}" if thresholds else "nowhere"
    say(f"thresholds of false-accept rates: measured {measured}, extrapolated below")


def _metrics(scores: NDArray[np.float64], is_target: NDArray[np.bool_]) -> dict[str, float]:
    """The metrics that calibration changes, by title, of scores (n,)."""
    found = summary(scores, is_target)
    return {
        "Cllr": found["cllr"],
        "minCllr": found["min_cllr"],
        "actDCF(0.01)": found["act_dcf"]["0.01"],
        "minDCF(0.01)": found["min_dcf"]["0.01"],
        "EER, %": found["eer"],
    }


def _quality(trials: Trials, options: Namespace) -> dict[str, NDArray[np.float64]]:
    """The quality measures (n,) of the trials, by name, from the files that the options name."""
    enrollments = None if options.enrollments is None else read_enrollments(options.enrollments)
    seconds = table = None
    if options.manifest is not None:
        seconds = durations_of_trials(trials, read_durations(options.manifest), enrollments)
    if options.embeddings is not None:
        embeddings = read_embeddings(options.embeddings)
        table = embeddings_of_trials(trials, embeddings, enrollments, options.template)
    return quality_measures(trials.enroll, trials.test, seconds, table)
