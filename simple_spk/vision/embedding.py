"""Embeddings of the images of a table, computed by all processes together."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from simple_spk.distributed import gather_objects, rank, world_size
from simple_spk.vision.batches import ImageDataset, SampledImage
from simple_spk.vision.image_table import ImageTable
from simple_spk.vision.transforms import Transform

EmbedInputs = Callable[[Tensor], Tensor]  # from inputs (n, 3, height, width) to (n, dim)
SEED = 0  # test transforms are deterministic; a random one would treat all images alike


@dataclass(frozen=True)
class EmbeddingOptions:
    """How images are embedded.

    mirrored: the embedding is the mean over the image and its mirror image, which, unlike the sum,
    keeps the scale of similarities, and so the meaning of the loss's learned threshold.
    """

    transform: Transform
    batch_size: int = 64
    workers: int = 0
    mirrored: bool = False
    progress: bool = True


def embed_images(
    images: ImageTable, embed: EmbedInputs, options: EmbeddingOptions
) -> NDArray[np.float32]:
    """Embeddings (n, dim) of n images, in the order of their rows."""
    if not len(images):
        raise ValueError("there are no images to embed")
    mine = range(rank(), len(images), world_size())
    # A process without rows still takes part in the gathering below.
    loader = DataLoader(
        ImageDataset(images, options.transform),
        options.batch_size,
        sampler=[SampledImage(row, label=0, seed=SEED) for row in mine],
        num_workers=options.workers,
    )
    hidden = not options.progress or rank() > 0
    embeddings: list[NDArray[np.float32]] = []
    failed: Exception | None = None
    with tqdm(total=len(mine), unit="image", desc="embed", disable=hidden) as bar, torch.no_grad():
        try:
            for inputs, _ in loader:
                found = embed(inputs)
                if options.mirrored:
                    found = (found + embed(inputs.flip(-1))) / 2.0
                embeddings.append(found.float().cpu().numpy())
                bar.update(len(inputs))
        except (ValueError, OSError) as error:  # raised below, in all processes
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
