"""Let the n-th file operation of a command fail: python tools/fault_injection.py [--sample N]

For every n, and for SIGKILL, EIO and ENOSPC, a small train, embed, enroll, prepare or export runs
until its n-th file operation fails (opening for writing, writing, syncing, renaming, unlinking,
making and removing folders; see fail_operation.c). Then

* every file under its final name must be whole: as it was before, or as an undisturbed run leaves
  it, and every checkpoint must be whole; a database must be so after SQLite has opened it;
* EIO and ENOSPC must end in a message without a traceback;
* the same command, run again, must end with the bits of an undisturbed run, and leave no other
  files behind. (A voice that was enrolled before the failure is enrolled twice then.)

Needs Linux and a C compiler. Commands run in processes that are forked after all imports.
"""

import argparse
import contextlib
import errno
import importlib
import mmap
import multiprocessing
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.io.atomic_file import LOCK

ROOT = Path(__file__).parents[1]
STATE = "FAULT_STATE"
LONGEST_PATH = 4096
STATE_BYTES = 3 * 8 + 3 * LONGEST_PATH
KINDS = {"SIGKILL": 0, "EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
TASKS = ("train", "embed", "enroll", "prepare", "export")
# Names of files that are unfinished, are locks, or tell the history of a run.
UNFINISHED = ("*.partial", "*.partial/*", "checkpoints/PARTIAL-*/*", "checkpoints/DELETED-*/*")
HISTORY = (
    LOCK,
    "*.lock",
    "*.keys",
    "*.db-journal",
    "log.txt",
    "env.log",
    "train.py",
    "tensorboard/*",
    "checkpoints/*/*",
)
JOURNALS = (
    "*/journal.jsonl",
)  # lines of work that was done until the failure; rewritten at the end
DATABASE = ".db"
FULL = ("disk full", "No space left on device")
Files = dict[str, bytes]


class Task(NamedTuple):
    """A command that writes below ``output``, where it finds the files of ``start``."""

    name: str
    command: list[str]
    start: Callable[[Path], None] = lambda output: None


class Outcome(NamedTuple):
    """How a command ended: its exit code (negative: a signal), and what it printed."""

    code: int
    said: str
    operations: int
    failed: str  # the operation that failed, and its file


class Failures:
    """The state that is shared with the preloaded library."""

    def __init__(self) -> None:
        with open(os.environ[STATE], "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), STATE_BYTES)

    def arm(self, folder: Path | None, number: int = 0, error: int = 0) -> None:
        """Let an operation below the folder fail; 0: only count them; no folder: do nothing."""
        name = b"" if folder is None else os.fsencode(folder)
        self.memory[:] = struct.pack("qqq", 0, number, error) + name.ljust(3 * LONGEST_PATH, b"\0")

    def report(self) -> tuple[int, str]:
        """How many operations there were, and which one failed."""
        (count,) = struct.unpack_from("q", self.memory)
        failed = self.memory[3 * 8 + LONGEST_PATH :].partition(b"\0")[0]
        return count, failed.decode(errors="replace")


def call(command: Sequence[str]) -> None:
    """Run a command in this process, which ends with its exit code."""
    import speechbrain.utils.logger

    import train
    from simple_spk.cli.main import main

    # SpeechBrain's list of installed packages takes longer than the training.
    speechbrain.utils.logger.get_environment_description = lambda: "not listed"
    os.chdir(ROOT)
    if command[0] == "train":
        sys.argv = ["train.py", *command[1:]]
        code = train.main()
    else:
        code = main(command)
    sys.exit(code)


def _child(command: Sequence[str], log: Path) -> None:
    """``call``, with what it prints in a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    try:
        call(command)
    finally:
        log.with_name("modules").write_text("\n".join(sys.modules))


def run(task: Task, output: Path, failures: Failures, number: int = 0, error: int = 0) -> Outcome:
    """Run the command of a task in a forked process, whose ``number``-th operation fails."""
    log = output.with_name("log")
    process = multiprocessing.get_context("fork").Process(target=_child, args=(task.command, log))
    sys.stdout.flush()
    failures.arm(output, number, error)
    process.start()
    process.join()
    operations, failed = failures.report()
    failures.arm(None)
    said = log.read_text(encoding="utf-8", errors="replace")
    return Outcome(process.exitcode or 0, said, operations, failed)


def content_of(path: Path) -> bytes:
    """The content of a file; that of a database as statements, after an interrupted transaction is
    undone. Its random identity does not count."""
    if path.suffix != DATABASE:
        return path.read_bytes()
    with contextlib.closing(sqlite3.connect(path)) as db:
        with contextlib.suppress(sqlite3.OperationalError):  # without tables
            db.execute("UPDATE store SET identity = ''")
        return "\n".join(db.iterdump()).encode()


def files_in(folder: Path, ignored: Sequence[str] = HISTORY) -> Files:
    """The contents of the files below a folder by their relative paths."""
    paths = ((path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file())
    return {
        str(name): content_of(path)
        for name, path in paths
        if not any(name.match(pattern) for pattern in ignored)
    }


def make_anew(task: Task, output: Path) -> Files:
    """Bring the output of a task to its start; returns the files there."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    task.start(output)
    return files_in(output)


class Expected(NamedTuple):
    """What an undisturbed run needs and leaves."""

    operations: int
    finals: list[Files]  # after one run, and after a second


def undisturbed(task: Task, output: Path, failures: Failures) -> Expected:
    """Run a task twice without failures."""
    make_anew(task, output)
    first = run(task, output, failures)
    if first.code != 0:
        raise ChildProcessError(f"{task.name} fails by itself: {first.said}")
    finals = [files_in(output)]
    # What the command imported late need not be imported by every forked process.
    for module in output.with_name("modules").read_text().split():
        if module not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(module)
    run(task, output, failures)
    return Expected(first.operations, [*finals, files_in(output)])


def faults_of(
    task: Task, output: Path, failures: Failures, expected: Expected, kind: str, number: int
) -> tuple[str, list[str]]:
    """The operation that failed, and what went wrong because of it."""
    start = make_anew(task, output)
    broken = run(task, output, failures, number, KINDS[kind])
    faults = []
    if not broken.failed:
        return "", []  # the order of processes differed, and there were fewer operations
    for name, content in files_in(output, (*HISTORY, *UNFINISHED, *JOURNALS)).items():
        known = [files[name] for files in (start, *expected.finals) if name in files]
        if known and content not in known:
            faults.append(f"{name} is not whole")
    if task.name == "train":
        from tools.power_cut import faults_in  # imports torch

        faults += faults_in(output / "run")
    if kind != "SIGKILL":
        if "Traceback" in broken.said or broken.code < 0 or broken.code not in (0, 1):
            faults.append(f"it ended with {broken.code} and said: {broken.said[-1500:]}")
        elif broken.code == 1 and kind == "ENOSPC" and not any(w in broken.said for w in FULL):
            faults.append(f"it did not say that the disk is full: {broken.said[-400:]}")
    was_done = files_in(output) in expected.finals
    again = run(task, output, failures)
    if again.code != 0 and not was_done:
        faults.append(f"run again, it ended with {again.code}: {again.said[-1500:]}")
    found = files_in(output)
    if found not in expected.finals:
        best = expected.finals[0]
        names = [name for name in {**best, **found} if best.get(name) != found.get(name)]
        faults.append(f"run again, it left other files: {', '.join(sorted(names)[:5])}")
    return broken.failed, faults


def make_tasks(work: Path, output: Path) -> list[Task]:
    """The commands, and all that they read."""
    import numpy as np
    import soundfile
    import torch

    from simple_spk.inference.model import trained_model
    from simple_spk.inference.model_folder import save_model
    from simple_spk.losses.simple import SimPLELoss
    from simple_spk.models.fbank import Fbank
    from simple_spk.models.resnet import ResNet
    from tools.make_toy_corpus import make_toy_corpus
    from tools.power_cut import SMALL
    from tools.write_m4a import write_m4a

    corpus, model, audio = work / "corpus", work / "model", work / "audio"
    make_toy_corpus(
        corpus, train_speakers=4, valid_speakers=2, test_speakers=2, recordings_per_speaker=2
    )
    torch.manual_seed(0)
    encoder = ResNet(width=4, stem_stride=2, embedding_dim=16)
    save_model(model, trained_model(Fbank(), encoder, SimPLELoss()))
    audio.mkdir()
    for number, wav in enumerate(sorted(corpus.rglob("*.wav"))[:4]):
        samples, rate = soundfile.read(wav, dtype="float32")
        soundfile.write(audio / f"{number}.wav", np.tile(samples, 2), rate)
        m4a = work / f"VoxCeleb2/dev/aac/id0001{number}/video/00001.m4a"
        write_m4a(m4a, np.tile(samples, 2), rate)
    own = {option.partition("=")[0]: option for option in SMALL} | {
        "--number_of_epochs": "--number_of_epochs=1",
        "--batches_per_epoch": "--batches_per_epoch=2",
        "--embedding_dim": "--embedding_dim=16",
        "--noprogressbar": "--noprogressbar",
    }
    places = [f"--data_folder={corpus}", f"--output_folder={output / 'run'}"]
    with_model = ["--model", str(model)]

    def enroll_bob(folder: Path) -> None:
        voices = work / "voices.db"
        if not voices.exists():
            command = ["enroll", str(voices), "Bob", str(audio / "2.wav"), *with_model]
            process = multiprocessing.get_context("fork").Process(target=call, args=(command,))
            process.start()
            process.join()
        shutil.copy(voices, folder / "voices.db")

    voices = str(output / "voices.db")
    return [
        Task("train", ["train", "hparams/mini.yaml", *places, *own.values()]),
        Task("embed", ["embed", str(audio), "-o", str(output / "e.npz"), *with_model]),
        Task("enroll", ["enroll", voices, "Ann", str(audio / "0.wav"), *with_model], enroll_bob),
        Task(
            "prepare",
            ["prepare", "voxceleb2", str(work / "VoxCeleb2"), str(output), "--workers", "1"],
        ),
        Task("export", ["export", str(model), str(output / "exported"), "--half"]),
    ]


def sweep(
    names: Sequence[str], kinds: Sequence[str], sample: int | None
) -> Iterator[tuple[str, int, str, int, int]]:
    """Task, its operations, kind of failure, failures tried and failures held; prints the others.

    ``sample`` limits the operations of each task and kind, which are spread evenly.
    """
    failures = Failures()
    failures.arm(None)
    memory = Path("/dev/shm")  # where syncing takes no time
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        work = Path(name).resolve()
        output = work / "output"
        for task in make_tasks(work, output):
            if task.name not in names:
                continue
            expected = undisturbed(task, output, failures)
            for offset, kind in enumerate(kinds):
                numbers = list(range(1, expected.operations + 1))
                if sample is not None and sample < len(numbers):
                    step = len(numbers) / sample
                    begin = step * (offset + 0.5) / len(kinds)  # other operations for each kind
                    numbers = [1 + int(begin + step * place) for place in range(sample)]
                tried = held = 0
                for number in numbers:
                    failed, faults = faults_of(task, output, failures, expected, kind, number)
                    tried += bool(failed)
                    held += bool(failed) and not faults
                    for fault in faults:
                        print(f"{task.name}, {kind} at {number} ({failed}): {fault}", flush=True)
                yield task.name, expected.operations, kind, tried, held


def start_preloaded(arguments: Sequence[str]) -> int:
    """Run this program again with the failing operations in the place of the C library's."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        print("fault_injection.py: needs Linux and a C compiler", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        library, state = Path(name, "fail.so"), Path(name, "state")
        source = Path(__file__).with_name("fail_operation.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        state.write_bytes(bytes(STATE_BYTES))
        own = {"LD_PRELOAD": str(library), STATE: str(state), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, *arguments]
        return subprocess.run(command, env=os.environ | own, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all, print a table, and return 1 if anything was lost."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    what = "operations to try for each task and kind (default: all)"
    parser.add_argument("--sample", type=int, metavar="N", help=what)
    options = parser.parse_args(arguments)
    if STATE not in os.environ:
        return start_preloaded(arguments)
    import train  # noqa: F401  (imported before forking)

    lost = 0
    print("| command | operations | failure | tried | held | failed |\n|---|---|---|---|---|---|")
    for task, operations, kind, tried, held in sweep(options.tasks, options.kinds, options.sample):
        print(f"| {task} | {operations} | {kind} | {tried} | {held} | {tried - held} |", flush=True)
        lost += tried - held
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
