"""A trained model: front end, encoder, similarity, threshold and calibration."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from simple_spk.evaluation.calibration import Calibration
from simple_spk.models.fbank import Fbank
from simple_spk.models.saved_arguments import NAMES_BEFORE_FORMAT_3, NEWER_ARGUMENTS, renamed
from simple_spk.models.similarity import Similarity


class Model(NamedTuple):
    """Everything that embeds and scores recordings."""

    front_end: Fbank
    encoder: nn.Module
    similarity: Similarity
    threshold: float | None  # that of SimPLE, -b; None for models of other losses
    calibration: Calibration | None = None  # from scores to log likelihood ratios
    training_data: str | None = None  # a description of it
    fingerprint: str | None = None  # of a folder of an older format, whose embeddings stay valid

    def frozen(self) -> "Model":
        """The same model, in evaluation mode and without gradients."""
        for part in (self.front_end, self.encoder, self.similarity):
            part.eval().requires_grad_(False)
        return self


def trained_model(front_end: Any, encoder: nn.Module, loss: nn.Module) -> Model:
    """The model of a training: the loss has its similarity and, if it is SimPLE, its bias."""
    bias = getattr(loss, "bias", None)
    threshold = -float(bias.detach()) if isinstance(bias, Tensor) and bias.ndim == 0 else None
    similarity: Any = loss.similarity
    return Model(front_end, encoder, similarity, threshold)


def embedding_fingerprint(model: Model) -> str:
    """A hash of front end and encoder: embeddings on disk belong to a model with the same hash.

    Names enter it as format 2 of model folders spelled them, so that embeddings and voices of
    version 0.1 remain valid.
    """
    if model.fingerprint is not None:
        return model.fingerprint
    parts: tuple[Any, ...] = (model.front_end, model.encoder)
    return fingerprint_of((type(p).__name__, p.arguments, p.state_dict()) for p in parts)


def fingerprint_of(parts: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Tensor]]]) -> str:
    """A hash of the class names, arguments and weights of parts of a model."""
    digest = hashlib.sha256()
    for class_name, arguments, weights in parts:
        known = {n: a for n, a in arguments.items() if (n, a) not in NEWER_ARGUMENTS.items()}
        old_arguments = renamed(known, NAMES_BEFORE_FORMAT_3)
        digest.update(json.dumps([class_name, old_arguments], sort_keys=True).encode())
        for name, tensor in sorted(renamed(weights, NAMES_BEFORE_FORMAT_3).items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


_PRECISION = threading.RLock()  # of settings that all threads share


@contextmanager
def full_precision() -> Iterator[None]:
    """Disables TF32 in convolutions and matrix products; restores the caller's settings.

    Threads do so one after the other, as the settings are those of the process.

    TF32, torch's default for convolutions, has three digits: embeddings of a recording alone and in
    a batch, computed by different kernels, would differ by more than 1e-4.
    """
    with _PRECISION:
        backends: Any = torch.backends
        cudnn, matmul = backends.cudnn, backends.cuda.matmul
        # Torch has two APIs for this. The older one changes both consistently; the newer one then
        # restores settings that only it has.
        newer = (cudnn.conv, cudnn.rnn, matmul, backends.mkldnn.matmul)
        precisions = [setting.fp32_precision for setting in newer]
        convolutions = _legacy_setting(lambda: cudnn.allow_tf32)
        products = _legacy_setting(torch.get_float32_matmul_precision)
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


def _legacy_setting(read: Callable[[], Any]) -> Any:
    """A setting of the older API; None if the caller uses the newer one, which makes it raise."""
    try:
        return read()
    except RuntimeError:
        return None
