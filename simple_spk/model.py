"""A trained model: what recordings are embedded and compared with."""

import hashlib
import json
from typing import Any, NamedTuple

from torch import Tensor, nn

from simple_spk.calibration import Calibration
from simple_spk.fbank import Fbank
from simple_spk.similarity import Similarity


class Model(NamedTuple):
    """What scoring needs.

    Arguments:
        threshold: SimPLE's own, -b, for models that have one.
        calibration: how its scores become log likelihood ratios, if that was learnt.
        training_data: what it was trained on, in words.
    """

    front_end: Fbank
    encoder: nn.Module
    similarity: Similarity
    threshold: float | None
    calibration: Calibration | None = None
    training_data: str | None = None


def trained_model(
    front_end: Any, encoder: nn.Module, loss: nn.Module, training_data: str | None = None
) -> Model:
    """The model that training leaves: the loss has its similarity, and its bias if it is SimPLE."""
    bias = getattr(loss, "bias", None)
    threshold = -float(bias.detach()) if isinstance(bias, Tensor) and bias.ndim == 0 else None
    similarity: Any = loss.similarity
    return Model(front_end, encoder, similarity, threshold, training_data=training_data)


def embedding_fingerprint(model: Model) -> str:
    """A hash that is the same for models that make the same embeddings, however they compare them.

    It tells whether embeddings on disk are of this very model.
    """
    digest = hashlib.sha256()
    parts: tuple[Any, ...] = (model.front_end, model.encoder)
    for part in parts:
        digest.update(json.dumps([type(part).__name__, part.arguments], sort_keys=True).encode())
        for name, tensor in sorted(part.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
