"""Image retrieval on a table of images, as validation and as test."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from simple_spk.distributed import rank
from simple_spk.evaluation.scoring import queries_and_keys
from simple_spk.io.array_file import read_arrays
from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import file_size
from simple_spk.models.similarity import Similarity
from simple_spk.vision.embedding import EmbeddingOptions, EmbedInputs, embed_images
from simple_spk.vision.image_table import read_image_table
from simple_spk.vision.retrieval_metrics import (
    Neighbors,
    clustering_nmi,
    neighbors,
    retrieval_metrics,
)
from simple_spk.vision.transforms import Transform

LISTED_NEIGHBORS = 10  # of each image, in the file of rankings


class RetrievalEvaluation:
    """Retrieval of the images of the same class, with every image of a table as a query.

    Arguments:
        table: CSV file of the images.
        transform: from an image to the input of the encoder, not random.
        mirrored: also embed mirror images (see ``EmbeddingOptions``).
        recall_at: K of Recall@K.
        with_clusters: also cluster the images, for NMI.
    """

    def __init__(
        self,
        table: str | Path,
        transform: Transform,
        batch_size: int = 64,
        workers: int = 0,
        mirrored: bool = False,
        recall_at: Sequence[int] = (1, 2, 4, 8),
        with_clusters: bool = True,
        progress: bool = True,
    ) -> None:
        self.images = read_image_table(table)
        self.options = EmbeddingOptions(transform, batch_size, workers, mirrored, progress)
        self.recall_at = tuple(recall_at)
        self.with_clusters = with_clusters

    def __call__(
        self, embed: EmbedInputs, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """Metrics in percent as plain data.

        With a ``scores_file``, e.g. scores_test.txt, the nearest images of each image are written
        to it, and a ``Scorable`` to scores_test.npz.
        """
        embeddings = embed_images(self.images, embed, self.options)
        labels = torch.from_numpy(self.images.class_of_row.astype(np.int64))
        queries, keys = (side.cpu() for side in queries_and_keys(embeddings, similarity))
        metrics = retrieval_metrics(queries, keys, labels, self.recall_at)
        if self.with_clusters:
            metrics["nmi"] = clustering_nmi(torch.from_numpy(embeddings), labels)
        if scores_file is not None and rank() == 0:
            ids = list(self.images.row_of_id)
            nearest = min(LISTED_NEIGHBORS, len(ids) - 1)
            write_rankings(scores_file, ids, neighbors(queries, keys, labels, nearest))
            scorable = Scorable(ids, queries.numpy(), keys.numpy(), embeddings)
            write_scorable(scores_file.with_suffix(".npz"), scorable)
        return metrics


def write_rankings(path: Path, ids: Sequence[str], found: Iterable[Neighbors]) -> None:
    """Write lines ``query-id neighbor-id score``, nearest first, as CSV separated by spaces."""
    with atomic_write(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=" ", lineterminator="\n")
        for block in found:
            for query, rows, scores in zip(
                block.queries.tolist(), block.rows.tolist(), block.scores.tolist(), strict=True
            ):
                writer.writerows(
                    (ids[query], ids[row], f"{score:.6f}")
                    for row, score in zip(rows, scores, strict=True)
                )


class Scorable(NamedTuple):
    """Images ready for scoring: the score of images i and j is <queries[i], keys[j]>."""

    ids: list[str]
    queries: NDArray[np.float32]  # (n, product_dim)
    keys: NDArray[np.float32]  # (n, product_dim)
    embeddings: NDArray[np.float32]  # (n, dim)


def write_scorable(path: Path, images: Scorable) -> None:
    """Write images that are ready for scoring as an .npz file."""
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez(file, **images._replace(ids=np.array(images.ids))._asdict())  # type: ignore


def read_scorable(path: Path) -> Scorable:
    """The images of a file of ``write_scorable``."""
    file_size(path, "file", "train to the end first")
    try:
        arrays = list(read_arrays(path, Scorable._fields).values())
    except Exception as error:  # damaged files raise many kinds of errors
        raise ValueError(
            f"{path} is not a file of scorable images ({error}): train again"
        ) from error
    return Scorable(arrays[0].tolist(), *arrays[1:])


def concatenated_metrics(models: Sequence[Scorable], labels: Tensor) -> dict[str, Any]:
    """Metrics of an ensemble of models, in which the score of a pair is the sum over the models.

    SimPLE's similarity is a log odds up to a constant: the sum keeps the lengths, in which each
    model expresses its confidence and which normalization would remove.
    """
    if any(model.ids != models[0].ids for model in models):
        raise ValueError("the models were tested on different images: test them on the same ones")
    queries, keys = (
        torch.from_numpy(np.concatenate([getattr(model, name) for model in models], axis=1))
        for name in ("queries", "keys")
    )
    directions = [functional.normalize(torch.from_numpy(one.embeddings)) for one in models]
    metrics = retrieval_metrics(queries, keys, labels)
    return metrics | {"nmi": clustering_nmi(torch.cat(directions, dim=1), labels)}
