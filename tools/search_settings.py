"""Search for settings: python tools/search_settings.py BASE.yaml CANDIDATES.yaml -o FOLDER

CANDIDATES.yaml has losses (simple: that of BASE.yaml; others as in hparams/losses) and for each a
list of settings: top-level keys of the experiment with their values; strings are YAML text. All
losses have equally many settings, so that none gets a longer search than another:

    simple: [{sharpness: 2.0}, {sharpness: 3.0}]
    aamsoftmax: [{margin: 0.1}, {margin: 0.2, margin_ramp: "[0, !ref <steps> // 2]"}]

Every candidate is trained, and ranked by the mean EER (or the first of experiment_runs.METRICS that
its lists have) over the experiment's lists of validation speakers (evaluated_part: valid), never of
test speakers. Options after -- go to train.py:

    python tools/search_settings.py recipes/OpenSpeech/hparams/simple_resnet34_small.yaml \\
        recipes/OpenSpeech/candidates.yaml -o search -- --data_folder=DATA --steps=250

It goes on where it was stopped. FOLDER has table.md and for each loss best/LOSS.yaml: the complete
experiment with the best settings, for compare_losses.py and ablate.py.
"""

import itertools
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from simple_spk.io.atomic_file import write_text
from simple_spk.io.safe_yaml import read_plain_yaml
from tools.compare_losses import REFERENCE, loss_file
from tools.exchange_loss import exchange_loss, keys_of, write_experiment
from tools.experiment_runs import (
    Overrides,
    Variant,
    experiments_parser,
    run_all,
    split_overrides,
)
from tools.seed_statistics import AVERAGE, Comparison, row

Settings = Mapping[str, Any]
PART = "evaluated_part"  # the key of an experiment that chooses validation or test speakers


class Candidate(NamedTuple):
    """Settings of a loss, and the experiment that has them."""

    loss: str
    settings: Settings
    variant: Variant


def read_candidates(path: Path) -> dict[str, list[Settings]]:
    """The settings to try for each loss, equally many for all."""
    found = read_plain_yaml(path)
    if not isinstance(found, dict) or not all(
        isinstance(settings, list) and settings and all(isinstance(s, dict) for s in settings)
        for settings in found.values()
    ):
        raise ValueError(f"{path}: expected names of losses, each with a list of settings")
    counts = {loss: len(settings) for loss, settings in found.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"{path}: every loss must have equally many settings, not {counts}")
    return found


def make_candidates(
    base: Path, settings_of: Mapping[str, Sequence[Settings]], folder: Path, overrides: Overrides
) -> list[Candidate]:
    """All candidates, whose experiments are written to folder/experiments."""
    if PART not in keys_of(base.read_text(encoding="utf-8")):
        raise ValueError(
            f"{base} has no {PART} to set to valid: let its test_lists name their files by such a "
            f"key, as hparams/mini.yaml does"
        )
    given = {option.removeprefix("--").partition("=")[0] for option in overrides}
    candidates = []
    for loss, several in settings_of.items():
        plain = base
        if loss != REFERENCE:
            plain = folder / "experiments" / f"{loss}.yaml"
            write_experiment(base, loss_file(loss, base), plain)
        for number, settings in enumerate(several, start=1):
            both = sorted(given & {PART, *settings})
            if both:
                raise ValueError(f"--{both[0]} after -- would override the search: leave it out")
            name = f"{loss}-{number}"
            experiment = folder / "experiments" / f"{name}.yaml"
            lines = "".join(f"{key}: {_as_yaml(value)}\n" for key, value in settings.items())
            try:
                text = exchange_loss(plain.read_text(encoding="utf-8"), lines)
            except ValueError as error:
                raise ValueError(f"settings {number} of {loss}: {error}") from error
            write_text(experiment, text)
            variant = Variant(name, experiment, [f"--{PART}=valid"])
            candidates.append(Candidate(loss, settings, variant))
    return candidates


def search(
    base: Path,
    candidates_file: Path,
    seeds: Sequence[int],
    folder: Path,
    overrides: Overrides,
    at_once: int = 1,
) -> str:
    """Train all candidates; write the table and the best experiment of each loss; the table."""
    if not base.is_file():
        raise FileNotFoundError(f"no such YAML file: {base}")
    candidates = make_candidates(base, read_candidates(candidates_file), folder, overrides)
    variants = [candidate.variant for candidate in candidates]
    runs = itertools.chain.from_iterable(run_all(variants, seeds, folder, overrides, at_once))
    comparison = Comparison(list(runs))
    best = best_of_each(candidates, comparison)
    for candidate in best:
        text = candidate.variant.yaml.read_text(encoding="utf-8")
        write_text(folder / "best" / f"{candidate.loss}.yaml", text)
    table = f"`python {shlex.join(sys.argv)}`\n\n{markdown(candidates, comparison, best)}"
    write_text(folder / "table.md", table)
    return table


def best_of_each(candidates: Sequence[Candidate], comparison: Comparison) -> list[Candidate]:
    """For each loss the candidate with the best mean over lists and seeds; the first of equals."""
    means = np.mean(comparison.headline, axis=1)
    if comparison.headline_metric.higher_is_better:
        means = -means
    ranked = sorted(zip(means.tolist(), candidates, strict=True), key=lambda pair: pair[0])
    return [
        next(candidate for _, candidate in ranked if candidate.loss == loss)
        for loss in dict.fromkeys(candidate.loss for candidate in candidates)
    ]


def markdown(
    candidates: Sequence[Candidate], comparison: Comparison, best: Sequence[Candidate]
) -> str:
    """A table with a row per candidate, the best of each loss in bold."""
    shown = comparison.headline_metric
    tables = comparison.metrics[shown]
    header = ["loss", "settings", *(f"{name}, {shown.title}" for name in tables)]
    lines = [row(header), row(["---"] * len(header))]
    for number, candidate in enumerate(candidates):
        words = ", ".join(f"{key} {_as_yaml(value)}" for key, value in candidate.settings.items())
        means = [f"{table[number].mean():.{shown.decimals}f}" for table in tables.values()]
        if candidate in best:
            means[-1] = f"**{means[-1]}**"
        lines.append(row([candidate.loss, words or "as they are", *means]))
    seeds = ", ".join(map(str, comparison.seeds))
    what = f"best {AVERAGE}" if AVERAGE in tables else "best"
    note = f"Validation part, mean over seeds ({seeds}). Bold: {what} of a loss, the one taken."
    return "\n".join([*lines, "", note, ""])


def _as_yaml(value: Any) -> str:
    """A value as YAML in one line; a string is YAML already."""
    return value if isinstance(value, str) else json.dumps(value)


def main() -> int:
    """Search, and return the exit code."""
    ours, overrides = split_overrides(sys.argv[1:])
    parser = experiments_parser(__doc__, seeds=[1])
    parser.add_argument(
        "candidates", type=Path, metavar="CANDIDATES.yaml", help="settings to try for each loss"
    )
    options = parser.parse_args(ours)

    def run() -> None:
        folder, at_once = options.output, options.at_once
        print(search(options.base, options.candidates, options.seeds, folder, overrides, at_once))

    return exit_code("search_settings.py", run, resumes=True)


if __name__ == "__main__":
    sys.exit(main())
