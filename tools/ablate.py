"""The paper's ablation: python tools/ablate.py BASE.yaml --sharpness 1 2 3 -o FOLDER

Trains an experiment with SimPLE at every point of a grid of sharpness (r), positive weight (alpha),
angular bias (b_theta) and queue size, what is not given staying as in BASE.yaml, and with other
similarities (inner product, cosine). Without any of these, it is BASE.yaml with several seeds.
Options after -- go to train.py in all runs:

    python tools/ablate.py hparams/mini.yaml --sharpness 1 2 3 --positive-weight 0.05 0.1 0.2 \\
        --similarities inner_product cosine --seeds 1 2 -o results/ablation -- --number_of_epochs=5

It goes on where it was stopped. The first row of table.md, with which all others are compared, is
BASE.yaml as it is, on or off the grid.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from tools.compare_losses import LOSSES, REFERENCE, refuse_overrides_of, run_and_write
from tools.exchange_loss import split, write_experiment
from tools.experiment_runs import Overrides, Variant, experiments_parser, split_overrides

GRID = {"angular_bias": float, "sharpness": float, "positive_weight": float, "queue_size": int}
SIMILARITIES = ("inner_product", "cosine")


def variants_of(
    base: Path,
    grid: Mapping[str, Sequence[float]],
    similarities: Sequence[str],
    folder: Path,
    overrides: Overrides,
) -> list[Variant]:
    """BASE.yaml as it is, every other point of the grid, and every other similarity."""
    own_point = point_of(base, list(grid), overrides)
    variants = [Variant(name_of(own_point) or REFERENCE, base)]
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        if point != own_point:
            options = [f"--{key}={value}" for key, value in point.items()]
            variants.append(Variant(name_of(point), base, options))
    for similarity in similarities:
        block = LOSSES / f"simple_{similarity}.yaml"
        refuse_overrides_of(block, overrides)
        experiment = folder / "experiments" / f"{similarity}.yaml"
        write_experiment(base, block, experiment)
        variants.append(Variant(similarity, experiment))
    return variants


def point_of(base: Path, names: Sequence[str], overrides: Overrides) -> dict[str, float]:
    """Where an experiment stands in a grid, by its YAML file and what overrides it."""
    if not base.is_file():
        raise FileNotFoundError(f"no such YAML file: {base}")
    lines = [part.lines[0] for part in split(base.read_text(encoding="utf-8"))]
    lines += [option.removeprefix("--").replace("=", ": ", 1) for option in overrides]
    texts = {line.partition(":")[0]: line.partition(":")[2] for line in lines}
    try:
        return {name: float(yaml.safe_load(texts[name])) for name in names}
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{base} has no numbers {', '.join(names)} to vary ({error})") from error


def name_of(point: Mapping[str, float]) -> str:
    """The name of a point of the grid, also of its folder."""
    return "-".join(f"{key}_{value:g}" for key, value in point.items())


def main() -> int:
    """Ablate, and return the exit code."""
    ours, overrides = split_overrides(sys.argv[1:])
    parser = experiments_parser(__doc__, seeds=[1])
    for name, kind in GRID.items():
        option = f"--{name.replace('_', '-')}"
        values = "values to try (default: that of BASE.yaml)"
        parser.add_argument(option, nargs="+", type=kind, default=[], metavar="VALUE", help=values)
    parser.add_argument(
        "--similarities", nargs="+", choices=SIMILARITIES, default=[], help="others to try"
    )
    options = parser.parse_args(ours)
    grid = {name: getattr(options, name) for name in GRID if getattr(options, name)}

    def run() -> None:
        variants = variants_of(options.base, grid, options.similarities, options.output, overrides)
        folder, at_once = options.output, options.at_once
        print(run_and_write(variants, options.seeds, folder, overrides, at_once))

    return exit_code("ablate.py", run, resumes=True)


if __name__ == "__main__":
    sys.exit(main())
