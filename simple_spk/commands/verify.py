"""The score of two recordings, and the model's own decision."""

import json
from argparse import ArgumentParser, Namespace

from simple_spk.commands.options import add_model
from simple_spk.extractor import Extractor


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of verify."""
    add_model(parser)
    parser.add_argument("enrol", help="a recording of a known speaker")
    parser.add_argument("test", help="the recording in question")
    parser.add_argument("--json", action="store_true", help="answer as JSON")


def run(options: Namespace) -> None:
    """Compare, and answer."""
    verdict = Extractor.load(options.model, options.device).verify(options.enrol, options.test)
    if options.json:
        print(json.dumps(verdict._asdict()))
        return
    answer = {True: "same speaker", False: "different speakers", None: "no threshold in the model"}
    threshold = "" if verdict.threshold is None else f" (threshold {verdict.threshold:.3f})"
    print(f"{answer[verdict.accepted]}: score {verdict.score:.3f}{threshold}")
