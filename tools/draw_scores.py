"""What SimPLE learned, in one picture: python tools/draw_scores.py MODEL -o scores.svg

Draws the scores S of target and non-target pairs with the model's own threshold -b, and the lengths
of the embeddings:

    simple-spk embed DATA/valid.csv --model MODEL -o valid.npz
    python tools/draw_scores.py MODEL --embeddings valid.npz --trials DATA/valid_trials.txt \\
        -o scores.svg
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from simple_spk.cli.errors import exit_code
from simple_spk.data.trials import read_trials
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.scoring import score_trials
from simple_spk.inference.model_folder import load_model
from simple_spk.io.atomic_file import atomic_write
from simple_spk.report.charts import LIGHT


def draw(
    scores: NDArray[np.floating],
    is_target: NDArray[np.bool_],
    threshold: float | None,
    lengths: NDArray[np.floating],
    path: Path,
) -> None:
    """Write histograms of scores (n,), by class, and of lengths (m,) as an SVG file."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    low, high = np.quantile(scores, (0.0005, 0.9995))
    bins = np.linspace(low, high, 60)
    classes = ((~is_target, "two speakers", LIGHT["c1"]), (is_target, "one speaker", LIGHT["c0"]))
    for chosen, name, color in classes:
        left.hist(scores[chosen], bins, density=True, alpha=0.6, color=color, label=name)
    if threshold is not None:
        left.axvline(threshold, color=LIGHT["text"], linestyle="--", label=f"-b = {threshold:.2f}")
    left.set(xlabel="score S of a pair", ylabel="density")
    left.legend(frameon=False)
    right.hist(lengths, 40, color=LIGHT["c2"])
    right.set(xlabel="length of an embedding", ylabel="recordings")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    # Without a date and random names, the same data give the same file.
    with rc_context({"svg.hashsalt": "simple_spk"}), atomic_write(path) as partial:
        figure.savefig(partial, format="svg", metadata={"Date": None})


def run(model: Path, embeddings: Path, trials: Path, output: Path) -> None:
    """Score the trials with the model's similarity, and draw them."""
    if output.suffix != ".svg":
        raise ValueError(f"-o {output}: the picture is an SVG file, call it NAME.svg")
    pairs = read_trials(trials)
    if pairs.is_target is None:
        raise ValueError(f"{trials} has no labels: one speaker and two cannot be told apart")
    table = read_embeddings(embeddings, pairs.ids).of(pairs.ids, trials)
    loaded = load_model(model)
    scores = score_trials(pairs, table, loaded.similarity)
    lengths = np.linalg.norm(table, axis=1)
    draw(scores, pairs.is_target, loaded.threshold, lengths, output)


def main() -> int:
    """Draw, and return the exit code."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="model folder")
    what = "of simple-spk embed with this model"
    parser.add_argument("--embeddings", type=Path, required=True, metavar="FILE", help=what)
    what = "labeled trial list"
    parser.add_argument("--trials", type=Path, required=True, metavar="LIST", help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="NAME.svg")
    chosen = vars(parser.parse_args())
    return exit_code("draw_scores.py", lambda: run(**chosen))


if __name__ == "__main__":
    sys.exit(main())
