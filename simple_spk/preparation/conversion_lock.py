"""One conversion per target, also while processes of a killed one are still dying."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from simple_spk.file_lock import lock_file

_held: list[IO[Any]] = []  # locks of this process, until it ends


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Refuse if another run holds the folder, and wait for workers that a killed run left behind.

    The system frees both locks when their processes end, however they end.
    """
    with (folder / "run.lock").open("a") as run:
        lock_file(run, f"another conversion is at work in {folder.parent}: wait for it, or stop it")
        with (folder / "workers.lock").open("a") as workers:
            lock_file(workers)
        yield


def hold_worker_lock(folder: Path) -> None:
    """Let the next run wait for the end of this process."""
    file = (folder / "workers.lock").open("r+")
    lock_file(file, shared=True)
    _held.append(file)
