"""From a table of images to the figures of image retrieval; validation takes this path too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from simple_spk.distributed import rank
from simple_spk.evaluation.scoring import queries_and_keys
from simple_spk.io.atomic_file import atomic_write
from simple_spk.models.similarity import Similarity
from simple_spk.vision.batches import Transform
from simple_spk.vision.embedding import Embed, embed_images
from simple_spk.vision.image_table import read_image_table
from simple_spk.vision.rankings import write_rankings
from simple_spk.vision.retrieval_metrics import clustering_nmi, neighbors, retrieval_metrics

SHOWN_NEIGHBORS = 10  # of each image, in the file of rankings


class RetrievalEvaluation:
    """Images with their classes, each of which is to find the others of its class.

    Arguments:
        table: CSV file of the images.
        transform: from an image to what the encoder takes, without chance.
        mirrored: embed also mirror images (see ``embed_images``).
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
        self.transform = transform
        self.batch_size = batch_size
        self.workers = workers
        self.mirrored = mirrored
        self.recall_at = tuple(recall_at)
        self.with_clusters = with_clusters
        self.progress = progress

    def __call__(
        self, embed: Embed, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """Figures in percent as plain data.

        With a ``scores_file``, say scores_test.txt, the nearest images of each go there, and what
        scores are made of goes to scores_test.npz beside it (see ``Scorable``).
        """
        embeddings = embed_images(
            *(self.images, embed, self.transform, self.batch_size, self.workers),
            *(self.mirrored, self.progress),
        )
        labels = torch.from_numpy(self.images.class_of_row.astype(np.int64))
        queries, keys = (side.cpu() for side in queries_and_keys(embeddings, similarity))
        metrics = retrieval_metrics(queries, keys, labels, self.recall_at)
        if self.with_clusters:
            metrics["nmi"] = clustering_nmi(torch.from_numpy(embeddings), labels)
        if scores_file is not None and rank() == 0:
            ids = list(self.images.row_of_id)
            nearest = min(SHOWN_NEIGHBORS, len(ids) - 1)
            write_rankings(scores_file, ids, neighbors(queries, keys, labels, nearest))
            scorable = Scorable(ids, queries.numpy(), keys.numpy(), embeddings)
            write_scorable(scores_file.with_suffix(".npz"), scorable)
        return metrics


class Scorable(NamedTuple):
    """Images ready to be scored: the score of images i and j is <queries[i], keys[j]>."""

    ids: list[str]
    queries: NDArray[np.float32]  # (n, lifted_dim)
    keys: NDArray[np.float32]  # (n, lifted_dim)
    embeddings: NDArray[np.float32]  # (n, dim)


def write_scorable(path: Path, images: Scorable) -> None:
    """Write images that are ready to be scored as an .npz file."""
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez(file, **images._replace(ids=np.array(images.ids))._asdict())  # type: ignore


def read_scorable(path: Path) -> Scorable:
    """Images as ``write_scorable`` wrote them."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: train to the end first")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = [file[name] for name in Scorable._fields]
    except Exception as error:  # damaged files raise nearly anything
        raise ValueError(f"{path} is no file of scorable images ({error}): train again") from error
    return Scorable(arrays[0].tolist(), *arrays[1:])


def concatenated_metrics(
    models: Sequence[Scorable], labels: Tensor, recall_at: Sequence[int] = (1, 2, 4, 8)
) -> dict[str, Any]:
    """The figures of several models that score together: the score of a pair is the sum of theirs.

    For a cosine that ranks as the cosine of the concatenated unit embeddings does. For SimPLE's
    similarity, a sum of log odds but for a constant, it keeps the lengths, by which each model says
    how sure it is, and which normalizing would throw away.
    """
    if any(model.ids != models[0].ids for model in models):
        raise ValueError("the models were tested on different images: test them on the same ones")
    queries, keys = (
        torch.from_numpy(np.concatenate([getattr(model, name) for model in models], axis=1))
        for name in ("queries", "keys")
    )
    directions = [functional.normalize(torch.from_numpy(one.embeddings)) for one in models]
    metrics = retrieval_metrics(queries, keys, labels, recall_at)
    return metrics | {"nmi": clustering_nmi(torch.cat(directions, dim=1), labels)}
