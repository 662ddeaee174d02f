"""Fine-tuning: the parts of a trained model, ready for further training."""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from simple_spk.inference.model_folder import load_model, resolve
from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.fbank import Fbank
from simple_spk.models.similarity import Similarity

FOR_EVER = 2**62  # more training steps than any run has


class Pretrained(NamedTuple):
    """The parts and sizes of a trained model; ``bias`` is that of its loss."""

    front_end: Fbank
    encoder: nn.Module
    similarity: Similarity
    bias: float
    sample_rate: int
    embedding_dim: int


def load_pretrained(folder: str | Path | None) -> Pretrained:
    """The model of a folder (RUN/model) or of the Hub, ready for further training with SimPLE.

    Embedding lengths that were free stay free from the first step on; fixed ones stay fixed.
    """
    if folder is None:
        raise ValueError("no model to start from: name its folder (--pretrained=RUN/model)")
    model = load_model(resolve(folder))
    if model.threshold is None:
        raise ValueError(
            f"{folder}: the model has no threshold, so SimPLE did not train it and its bias is "
            f"unknown: start from a model that SimPLE trained, or train from scratch"
        )
    output = next(part for part in model.encoder.modules() if isinstance(part, EmbeddingHead))
    output.hold_steps = FOR_EVER if output.length_is_held else 0
    for part in (model.encoder, model.similarity):
        part.train().requires_grad_(True)
    return Pretrained(
        front_end=model.front_end.train(),
        encoder=model.encoder,
        similarity=model.similarity,
        bias=-model.threshold,
        sample_rate=model.front_end.sample_rate,
        embedding_dim=output.linear.out_features,
    )
