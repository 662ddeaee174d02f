"""A program ends with words where the user can mend it, and with a traceback where we must."""

import errno
import os
from collections.abc import Callable

import pytest

from simple_spk.cli.errors import INTERRUPTED, exit_code

Capture = pytest.CaptureFixture[str]


def raising(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def test_success_is_what_the_program_returns() -> None:
    assert exit_code("x", lambda: None) == 0
    assert exit_code("x", lambda: 3) == 3


@pytest.mark.parametrize("kind", [ValueError, FileNotFoundError, FloatingPointError])
def test_mistakes_are_told_in_one_line(kind: type[Exception], capsys: Capture) -> None:
    assert exit_code("x.py", raising(kind("bad: mend it"))) == 1
    assert capsys.readouterr().err == "x.py: error: bad: mend it\n"


def test_what_a_data_worker_met_is_told_without_its_history(capsys: Capture) -> None:
    text = (
        "Caught AudioError in worker 0.\nOriginal Traceback (most recent call last):\n  a\n"
        "simple_spk.data.decoding.AudioError: bad.wav"
    )
    assert exit_code("x.py", raising(ValueError(text))) == 1
    assert capsys.readouterr().err == "x.py: error: bad.wav\n"


@pytest.mark.parametrize("name", ["a.npz", b"a.npz"])
def test_a_full_disk_is_called_so(name: str | bytes, capsys: Capture) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    assert exit_code("x.py", raising(full), resumes=True) == 1
    said = "x.py: error: disk full: a.npz: make room; the same command then goes on\n"
    assert capsys.readouterr().err == said


def test_a_traceback_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMPLE_SPK_TRACEBACK", "1")
    with pytest.raises(ValueError, match="bad"):
        exit_code("x.py", raising(ValueError("bad")))


def test_our_own_mistakes_are_raised() -> None:
    with pytest.raises(AssertionError):
        exit_code("x.py", raising(AssertionError("impossible")))


@pytest.mark.parametrize("goes_on", [True, False])
def test_ctrl_c_says_whether_work_is_kept(goes_on: bool, capsys: Capture) -> None:
    assert exit_code("x.py", raising(KeyboardInterrupt()), goes_on) == INTERRUPTED
    assert ("the same command goes on" in capsys.readouterr().err) == goes_on
