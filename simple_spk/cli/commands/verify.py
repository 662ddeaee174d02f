"""Do two recordings have one speaker? A probability, a decision, and what it rests on."""

import json
from argparse import ArgumentParser, Namespace

from simple_spk.cli.answers import (
    answer_without_decision,
    plain_quality,
    quality_line,
    strength,
)
from simple_spk.cli.options import add_decision, add_model
from simple_spk.inference.decisions import Verdict
from simple_spk.inference.extractor import Extractor


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of verify."""
    parser.add_argument("enroll", metavar="A", help="a recording of a known speaker")
    parser.add_argument("test", metavar="B", help="the recording in question")
    add_decision(parser)
    add_model(parser)


def run(options: Namespace) -> None:
    """Compare, and answer."""
    extractor = Extractor.load(options.model, options.device, options.precision)
    verdict = extractor.verify(
        options.enroll, options.test, prior=options.prior, false_accept_rate=options.far
    )
    if options.json:
        qualities = [[plain_quality(one) for one in side] for side in verdict.qualities]
        answer = verdict._asdict() | {"sureness": verdict.sureness, "qualities": qualities}
        print(json.dumps(answer))
        return
    print(_sentence(verdict, options.far is not None))
    if verdict.accepted is not None and (
        options.far or options.prior or verdict.probability is None
    ):
        print(f"  {verdict.reason}")
    for path, side in zip((options.enroll, options.test), verdict.qualities, strict=True):
        for quality in side:
            print(quality_line(path, quality))


def _sentence(verdict: Verdict, at_a_rate: bool) -> str:
    """A verdict in one line."""
    if verdict.score is None:
        return f"{answer_without_decision(verdict.threshold)}: {verdict.reason}"
    details = strength(verdict.score, verdict.log_likelihood_ratio)
    if verdict.accepted is None:
        return f"{answer_without_decision(verdict.threshold)}: {verdict.reason} ({details})"
    sentence = "same speaker" if verdict.accepted else "different speakers"
    if at_a_rate and not verdict.accepted:  # however likely it is to be the same one
        sentence = "not accepted as the same speaker"
    if verdict.probability is not None:
        of_what = "" if verdict.accepted or at_a_rate else " of the same one"
        sentence += f": probability{of_what} {100 * verdict.probability:.3g} %"
    return f"{sentence} ({details})"
