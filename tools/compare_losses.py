"""Compare losses: python tools/compare_losses.py BASE.yaml --losses softmax aamsoftmax -o FOLDER

BASE.yaml, an experiment with SimPLE, and the same experiment with each of the losses (names of the
folder losses beside it, or of hparams/losses, YAML files of that kind, or whole experiments such as
search_settings.py writes) are trained with each seed, with equal encoder, budget and order of the
data: one process after the other, or several --at-once, which on a CPU is faster. Options after --
go to train.py in all runs:

    python tools/compare_losses.py hparams/mini.yaml --losses softmax aamsoftmax --seeds 1 2 3 \\
        -o results/losses -- --number_of_epochs=5

Stopped and started again with the same command, it goes on where it was; losses and seeds may be
added. FOLDER has the runs, and table.md and plot.png, which are updated after each seed.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from tools.exchange_loss import keys_of, write_experiment
from tools.experiment_runs import (
    ROOT,
    Overrides,
    Run,
    Variant,
    experiments_parser,
    run_all,
    split_overrides,
)
from tools.seed_statistics import write_comparison

LOSSES = ROOT / "hparams" / "losses"
REFERENCE = "simple"


def loss_file(name: str, base: Path) -> Path:
    """The file of a loss, by its name in the folder losses beside BASE.yaml, by its name in
    hparams/losses, or by its path."""
    folders = (base.parent / "losses", LOSSES)
    places = [Path(name)] if name.endswith(".yaml") else [f / f"{name}.yaml" for f in folders]
    for path in places:
        if path.is_file():
            return path
    known = ", ".join(sorted({file.stem for folder in folders for file in folder.glob("*.yaml")}))
    raise ValueError(f"no loss {name}: expected one of {known}, or a YAML file")


def refuse_overrides_of(loss: Path, overrides: Overrides) -> None:
    """Raise if an option for all experiments would override a key in the file of a loss."""
    given = {option.removeprefix("--").partition("=")[0] for option in overrides}
    both = sorted(given & {str(key) for key in keys_of(loss.read_text(encoding="utf-8"))})
    if both:
        raise ValueError(
            f"--{both[0]} would replace the {both[0]} of {loss}, too: write it into BASE.yaml or "
            f"into a copy of the loss's file, whichever is meant"
        )


def loss_variants(
    base: Path, losses: Sequence[str], folder: Path, overrides: Overrides
) -> list[Variant]:
    """BASE.yaml, and an experiment with each loss."""
    variants = [Variant(REFERENCE, base)]
    for path in (loss_file(name, base) for name in losses):
        experiment = path
        if "modules" not in keys_of(path.read_text(encoding="utf-8")):  # it is a loss alone
            refuse_overrides_of(path, overrides)
            experiment = folder / "experiments" / f"{path.stem}.yaml"
            write_experiment(base, path, experiment)
        variants.append(Variant(path.stem, experiment))
    return variants


def compare(
    base: Path,
    losses: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    overrides: Overrides,
    at_once: int = 1,
) -> str:
    """Run all losses with all seeds; the table of their metrics."""
    variants = loss_variants(base, losses, folder, overrides)
    return run_and_write(variants, seeds, folder, overrides, at_once)


def run_and_write(
    variants: Sequence[Variant],
    seeds: Sequence[int],
    folder: Path,
    overrides: Overrides,
    at_once: int = 1,
) -> str:
    """Run all variants, seed by seed, and write the table and the plot after each; the table."""
    title = f"`python {shlex.join(sys.argv)}`"
    runs: list[Run] = []
    text = ""
    for of_seed in run_all(variants, seeds, folder, overrides, at_once):
        runs += of_seed
        text = write_comparison(folder, title, runs)
    return text


def main() -> int:
    """Compare, and return the exit code."""
    ours, overrides = split_overrides(sys.argv[1:])
    parser = experiments_parser(__doc__, seeds=[1, 2, 3])
    parser.add_argument(
        "--losses", nargs="+", required=True, metavar="LOSS", help="names or YAML files"
    )
    options = parser.parse_args(ours)

    def run() -> None:
        folder, at_once = options.output, options.at_once
        print(compare(options.base, options.losses, options.seeds, folder, overrides, at_once))

    return exit_code("compare_losses.py", run, resumes=True)


if __name__ == "__main__":
    sys.exit(main())
