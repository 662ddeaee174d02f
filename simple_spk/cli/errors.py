"""Exit codes, and messages instead of tracebacks for errors that the user can fix."""

import errno
import os
import re
import sys
from collections.abc import Callable

from simple_spk.cli.messages import prepare_terminal, warn

BROKEN_PIPE, INTERRUPTED = 141, 130  # the exit codes of shells
DIFFERENT, UNDECIDED = 3, 4  # of answers; 1 is an error, 2 a wrong call
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors that a message explains better than a traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError, MemoryError)


def exit_code(program: str, run: Callable[[], int | None], resumes: bool = False) -> int:
    """Run a program; print the message of a user's error and return a non-zero exit code.

    ``resumes`` says whether the program, if stopped, resumes when started again. With
    SIMPLE_SPK_TRACEBACK in the environment errors are raised with their traceback.
    """
    prepare_terminal()
    try:
        try:
            return run() or 0
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed it
        _discard_output()
        return BROKEN_PIPE
    except USER_ERRORS as error:
        if os.environ.get("SIMPLE_SPK_TRACEBACK"):
            raise
        message = str(error).strip() or type(error).__name__
        if "Original Traceback" in message:  # the error of a data worker
            message = re.sub(r"^[\w.]+Error: ", "", message.splitlines()[-1])
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            cure = "; the same command then goes on" if resumes else ""
            place = os.fsdecode(error.filename) if error.filename else message
            message = f"disk full: {place}: make room{cure}"
        warn(f"error: {message}", program)
        _discard_output()  # a full disk would fail again at the exit
        return 1
    except KeyboardInterrupt:
        cure = "; the same command goes on" if resumes else ""
        print(file=sys.stderr)  # after a progress bar
        warn(f"stopped{cure}", program)
        return INTERRUPTED


def _discard_output() -> None:
    """Send to nowhere what standard output cannot take."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
