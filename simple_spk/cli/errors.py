"""How a program ends: with words instead of a traceback where the user can mend it."""

import os
import sys
from collections.abc import Callable

BROKEN_PIPE, INTERRUPTED = 141, 130  # as shells give them
# Mistakes that a message explains better than a traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError)


def exit_code(program: str, run: Callable[[], int | None], goes_on: bool = False) -> int:
    """Run a program; on a user's mistake say what is wrong and return a non-zero exit code.

    A program that goes on where it was, if it is stopped and started again, says so. With
    SIMPLE_SPK_TRACEBACK in the environment mistakes are raised, to see where they happened.
    """
    try:
        code = run() or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # who reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except USER_ERRORS as error:
        if os.environ.get("SIMPLE_SPK_TRACEBACK"):
            raise
        message = str(error).strip()
        if "Original Traceback" in message:  # a data worker's error comes with its whole history
            message = message.splitlines()[-1]
        print(f"{program}: error: {message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        cure = "; the same command goes on" if goes_on else ""
        print(f"\n{program}: stopped{cure}", file=sys.stderr)
        return INTERRUPTED
