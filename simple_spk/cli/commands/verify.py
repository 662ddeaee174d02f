"""Decide whether two recordings have the same speaker, with a probability and the reason."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.messages import say
from simple_spk.cli.options import add_decision, add_model, load_extractor
from simple_spk.inference.decisions import Decision, warnings
from simple_spk.inference.speech_quality import RecordingQuality


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of verify."""
    parser.add_argument("enroll", metavar="A", help="a recording of a known speaker")
    parser.add_argument("test", metavar="B", help="the recording to verify")
    add_decision(parser)
    add_model(parser)


def run(options: Namespace) -> None:
    """Compare, and print the decision."""
    extractor = load_extractor(options, options.device)
    extractor.progress = True
    decision = extractor.verify(
        options.enroll, options.test, prior=options.prior, false_accept_rate=options.far
    )
    if options.json:
        qualities = [[quality_json(one) for one in side] for side in decision.qualities]
        answer = decision._asdict() | {"sureness": decision.sureness, "qualities": qualities}
        print(json.dumps(answer))
        return
    say(_sentence(decision, options.far is not None))
    needs_reason = options.far or options.prior or decision.probability is None
    if decision.accepted is not None and needs_reason:
        say(f"  {decision.reason}")
    for path, side in zip((options.enroll, options.test), decision.qualities, strict=True):
        for quality in side:
            say(quality_line(path, quality))


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
    return f"score {score:.2f}" + ("" if ratio is None else f", likelihood ratio e^{ratio:.1f}")


def no_decision(threshold: float | None) -> str:
    """What to print if there is no decision; a model without a threshold never decides."""
    return "not enough evidence" if threshold is not None else "undecided"


def quality_line(name: str | Path, quality: RecordingQuality) -> str:
    """The quality of a recording in one line, with warnings."""
    line = (
        f"  {name}: {quality.seconds:.1f} s, {quality.speech_seconds:.1f} s of speech, "
        f"signal to noise {quality.signal_to_noise_db:.0f} dB"
    )
    found = warnings(quality)
    return f"{line} (careful: {', '.join(found)})" if found else line


def quality_json(quality: RecordingQuality) -> dict[str, object]:
    """The quality of a recording for JSON."""
    return {**quality._asdict(), "warnings": warnings(quality)}
