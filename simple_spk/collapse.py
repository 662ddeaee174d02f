"""Is training alive? Numbers that show it, and words for when it is not."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from simple_spk.similarity import GeneralizedInnerProduct, Similarity


class BatchGeometry(NamedTuple):
    """How the embeddings of a batch lie to each other; every field is a mean, nan over no pairs."""

    positive_similarity: float
    negative_similarity: float
    positive_cosine: float
    negative_cosine: float
    length: float


@torch.no_grad()
def batch_geometry(embeddings: Tensor, labels: Tensor, similarity: Similarity) -> BatchGeometry:
    """Means over the pairs of different embeddings (n, dim) of one batch, by equality of labels."""
    embeddings = embeddings.float()
    same = labels[:, None] == labels[None, :]
    positive, negative = same & ~torch.eye(len(labels), dtype=torch.bool, device=same.device), ~same
    directions = functional.normalize(embeddings, dim=-1)
    means = [
        (values * pairs).sum() / pairs.sum()
        for values in (similarity(embeddings, embeddings), directions @ directions.T)
        for pairs in (positive, negative)
    ]
    length = torch.linalg.vector_norm(embeddings, dim=-1).mean()
    return BatchGeometry(*torch.stack([*means, length]).tolist())


def collapse_warning(geometry: BatchGeometry, similarity: Similarity) -> str | None:
    """What has gone wrong, and what helps; None if the embeddings look healthy."""
    cure = (
        "Hold the embedding length at first (initial_length, hold_steps), centre the embedding "
        "(centred), raise positive_weight, or lower the learning rate."
    )
    # Lengths matter only where the score depends on them; a length that is no number counts too.
    if isinstance(similarity, GeneralizedInnerProduct) and not geometry.length >= 0.5:
        return (
            f"Training is collapsing: the mean embedding length is {geometry.length:.3f}, and "
            f"gradients vanish with it. {cure}"
        )
    if geometry.positive_cosine - geometry.negative_cosine < 0.02:
        return (
            f"Training is collapsing or has not started: the mean cosine is "
            f"{geometry.positive_cosine:.3f} within classes and {geometry.negative_cosine:.3f} "
            f"between classes. {cure}"
        )
    return None
