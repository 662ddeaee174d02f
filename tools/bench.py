"""Benchmarks: python tools/bench.py NAME [--json FILE]

Each benchmark times our code beside a stated reference in one and the same run, in turns, and
prints ratios: on shared machines only those mean something. Peak memory is taken in processes of
their own. A benchmark is a file of tools/benchmarks/.
"""

import argparse
import importlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.io.atomic_file import write_json
from tools.benchmarks.measure import Row

NAMES = sorted(
    path.stem
    for path in (Path(__file__).parent / "benchmarks").glob("*.py")
    if path.stem not in ("__init__", "measure")
)


def print_table(rows: list[Row]) -> None:
    """Rows as a Markdown table."""
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        cells = (f"{v:.3g}" if isinstance(v, float) else f"{v}" for v in row.values())
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Run one benchmark, print its table and, if asked, write it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=NAMES, help="which benchmark")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument(
        "--threads",
        type=int,
        default=torch.get_num_threads(),
        metavar="N",
        help="threads of torch (default: as torch chooses, here %(default)s)",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder with real lists (or SIMPLE_SPK_DATA)"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    benchmark = importlib.import_module(f"tools.benchmarks.{options.name}")
    print((benchmark.__doc__ or "").splitlines()[0], f"({options.threads} threads)\n")
    rows = benchmark.run(options)
    print_table(rows)
    if options.json is not None:
        write_json(options.json, rows)


if __name__ == "__main__":
    main()
