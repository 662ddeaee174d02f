"""A trained model: what recordings are embedded and compared with."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from simple_spk.evaluation.calibration import Calibration
from simple_spk.models.fbank import Fbank
from simple_spk.models.saved_arguments import NAMES_BEFORE_FORMAT_3, renamed
from simple_spk.models.similarity import Similarity


class Model(NamedTuple):
    """What scoring needs.

    Arguments:
        threshold: SimPLE's own, -b, for models that have one.
        calibration: how its scores become log likelihood ratios, if that was learned.
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

    It tells whether embeddings on disk are of this very model. Names enter it as format 2 of model
    folders spelled them, so that embeddings and voices made by version 0.1 remain valid.
    """
    digest = hashlib.sha256()
    parts: tuple[Any, ...] = (model.front_end, model.encoder)
    for part in parts:
        arguments = renamed(part.arguments, NAMES_BEFORE_FORMAT_3)
        digest.update(json.dumps([type(part).__name__, arguments], sort_keys=True).encode())
        for name, tensor in sorted(renamed(part.state_dict(), NAMES_BEFORE_FORMAT_3).items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def full_precision() -> Iterator[None]:
    """Within it, convolutions and matrix products do without TF32; settings stay the caller's.

    TF32, torch's own choice for convolutions, keeps three digits: embeddings of a recording alone
    and in a batch, which different kernels compute, would differ by more than 1e-4.
    """
    backends: Any = torch.backends
    cudnn, matmul = backends.cudnn, backends.cuda.matmul
    # Torch has two ways to set this. The older one changes both, so that they never contradict each
    # other; the newer one then brings back what only it can say.
    newer = (cudnn.conv, cudnn.rnn, matmul, backends.mkldnn.matmul)
    precisions = [setting.fp32_precision for setting in newer]
    convolutions = _told(lambda: cudnn.allow_tf32)
    products = _told(torch.get_float32_matmul_precision)
    cudnn.allow_tf32 = matmul.allow_tf32 = False
    try:
        yield
    finally:
        if convolutions is not None:
            cudnn.allow_tf32 = convolutions
        if products is not None:
            torch.set_float32_matmul_precision(products)
        for setting, precision in zip(newer, precisions, strict=True):
            setting.fp32_precision = precision


def _told(ask: Callable[[], Any]) -> Any:
    """What torch answers in its older way, or None if the caller has settings of the newer one."""
    try:
        return ask()
    except RuntimeError:
        return None
