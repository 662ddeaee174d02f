"""What a training step receives, and the loader that makes it of what a sampler draws."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class LabelledBatch(NamedTuple):
    """Inputs (n, ...) and the label (n,) of each."""

    inputs: Tensor
    labels: Tensor


def labelled_loader(
    dataset: Dataset[LabelledBatch], batch_sampler: Iterable[list[Any]], workers: int
) -> DataLoader[LabelledBatch]:
    """The batches that a sampler draws, read by ``workers`` processes (0: by this one)."""
    return DataLoader(
        dataset,
        batch_sampler=batch_sampler,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=workers > 0,
    )
