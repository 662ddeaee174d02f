"""Fine-tuning: the parts of a trained model, ready for further training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from simple_spk.inference.model_folder import load_model, resolve
from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.fbank import Fbank
from simple_spk.models.similarity import Similarity


class Pretrained(NamedTuple):
    """The parts and sizes of a trained model; ``bias`` is that of SimPLE, if it trained."""

    front_end: Fbank
    encoder: nn.Module
    similarity: Similarity
    bias: float | None
    sample_rate: int
    embedding_dim: int


def load_pretrained(
    folder: str | Path | None, embedding_head: Mapping[str, Any] | None = None
) -> Pretrained:
    """The model of a folder (RUN/model) or of the Hub, ready for further training with SimPLE.

    embedding_head: form and lengths of a new head with the same directions. Then any loss may have
    trained the model; the YAML file gives similarity and bias. None keeps head, similarity and
    bias, which only a model that SimPLE trained has.
    """
    if folder is None:
        raise ValueError("no model to start from: name its folder (--pretrained=RUN/model)")
    model = load_model(resolve(folder))
    encoder: Any = model.encoder
    if embedding_head is not None:
        encoder.output = encoder.output.in_form(**embedding_head)
        sizes = ("hidden_dim",)
        kept = {n: v for n, v in (encoder.arguments["output"] or {}).items() if n in sizes}
        centered = {"centered": not isinstance(encoder.output.centering, nn.Identity)}
        encoder.arguments["output"] = {**kept, **centered, **embedding_head}
    elif model.threshold is None:
        raise ValueError(
            f"{folder}: the model has no threshold, so SimPLE did not train it and its bias is "
            f"unknown: give it a new embedding_head, or start from a model that SimPLE trained"
        )
    head = next(part for part in encoder.modules() if isinstance(part, EmbeddingHead))
    for part in (encoder, model.similarity):
        part.train().requires_grad_(True)
    return Pretrained(
        front_end=model.front_end.train(),
        encoder=encoder,
        similarity=model.similarity,
        bias=None if model.threshold is None else -model.threshold,
        sample_rate=model.front_end.sample_rate,
        embedding_dim=head.linear.out_features,
    )
