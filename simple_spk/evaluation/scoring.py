"""From embeddings to the scores of a trial list."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from simple_spk.data.trials import Trials
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

# Trials whose embeddings fit into a processor's cache together: larger blocks are slower.
TRIALS_AT_ONCE = 1024


@torch.no_grad()
def queries_and_keys(
    embeddings: NDArray[np.float32], similarity: Similarity
) -> tuple[Tensor, Tensor]:
    """Embeddings (n, dim) as queries and keys (n, dim + extra), whose inner products are scores."""
    device = next((t.device for t in similarity.state_dict().values()), torch.device("cpu"))
    table = torch.from_numpy(embeddings).to(device)
    return similarity.lift_queries(table), similarity.lift_keys(table)


def score_trials(
    trials: Trials,
    embeddings: NDArray[np.float32],
    similarity: Similarity,
    block: int = TRIALS_AT_ONCE,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Scores (n,) in list order; row i of embeddings (recordings, dim) is of trials.ids[i]."""
    queries, keys = (side.cpu().numpy() for side in queries_and_keys(embeddings, similarity))
    scores = np.empty(len(trials), dtype=np.float32)
    blocks = range(0, len(trials), block)
    for start in tqdm(blocks, "score", unit="block", delay=1.0, disable=not progress):
        some = slice(start, start + block)
        enroll, test = queries[trials.enroll[some]], keys[trials.test[some]]
        np.einsum("ij,ij->i", enroll, test, out=scores[some])
    return scores


def similarity_in_words(similarity: Similarity) -> str:
    """The name of a similarity for reports."""
    if isinstance(similarity, GeneralizedInnerProduct):
        return f"generalized inner product, b_theta {float(similarity.angular_bias.detach()):g}"
    if isinstance(similarity, CosineSimilarity):
        return "cosine" if similarity.scale == 1.0 else f"cosine, times {similarity.scale:g}"
    return type(similarity).__name__
