"""train.py called from tests in this process: importing torch and SpeechBrain takes seconds."""

import contextlib
import io
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import torch

import train

ROOT = Path(__file__).parents[1]


def out_of_memory(step: int) -> float:
    """A schedule on a device that is full."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")


def run_train(arguments: Sequence[object]) -> subprocess.CompletedProcess[str]:
    """What ``python train.py ARGUMENTS`` would return and print, run in this process."""
    command = ["train.py", *map(str, arguments)]
    output, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", command),
        _as_in_a_process_of_its_own(),
    ):
        try:
            code = train.main()
        except SystemExit as error:
            code = int(error.code or 0)
        except Exception:
            traceback.print_exc()
            code = 1
    return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def _as_in_a_process_of_its_own() -> Iterator[None]:
    """From the project's root with one thread, without traces in random state and logging."""
    folder, threads = Path.cwd(), torch.get_num_threads()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    os.chdir(ROOT)
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        os.chdir(folder)
        torch.set_num_threads(threads)
        for handler in set(root.handlers) - set(handlers):
            handler.close()
        root.handlers, root.level = handlers, level


def train_here(arguments: Sequence[str], log: Path, threads: int | None) -> None:
    """In the place of ``tools.experiment_runs._train``, which starts a process per training."""
    finished = run_train([*arguments, "--noprogressbar"])
    log.write_text(finished.stdout + finished.stderr, encoding="utf-8")
    if finished.returncode != 0:
        raise ChildProcessError(finished.stderr)
