"""Train a calibration on a scored, labeled list: it turns scores into log likelihood ratios."""

from argparse import ArgumentParser, Namespace

import numpy as np
from numpy.typing import NDArray

from simple_spk.cli.messages import say, warn
from simple_spk.cli.options import add_enrollments, add_value
from simple_spk.cli.outputs import check_outputs, inputs_of
from simple_spk.data.trials import Trials, read_trials
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.evaluation.calibration import FEWEST_FALSE_ACCEPTS, train_calibration
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.enrollment import (
    durations_of_trials,
    embeddings_of_trials,
    measures_of_trials,
    read_durations,
    read_enrollments,
    recordings_needed,
)
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.quality_measures import pack_background, quality_measures
from simple_spk.evaluation.score_files import read_scores


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of calibrate."""
    add_value(parser, "scores SCORES", "score file of a labeled list that is not a test list")
    add_value(parser, "--trials LIST", "trial list with labels, if the scores have none")
    add_value(parser, "-o --output JSON", "file to write", required=True)
    what = "target prior of the application, for which the ratios are optimized (default 0.01)"
    add_value(parser, "--target-prior P", what, float, default=0.01)
    quality = parser.add_argument_group("quality measures, which scoring then needs as well")
    add_value(quality, "--manifest CSV", "use its durations")
    add_value(quality, "--embeddings FILE", "use their lengths")
    what = "embeddings of many other speakers: use the inner products with the most similar of them"
    add_value(quality, "--background FILE", what)
    what = "use speech, noise and bandwidth of the recordings of --manifest instead of durations"
    quality.add_argument("--sound", action="store_true", help=what)
    add_enrollments(parser)


def run(options: Namespace) -> None:
    """Train, write and report."""
    check_outputs([options.output], inputs_of(options))
    listed = None if options.trials is None else read_trials(options.trials)
    trials, scores = read_scores(options.scores, listed)
    if trials.is_target is None:
        raise ValueError(f"{options.scores} has no labels: give a list with labels (--trials)")
    background = None
    if options.background is not None:
        if options.embeddings is None:
            raise ValueError("--background is compared with embeddings: give the --embeddings")
        background = read_embeddings(options.background).matrix
    quality = _quality(trials, options, background)
    calibration = train_calibration(
        scores, trials.is_target, quality, options.target_prior, list_name(trials), background
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
    measured = FEWEST_FALSE_ACCEPTS / (calibration.trials - calibration.targets)
    say(f"thresholds of false-accept rates: measured down to {measured:.2g}, extrapolated below")


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


def _quality(
    trials: Trials, options: Namespace, background: NDArray[np.floating] | None
) -> dict[str, NDArray[np.float64]]:
    """The quality measures (n,) of the trials, by name, from the files that the options name."""
    enrollments = None if options.enrollments is None else read_enrollments(options.enrollments)
    seconds = table = sound = None
    if options.sound:
        if options.manifest is None:
            raise ValueError("--sound is of the recordings of a manifest: give the --manifest")
        from simple_spk.inference.trial_evaluation import locate_recordings  # imports torch

        recordings = locate_recordings([trials], options.manifest, enrollments=enrollments)
        sound = measures_of_trials(trials, recordings.sound_of_recording(), enrollments)
    elif options.manifest is not None:
        seconds = durations_of_trials(trials, read_durations(options.manifest), enrollments)
    if options.embeddings is not None:
        needed = recordings_needed([trials], enrollments)
        embeddings = read_embeddings(options.embeddings, needed)
        table = embeddings_of_trials(trials, embeddings, enrollments, options.template)
    packed = "" if background is None else pack_background(background)
    return quality_measures(trials.enroll, trials.test, seconds, table, sound, packed)
