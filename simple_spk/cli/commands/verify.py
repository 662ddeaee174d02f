"""Decide whether two recordings have the same speaker, with a probability and the reason.

Several recordings of each speaker are compared with: simple-spk verify A1 A2 --against B1 B2

Exit codes: 0 same speaker, 3 different speakers (or not accepted at --far), 4 not enough evidence,
1 an error (also if only some of several recordings cannot be used), 2 a wrong call.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.errors import DIFFERENT, UNDECIDED
from simple_spk.cli.messages import say, warn
from simple_spk.cli.options import add_decision, add_model, add_value, load_extractor
from simple_spk.inference.decisions import (
    Decision,
    mismatch_warnings,
    misses_in_words,
    quality_warnings,
    ratio_in_words,
)
from simple_spk.inference.speech_quality import RecordingQuality


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of verify."""
    what = "two recordings to compare; or, with --against, all recordings of the first speaker"
    add_value(parser, "recordings RECORDING", what, str, nargs="+")
    add_value(parser, "--against RECORDING", "recordings of the second speaker", str, nargs="+")
    parser.set_defaults(wrong_call=parser.error)
    add_decision(parser, "both have the same speaker")
    add_model(parser)


def run(options: Namespace) -> int:
    """Compare, and print the decision."""
    first, second = options.recordings, options.against
    if second is None:
        if len(first) != 2:
            options.wrong_call("give two recordings, or those of the second speaker by --against")
        first, second = first[:1], first[1:]
    extractor = load_extractor(options, options.device)
    extractor.progress = True
    left_out: dict[str, str] = {}
    decision = extractor.verify(
        first,
        second,
        prior=options.prior,
        false_accept_rate=options.far,
        left_out=lambda recording, error: left_out.update({str(recording): str(error)}),
    )
    for message in left_out.values():
        warn(f"left out: {message}")
    code = 1 if left_out else answer_code(decision.accepted)
    if options.json:
        print(json.dumps(decision.plain()))
        return code
    say(_sentence(decision, options.far is not None))
    needs_reason = options.far or options.prior or decision.probability is None
    if decision.accepted is not None and needs_reason:
        say(f"  {decision.reason}")
        if options.far is not None and decision.miss_rate is not None:
            say(f"  {misses_in_words(decision.miss_rate)}")
    for warning in mismatch_warnings(*decision.qualities):
        say(f"  careful: {warning}")
    for paths, side in zip((first, second), decision.qualities, strict=True):
        used = [path for path in paths if path not in left_out]
        for path, quality in zip(used, side, strict=False):  # without a decision there is none
            say(quality_line(path, quality))
    return code


def answer_code(accepted: bool | None) -> int:
    """The exit code of an answer."""
    return {True: 0, False: DIFFERENT, None: UNDECIDED}[accepted]


def _sentence(decision: Decision, at_a_rate: bool) -> str:
    """A decision in one line."""
    if decision.score is None:
        return f"{no_decision(decision.threshold)}: {decision.reason}"
    details = score_in_words(decision.score, decision.log_likelihood_ratio)
    if decision.accepted is None:
        return f"{no_decision(decision.threshold)}: {decision.reason} ({details})"
    sentence = "same speaker" if decision.accepted else "different speakers"
    if at_a_rate and not decision.accepted:  # the same speaker may still be likelier
        sentence = "not accepted as the same speaker"
    if decision.probability is not None:
        of_what = "" if decision.accepted or at_a_rate else " of the same one"
        sentence += f": probability{of_what} {100 * decision.probability:.3g} %"
    return f"{sentence} ({details})"


def score_in_words(score: float, log_likelihood_ratio: float | None) -> str:
    """A score, and its likelihood ratio if that is known."""
    ratio = log_likelihood_ratio
    return f"score {score:.2f}" + ("" if ratio is None else f", {ratio_in_words(ratio)}")


def no_decision(threshold: float | None) -> str:
    """What to print if there is no decision; a model without a threshold never decides."""
    return "not enough evidence" if threshold is not None else "undecided"


def quality_line(name: str | Path, quality: RecordingQuality) -> str:
    """The quality of a recording in one line, with warnings."""
    line = (
        f"  {name}: {quality.seconds:.1f} s, {quality.speech_seconds:.1f} s of speech, "
        f"signal to noise {quality.signal_to_noise_db:.0f} dB"
    )
    found = quality_warnings(quality)
    return f"{line} (careful: {', '.join(found)})" if found else line
