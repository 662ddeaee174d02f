"""Benchmarks: python tools/bench.py NAME [--json FILE]

Each benchmark times our code beside a stated reference in one and the same run, in turns, and
prints ratios: on shared machines only those mean something. Peak memory is taken in processes of
their own. A benchmark is a file of tools/benchmarks/.

    python tools/bench.py all --json NEW.json        # each in a process of its own; resumable
    python tools/bench.py compare OLD.json NEW.json  # measurements that changed by more than 5 %
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from simple_spk.io.atomic_file import write_json
from tools.benchmarks.measure import Row

ROOT = Path(__file__).parents[1]
NAMES = sorted(
    path.stem
    for path in (Path(__file__).parent / "benchmarks").glob("*.py")
    if path.stem not in ("__init__", "measure")
)
NOTEWORTHY = 0.05  # smaller relative changes are not shown


def print_table(rows: list[Row]) -> None:
    """Rows as a Markdown table."""
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        cells = (f"{v:.3g}" if isinstance(v, float) else f"{v}" for v in row.values())
        print("| " + " | ".join(cells) + " |")


def commit() -> str:
    """The commit of this checkout, marked if files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=10", "--dirty", "--exclude=*"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def run_one(name: str, options: argparse.Namespace) -> None:
    """Run a benchmark and print its table; add it to the JSON file, if one is asked for."""
    benchmark = importlib.import_module(f"tools.benchmarks.{name}")
    if options.threads is None:
        options.threads = getattr(benchmark, "THREADS", torch.get_num_threads())
    torch.set_num_threads(options.threads)
    print((benchmark.__doc__ or "").splitlines()[0], f"({options.threads} threads)\n", flush=True)
    measured_commit = None if options.json is None else commit()
    start = time.perf_counter()
    rows = benchmark.run(options)
    print_table(rows)
    if options.json is not None:
        result = {
            "commit": measured_commit,
            "threads": options.threads,
            "seconds": time.perf_counter() - start,
            "rows": rows,
        }
        write_json(options.json, read_results(options.json) | {name: result})


def run_all(options: argparse.Namespace) -> int:
    """Run what the JSON file does not have of this commit; the number of failed benchmarks."""
    failed = []
    for name in NAMES:
        had, now = read_results(options.json).get(name, {}).get("commit"), commit()
        if had == now and not now.endswith("-dirty"):
            print(f"{name}: {options.json} has it\n", flush=True)
            continue
        command = [sys.executable, __file__, name, "--json", str(options.json)]
        command += ["--data", str(options.data)] if options.data else []
        command += ["--threads", str(options.threads)] if options.threads else []
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(name)
        print(flush=True)
    if failed:
        print("failed:", ", ".join(failed), file=sys.stderr)
    return len(failed)


def read_results(path: Path) -> dict[str, Any]:
    """The benchmarks in a JSON file by name; none if there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def changes(old: list[Row], new: list[Row]) -> list[Row]:
    """The measurements (floats) of rows with equal other values that changed noteworthily.

    >>> changes([{"what": "ours", "seconds": 2.0}], [{"what": "ours", "seconds": 3.0}])
    [{'row': 'ours', 'measure': 'seconds', 'old': 2.0, 'new': 3.0, 'change, %': 50}]
    """
    before = {_name(row): row for row in old}
    return [
        {
            "row": _name(row),
            "measure": measure,
            "old": past,
            "new": value,
            "change, %": round(100 * (value / past - 1)),
        }
        for row in new
        for measure, value in row.items()
        if isinstance(value, float)
        and isinstance(past := before.get(_name(row), {}).get(measure), float)
        and past > 0
        and abs(value / past - 1) > NOTEWORTHY
    ]


def _name(row: Row) -> str:
    """What is measured in a row: its values that are not measurements."""
    return ", ".join(str(v) for v in row.values() if not isinstance(v, float) and v != "")


def compare(old: Path, new: Path) -> None:
    """Print what changed between the JSON files of two runs, and what only one of them has."""
    if missing := [str(path) for path in (old, new) if not path.is_file()]:
        raise FileNotFoundError(f"no such file: {', '.join(missing)}")
    before, after = read_results(old), read_results(new)
    for name in sorted(before.keys() & after.keys()):
        old_rows, new_rows = before[name]["rows"], after[name]["rows"]
        rows = changes(old_rows, new_rows)
        commits = f"{before[name]['commit']} to {after[name]['commit']}"
        alone = len({*map(_name, old_rows)} ^ {*map(_name, new_rows)})
        print(
            f"{name}, {commits}: {len(rows)} changed by more than {NOTEWORTHY:.0%}"
            + (f", {alone} rows only in one of the files" if alone else "")
        )
        if rows:
            print_table(rows)
        print()
    if names := sorted(before.keys() ^ after.keys()):
        print("only in one of the files:", ", ".join(names))


def main() -> int:
    """Run one or all benchmarks, or compare two runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "name", choices=[*NAMES, "all", "compare"], metavar="NAME", help=", ".join(NAMES)
    )
    parser.add_argument("files", nargs="*", type=Path, help="of compare: two JSON files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the rows to this file")
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads of torch (default: the benchmark's THREADS, or as torch chooses)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get("SIMPLE_SPK_DATA"),
        help="folder with real lists and recordings (default: SIMPLE_SPK_DATA)",
    )
    options = parser.parse_args()
    if len(options.files) != (2 if options.name == "compare" else 0):
        parser.error("compare takes two JSON files, a benchmark none")
    if options.name == "all" and options.json is None:
        parser.error("all needs --json FILE: what it has is not run again")
    if options.name == "all":
        return run_all(options)
    if options.name == "compare":
        return exit_code("bench.py", lambda: compare(*options.files))
    run_one(options.name, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
