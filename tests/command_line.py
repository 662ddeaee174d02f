"""What tests of the command simple-spk share: calling it, and what they call it with."""

from pathlib import Path

import numpy as np
import pytest

from simple_spk.cli.main import main

Capture = pytest.CaptureFixture[str]

NAMES = ["a0.wav", "a1.wav", "b0.wav", "b1.wav", "c0.wav", "c1.wav"]  # in ``audio_folder``
TRIALS = [(x, y, x[0] == y[0]) for x in NAMES for y in NAMES if x < y]


def run(*arguments: object) -> int:
    """The exit code of a call."""
    return main([str(argument) for argument in arguments])


def read_scores(path: Path) -> np.ndarray:
    """The third column of a score file, whose names must be those of the list, in its order."""
    fields = [line.split() for line in path.read_text().splitlines()]
    assert [(x, y) for x, y, *_ in fields] == [(x, y) for x, y, _ in TRIALS]
    return np.array([float(field[2]) for field in fields])


def fails_naming(capsys: Capture, word: str, *arguments: object) -> None:
    """The command returns 1 and says what is wrong in one short message on stderr."""
    capsys.readouterr()
    assert run(*arguments) == 1
    message = capsys.readouterr().err
    assert "simple-spk: error: " in message
    assert word in message.rsplit("simple-spk: error: ", 1)[1]
    assert "Traceback" not in message
