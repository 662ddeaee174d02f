"""One conversion per target, also while processes of a killed one are still dying."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_held: list[int] = []  # locks of this process, until it ends


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Refuse if another run holds the folder, and wait for workers that a killed run left behind.

    The system frees both locks when their processes end, however they end.
    """
    with (folder / "run.lock").open("a") as run, (folder / "workers.lock").open("a") as workers:
        try:
            fcntl.flock(run, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                f"another conversion is at work in {folder.parent}: wait for it, or stop it"
            ) from error
        fcntl.flock(workers, fcntl.LOCK_EX)
        fcntl.flock(workers, fcntl.LOCK_UN)
        yield


def hold_worker_lock(folder: Path) -> None:
    """Let the next run wait for the end of this process."""
    descriptor = os.open(folder / "workers.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _held.append(descriptor)
