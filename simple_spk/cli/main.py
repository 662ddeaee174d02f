"""The command simple-spk: whose voice is it, and how well can that be told?

Training is python train.py. Every command explains itself: simple-spk COMMAND --help.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from simple_spk.cli.errors import exit_code

# Only the module of the command that is run is imported: what needs no torch starts at once.
COMMANDS = {
    "prepare": "from the archives of a corpus to what training reads",
    "doctor": "is the installation sound, the data complete, and what will training need?",
    "verify": "do two recordings have one speaker?",
    "enroll": "remember a voice by name",
    "identify": "whose voice is it, of those enrolled? perhaps nobody's",
    "embed": "embeddings of audio files, folders or lists, as one file",
    "evaluate": "scores and error rates of trial lists, straight from audio files",
    "score": "scores and error rates of trial lists, from embeddings",
    "metrics": "error rates of scores that any toolkit wrote, with intervals",
    "compare": "is one system better than another? difference, interval, p-value",
    "calibrate": "learn to turn scores into log likelihood ratios",
    "export": "a trained model as a folder: ours, ONNX, SpeechBrain's; or from WeSpeaker",
}


class Paragraphs(argparse.HelpFormatter):
    """Help whose description keeps its paragraphs, each as wide as the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(super(Paragraphs, self)._fill_text(p, width, indent) for p in paragraphs)


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The command line, with the options of the command that the arguments name."""
    main_parser = argparse.ArgumentParser(
        prog="simple-spk", description=__doc__, formatter_class=Paragraphs
    )
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, formatter_class=Paragraphs)
        if name in arguments[:1]:
            module = importlib.import_module(f"simple_spk.cli.commands.{name}")
            command.description = module.__doc__
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return main_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser(arguments).parse_args(arguments)
    return exit_code("simple-spk", lambda: options.run(options), _goes_on(options))


def _goes_on(options: argparse.Namespace) -> bool:
    """Whether a command, stopped and started again, goes on where it was."""
    keeps_embeddings = getattr(options, "save_embeddings", None) is not None
    return options.command in ("prepare", "embed") or keeps_embeddings


if __name__ == "__main__":
    sys.exit(main())
