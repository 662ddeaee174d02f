"""Average two models: python recipes/OpenSpeech/average_models.py MODEL OTHER OUT

MODEL and OTHER are model folders of one encoder, one of which was trained from the other. OUT gets
MODEL with the mean of both in all weights that OTHER has, too: what the length of embeddings needs
stays that of MODEL, if OTHER has no such part. Means of models on one path of training often do
better on new speakers than each of them.
"""

import argparse
import sys
from pathlib import Path

import torch

from simple_spk.cli.errors import exit_code
from simple_spk.inference.model_folder import load_model, save_model


@torch.no_grad()
def average_models(model: Path, other: Path, out: Path) -> None:
    """Write the mean of two models to a new model folder."""
    if out.exists():
        raise FileExistsError(f"{out} exists: name another folder")
    first, second = load_model(model), load_model(other)
    weights, added = first.encoder.state_dict(), second.encoder.state_dict()
    for name in weights.keys() & added.keys():
        if weights[name].shape != added[name].shape:
            raise ValueError(f"{name} has other sizes in {other}: average models of one encoder")
        if weights[name].is_floating_point():
            weights[name].lerp_(added[name], 0.5)
    if missing := added.keys() - weights.keys():
        raise ValueError(f"{model} lacks {sorted(missing)[0]}: exchange the two models")
    first.encoder.load_state_dict(weights)
    save_model(out, first._replace(calibration=None, fingerprint=None))


def main() -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, purpose in (("model", "a model folder"), ("other", "another"), ("out", "to write")):
        parser.add_argument(name, type=Path, help=purpose)
    options = parser.parse_args()
    return exit_code("average_models.py", lambda: average_models(**vars(options)))


if __name__ == "__main__":
    sys.exit(main())
