"""The command simple-spk: speaker verification with trained models, and its evaluation.

Training is python train.py. Every command explains itself: simple-spk COMMAND --help.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from simple_spk import __version__
from simple_spk.cli.errors import exit_code
from simple_spk.cli.messages import printable

# Only the module of the command that runs is imported. Commands import torch when they run: a
# mistake in the arguments is answered at once.
COMMANDS = {
    "prepare": "prepare a corpus for training",
    "doctor": "check the installation and the data, and measure what training needs",
    "verify": "decide whether two recordings have the same speaker",
    "enroll": "enroll a speaker by name",
    "voices": "list, rename, remove, copy or index enrolled voices",
    "identify": "find the enrolled speaker of recordings, if there is one",
    "diarize": "find who speaks when in a recording",
    "cluster": "sort recordings by speaker, without knowing any",
    "serve": "serve verification, enrollment, identification and diarization over HTTP",
    "embed": "write embeddings of audio files, folders or lists",
    "evaluate": "compute scores and error rates of trial lists from audio files",
    "score": "compute scores and error rates of trial lists from embeddings",
    "metrics": "compute error rates, with intervals, of score files of any toolkit",
    "compare": "compare two systems: difference, interval, p-value",
    "calibrate": "train a calibration, which turns scores into log likelihood ratios",
    "export": "export a model as a folder, ONNX, or for other toolkits; import one of theirs",
}

IN_SPEAKERS = ("diarize", "cluster", "serve")  # in cli/speakers/: a folder holds at most 14 files


class Paragraphs(argparse.HelpFormatter):
    """Help whose description keeps its paragraphs, each as wide as the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(super(Paragraphs, self)._fill_text(p, width, indent) for p in paragraphs)


class StoreOnce(argparse._StoreAction):
    """Stores the value of an option; the same option again would replace it silently."""

    is_given = False

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.is_given and option_string is not None:
            several = "all values after the first" if self.nargs == "+" else "one of them"
            raise argparse.ArgumentError(self, f"given twice: give {several}")
        self.is_given = True
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """A parser of options that may be given once, whose messages are printable."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=Paragraphs)
        self.register("action", None, StoreOnce)
        self.register("action", "store", StoreOnce)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(status, None if message is None else printable(message))


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The command line, with the options of the command that the arguments name."""
    main_parser = Parser(prog="simple-spk", description=__doc__)
    main_parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if name in arguments[:1]:
            folder = "speakers" if name in IN_SPEAKERS else "commands"
            module = importlib.import_module(f"simple_spk.cli.{folder}.{name}")
            command.description = module.__doc__
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return main_parser


def run(arguments: Sequence[str]) -> int | None:
    """Run the command that the arguments name."""
    options = parser(arguments).parse_args(arguments)
    return options.run(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if sys.stderr is not None and not sys.stderr.isatty():  # a log file; tqdm reads these later
        os.environ.setdefault("TQDM_MININTERVAL", "60")
        os.environ.setdefault("TQDM_MAXINTERVAL", "60")
    resumes = given[:1] in (["prepare"], ["embed"]) or "--save-embeddings" in given
    return exit_code("simple-spk", lambda: run(given), resumes)


if __name__ == "__main__":
    sys.exit(main())
