"""Fuzzers: python tools/fuzz.py NAME [--seconds 60] [--mutants N] [--seed 0]

Damages files of a kind in many ways, reads each with the real reader, and counts. Every file must
be read, or be refused with a ValueError or OSError that names it. Anything else is a failure:
another exception, a crash, over 20 s of computing, endless waiting, over 2 GB of memory. Failures
are shown, their files kept, and the exit code is 1. The work is done in a process of its own, so
that nothing can hide. A kind of file is a module of tools/fuzzing/; "bombs" are small files that
pretend to be large.
"""

import argparse
import faulthandler
import importlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

SECONDS_ALLOWED = 20.0  # of computing; the machine may be busy with other things
BYTES_ALLOWED = 2 * 10**9
# Address space beyond that of an idle process, so that a failure does not hurt the machine.
ADDRESS_BYTES = 6 * 2**30
MARK = "case"  # before our lines: libraries print some of their own
NAMES = sorted(
    path.stem
    for path in (Path(__file__).parent / "fuzzing").glob("*.py")
    if path.stem not in ("__init__", "mutations")
)


class Outcome(NamedTuple):
    """What became of a file."""

    number: int
    answer: str  # "read", "refused", or what failed
    peak_bytes: int = 0
    seconds: float = 0.0
    row: str = ""  # of the table, if the kind of file has several

    @property
    def failed(self) -> bool:
        """Whether the file was neither read nor refused within the limits."""
        return self.answer not in ("read", "refused")


def outcome_of(kind: Any, path: Path, number: int) -> Outcome:
    """Read a file within limits."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak of memory
    # Both also end a process that is busy, or waits, within a library.
    signal.setitimer(signal.ITIMER_PROF, SECONDS_ALLOWED)
    faulthandler.dump_traceback_later(20 * SECONDS_ALLOWED, exit=True)
    started = time.process_time()
    try:
        kind.read(path)
        answer = "read"
    except (ValueError, OSError) as error:
        is_named = path.name in str(error)
        answer = "refused" if is_named else f"does not name the file: {error}"
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = "" if where is None else f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
        answer = f"{type(error).__name__}: {error} ({place})"
    seconds = time.process_time() - started
    signal.setitimer(signal.ITIMER_PROF, 0)
    faulthandler.cancel_dump_traceback_later()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
    if peak > BYTES_ALLOWED:
        answer = f"took {peak / 1e9:.1f} GB ({answer})"
    return Outcome(number, " ".join(answer.split())[:500], peak, seconds)


def work(name: str, folder: Path, start: int, count: int, seed: int, seconds: float) -> None:
    """Try some files of a kind, one line for each, as a process that may die of it."""
    kind: Any = importlib.import_module(f"tools.fuzzing.{name}")
    statm = Path("/proc/self/statm").read_text(encoding="ascii")
    allowed = int(statm.split()[0]) * resource.getpagesize() + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    until = time.monotonic() + seconds
    for number in range(start, start + count):
        if time.monotonic() > until:
            break
        place = folder / f"{name}{number}"
        path = kind.write_mutant(folder / "originals", place, random.Random(f"{seed} {number}"))
        print(f"\n{MARK} {number}", flush=True)
        outcome = outcome_of(kind, path, number)
        figures = outcome.peak_bytes, f"{outcome.seconds:.3f}"
        print(f"\n{MARK}", number, *figures, outcome.answer, flush=True)
        if not outcome.failed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(f"\n{MARK} done", flush=True)


def run(
    name: str, folder: Path, count: int, seed: int = 0, seconds: float = 1e9
) -> Iterator[Outcome]:
    """The outcomes of many files of a kind; those that fail stay in the folder."""
    kind: Any = importlib.import_module(f"tools.fuzzing.{name}")
    rows: list[str] = getattr(kind, "ROWS", [""])
    count = count if rows == [""] else min(count, len(rows))
    (folder / "originals").mkdir(parents=True)
    kind.write_originals(folder / "originals")
    start, until = 0, time.monotonic() + seconds
    while start < count and time.monotonic() < until:
        options = (start, count - start, seed, until - time.monotonic())
        command = [sys.executable, __file__, name, "--work", str(folder), *map(str, options)]
        messages = folder / "messages.txt"
        with (
            messages.open("w", encoding="utf-8") as file,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=file, text=True, errors="replace"
            ) as process,
        ):
            assert process.stdout is not None
            begun = None
            for line in process.stdout:
                match line.split(maxsplit=4):
                    case [word, "done"] if word == MARK:
                        return
                    case [word, number] if word == MARK:
                        begun = int(number)
                    case [word, number, peak, taken, answer] if word == MARK:
                        begun, start = None, int(number) + 1
                        row = rows[int(number) % len(rows)]
                        yield Outcome(int(number), answer.strip(), int(peak), float(taken), row)
        if begun is None:
            said = messages.read_text(encoding="utf-8", errors="replace")[-1000:]
            raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}: {said}")
        ended = f"code {process.returncode}"
        row = rows[begun % len(rows)]
        yield Outcome(begun, f"the process ended: {ended}", 0, SECONDS_ALLOWED, row)
        start = begun + 1


def main() -> int:
    """Run, show what failed, and count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=[*NAMES, "all"], help="kind of file")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kind (default 60)")
    parser.add_argument("--mutants", type=int, default=10**9, help="at most (default: no limit)")
    parser.add_argument("--seed", type=int, default=0, help="of the damages (default 0)")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        folder, start, count, seed, seconds = options.work
        work(options.name, Path(folder), int(start), int(count), int(seed), float(seconds))
        return 0
    names = NAMES if options.name == "all" else [options.name]
    print("| file | tried | read | refused | failed | peak memory | longest |\n|" + "---|" * 7)
    failures = Counter[str]()
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix=f"fuzz_{name}_"))
        rows: dict[str, list[Outcome]] = {}
        for outcome in run(name, folder / "files", options.mutants, options.seed, options.seconds):
            rows.setdefault(outcome.row or name, []).append(outcome)
            if outcome.failed:
                print(f"{folder}/files/{name}{outcome.number}*: {outcome.answer}", file=sys.stderr)
        for row, outcomes in rows.items():
            counts = Counter("failed" if one.failed else one.answer for one in outcomes)
            failures[name] += counts["failed"]
            peak = max(one.peak_bytes for one in outcomes) / 1e9
            longest = max(one.seconds for one in outcomes)
            numbers = (counts[answer] for answer in ("read", "refused", "failed"))
            cells = (row, len(outcomes), *numbers, f"{peak:.2f} GB", f"{longest:.1f} s")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        if not failures[name]:
            shutil.rmtree(folder)
    return int(failures.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
