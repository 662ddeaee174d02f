"""Training batches of images: sampled rows of an image table, read and augmented."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from simple_spk.data.dataset import LabeledBatch, labeled_loader
from simple_spk.data.samplers import ClassSampler, Words, draw_seeds
from simple_spk.vision.image_files import read_image
from simple_spk.vision.image_table import ImageReader, ImageTable, read_image_table
from simple_spk.vision.transforms import Transform


class SampledImage(NamedTuple):
    """One training example: its row of the table, its label, and the seed of its augmentation."""

    row: int
    label: int
    seed: int


class ImageSampler(ClassSampler[SampledImage]):
    """Batches of ``classes_per_batch`` x ``images_per_class`` images.

    By default all classes are equally likely, as in the benchmarks of image retrieval. ``epochs``
    are batches_per_epoch and seed, as ``ClassSampler`` takes them.
    """

    words = Words("classes", "images", "images_per_class")

    def __init__(
        self,
        class_of_row: NDArray[np.int32],
        classes_per_batch: int,
        images_per_class: int,
        count_exponent: float = 0.0,
        minimum_images: int = 2,
        **epochs: Any,
    ) -> None:
        super().__init__(
            class_of_row,
            classes_per_batch,
            images_per_class,
            count_exponent,
            minimum_images,
            **epochs,
        )

    def batch(self, number: int) -> list[SampledImage]:
        """This process's share of batch ``number`` of the epoch, class by class."""
        random = self.random_of_batch(number)
        places = self.draw_classes(random)
        rows = self.draw_rows(random, places)
        columns = (rows, self.classes[places], draw_seeds(random, rows.shape))
        return [SampledImage(*example) for example in self.share(*columns)]


class ImageDataset(Dataset[LabeledBatch]):
    """Images that are read and transformed on access."""

    def __init__(self, images: ImageTable, transform: Transform) -> None:
        self.images = images
        self.transform = transform

    def __getitem__(self, example: SampledImage) -> LabeledBatch:
        inputs = self.transform(self.images.read(example.row), example.seed)
        return LabeledBatch(inputs, torch.tensor(example.label))


def class_image_loader(
    table: str | Path,
    transform: Transform,
    workers: int = 0,
    reader: ImageReader = read_image,
    **sampling: Any,
) -> DataLoader[LabeledBatch]:
    """Batches of images (n, 3, height, width); ``sampling`` are arguments of ``ImageSampler``."""
    images = read_image_table(table, reader=reader)
    sampler = ImageSampler(images.class_of_row, **sampling)
    return labeled_loader(ImageDataset(images, transform), sampler, workers)
