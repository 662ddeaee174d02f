"""Products of 32-bit floats with all their digits, on GPUs that would drop some to be faster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


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
