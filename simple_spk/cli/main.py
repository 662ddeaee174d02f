"""The command simple-spk: speaker verification with trained models, and its evaluation.

Training is python train.py. Every command explains itself: simple-spk COMMAND --help.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from simple_spk.cli.errors import exit_code

# Only the module of the command that runs is imported: commands without torch start fast.
COMMANDS = {
    "prepare": "prepare a corpus for training",
    "doctor": "check the installation and the data, and measure what training needs",
    "verify": "decide whether two recordings have the same speaker",
    "enroll": "enroll a speaker by name",
    "identify": "find the enrolled speaker of recordings, if there is one",
    "embed": "embeddings of audio files, folders or lists, as one file",
    "evaluate": "scores and error rates of trial lists, from audio files",
    "score": "scores and error rates of trial lists, from embeddings",
    "metrics": "error rates of score files of any toolkit, with intervals",
    "compare": "compare two systems: difference, interval, p-value",
    "calibrate": "train a calibration, which turns scores into log likelihood ratios",
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
    saves_embeddings = getattr(options, "save_embeddings", None) is not None
    resumes = options.command in ("prepare", "embed") or saves_embeddings
    return exit_code("simple-spk", lambda: options.run(options), resumes)


if __name__ == "__main__":
    sys.exit(main())
