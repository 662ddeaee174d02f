"""From embeddings to the scores of a trial list."""

from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk.data.trials import Trials

if TYPE_CHECKING:
    from simple_spk.models.similarity import Similarity

AnySimilarity = Union["Similarity", "NumpySimilarity"]
Table = NDArray[np.float32]

# Trials whose embeddings fit into a processor's cache together: larger blocks are slower.
TRIALS_AT_ONCE = 1024


class NumpySimilarity(NamedTuple):
    """What ``models.similarity`` computes with torch: the cosine, or with a bias the paper's Eq. 6.

    Scoring the embeddings of a file so starts without torch.
    """

    angular_bias: float | None = None
    scale: float = 1.0

    def lift_queries(self, queries: Table) -> Table:
        """Queries (n, dim) as (n, dim), or with a bias (n, dim + 1)."""
        if self.angular_bias is None:
            return np.multiply(self.lift_keys(queries), self.scale, dtype=np.float32)
        return np.hstack([queries, -self.angular_bias * _lengths(queries)])

    def lift_keys(self, keys: Table) -> Table:
        """Keys (m, dim) as (m, dim), or with a bias (m, dim + 1)."""
        if self.angular_bias is None:
            lengths = np.maximum(_lengths(keys), 1e-12)  # as torch's normalize
            return np.divide(keys, lengths, dtype=np.float32)
        return np.hstack([keys, _lengths(keys)])


def _lengths(embeddings: Table) -> Table:
    """The lengths (n, 1) of embeddings (n, dim)."""
    return np.linalg.norm(embeddings, axis=-1, keepdims=True)


def queries_and_keys(embeddings: Table, similarity: AnySimilarity) -> tuple[Any, Any]:
    """Embeddings (n, dim) as queries and keys (n, dim + extra), whose inner products are scores.

    Tensors on the device of the similarity, or arrays of a ``NumpySimilarity``.
    """
    if isinstance(similarity, NumpySimilarity):
        return similarity.lift_queries(embeddings), similarity.lift_keys(embeddings)
    import torch  # only here, where the similarity has imported it

    with torch.no_grad():
        device = next((t.device for t in similarity.state_dict().values()), torch.device("cpu"))
        table = torch.from_numpy(embeddings).to(device)
        return similarity.lift_queries(table), similarity.lift_keys(table)


def as_array(table: Any) -> NDArray[Any]:
    """A tensor on any device, or an array, as an array."""
    return table if isinstance(table, np.ndarray) else table.cpu().numpy()


def score_trials(
    trials: Trials,
    embeddings: NDArray[np.float32],
    similarity: AnySimilarity,
    block: int = TRIALS_AT_ONCE,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Scores (n,) in list order; row i of embeddings (recordings, dim) is of trials.ids[i]."""
    queries, keys = map(as_array, queries_and_keys(embeddings, similarity))
    scores = np.empty(len(trials), dtype=np.float32)
    blocks = range(0, len(trials), block)
    for start in tqdm(blocks, "score", unit="block", delay=1.0, disable=not progress):
        some = slice(start, start + block)
        enroll, test = queries[trials.enroll[some]], keys[trials.test[some]]
        np.einsum("ij,ij->i", enroll, test, out=scores[some])
    return scores


def similarity_in_words(similarity: AnySimilarity) -> str:
    """The name of a similarity for reports."""
    bias, scale = (getattr(similarity, name, None) for name in ("angular_bias", "scale"))
    if bias is not None:
        value = float(bias if isinstance(bias, float) else bias.detach())
        return f"generalized inner product, b_theta {value:g}"
    if scale is not None:
        return "cosine" if scale == 1.0 else f"cosine, times {scale:g}"
    return type(similarity).__name__
