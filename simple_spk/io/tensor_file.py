"""Tensors by name from PyTorch's own files, of which nothing is executed."""

from pathlib import Path

import torch
from torch import Tensor


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that torch.save wrote; any other content is a ValueError."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: correct the path")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise nearly anything
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{path} is damaged, or has more than weights ({reason}): take another"
        ) from error
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        raise ValueError(f"{path} has something else than tensors by name: take another")
    return dict(content)
