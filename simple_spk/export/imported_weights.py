"""The encoder of another toolkit's weights; sizes are checked before memory is allocated."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simple_spk.inference.model_folder import build_part
from simple_spk.io.tensor_file import read_tensors


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors by name of a file that torch.save wrote, floats in single precision."""
    weights = {n: t.float() if t.is_floating_point() else t for n, t in read_tensors(path).items()}
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds values that are not numbers")
    return weights


def encoder_with(
    path: Path, class_name: str, arguments: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> Any:
    """The encoder of a class with these arguments and weights, which must fit exactly.

    Numbers of batches that BatchNorm has seen may be missing.
    """
    entry = {"class": class_name, "arguments": dict(arguments)}
    encoder = build_part(str(path), "encoder", entry)
    counts = {n: torch.tensor(0) for n in encoder.state_dict() if n.endswith("batches_tracked")}
    encoder.load_state_dict(counts | dict(weights), assign=True)
    return encoder
