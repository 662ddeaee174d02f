"""Embeddings of images, several processes sharing the work."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from simple_spk.distributed import gather_objects, rank, world_size
from simple_spk.vision.batches import Transform
from simple_spk.vision.image_table import LabeledImages

Embed = Callable[[Tensor], Tensor]  # from inputs (n, 3, height, width) to embeddings (n, dim)
FIRST_SEED = 0  # tests are not random: a transform that is would do the same to every image


class RowDataset(Dataset[Tensor]):
    """Some rows of a table, each transformed as for a test."""

    def __init__(self, images: LabeledImages, transform: Transform, rows: Sequence[int]) -> None:
        self.images = images
        self.transform = transform
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Tensor:
        return self.transform(self.images.read(self.rows[place]), FIRST_SEED)


def embed_images(
    images: LabeledImages,
    embed: Embed,
    transform: Transform,
    batch_size: int = 64,
    workers: int = 0,
    mirrored: bool = False,
    progress: bool = True,
) -> NDArray[np.float32]:
    """Embeddings (n, dim) of n images, in the order of their rows.

    mirrored: each is the mean of the embeddings of the image and of its mirror image. A mean, not
    a sum, so that similarities stay on the scale on which the loss's threshold was learned.
    """
    if not len(images):
        raise ValueError("there are no images to embed")
    mine = range(rank(), len(images), world_size())
    # A process without a row of its own still meets the others below.
    loader = DataLoader(RowDataset(images, transform, mine), batch_size, num_workers=workers)
    bar = tqdm(total=len(mine), unit="image", desc="embed", disable=not progress or rank() > 0)
    embeddings: list[NDArray[np.float32]] = []
    failed: Exception | None = None
    with bar, torch.no_grad():
        try:
            for inputs in loader:
                found = embed(inputs)
                if mirrored:
                    found = (found + embed(inputs.flip(-1))) / 2.0
                embeddings.append(found.float().cpu().numpy())
                bar.update(len(inputs))
        except (ValueError, OSError) as error:  # no other process shall wait for this one
            failed = error
    parts = gather_objects((embeddings, failed))
    for _, reason in parts:
        if reason is not None:
            raise reason
    arrays = [np.concatenate(arrays) for arrays, _ in parts if arrays]
    result = np.empty((len(images), arrays[0].shape[1]), dtype=np.float32)
    for number, rows in enumerate(arrays):
        result[number :: world_size()] = rows
    return result
