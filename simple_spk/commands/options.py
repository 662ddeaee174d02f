"""Options that several commands share, so that they are spelt alike everywhere."""

from argparse import ArgumentParser
from pathlib import Path


def add_model(parser: ArgumentParser) -> None:
    """Which model, and where it computes."""
    parser.add_argument("--model", type=Path, required=True, help="model folder (RUN/model)")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, ...")


def add_workers(parser: ArgumentParser) -> None:
    """How many processes read audio."""
    parser.add_argument("--workers", type=int, default=0, help="processes that read audio ahead")


def add_json(parser: ArgumentParser) -> None:
    """Where the figures go."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")


def add_trials(parser: ArgumentParser) -> None:
    """Which trials."""
    parser.add_argument("--trials", type=Path, required=True, help="trial list, may be .gz")
