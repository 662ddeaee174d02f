"""Fast embeddings on CPUs: one recording per core at a time, with fused convolutions.

So cores do not wait for each other within a layer, nothing is padded, and an embedding does not
depend on its batch. BatchNorm is folded into the convolutions; oneDNN fuses residual additions and
ReLU into them, with weights in its own layout (torch's compiler uses the same operations).
Convolutions may be computed in bfloat16, which is faster on some CPUs; features, pooling and the
embedding head stay in single precision.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import Block, ResNet

MOST_TOGETHER, SAMPLES_TOGETHER = 32, 2**20  # of recordings that share a call: a minute at 16 kHz


class CpuEmbedding:
    """Embeddings (n, dim) of waveforms (n, samples), padded after lengths (n,).

    It keeps a copy of the weights; ``dtype`` is that of convolutions.
    """

    def __init__(
        self, front_end: Fbank, encoder: nn.Module, dtype: torch.dtype = torch.float32
    ) -> None:
        self.front_end = front_end
        self.dtype = dtype
        self.encode: Callable[[Tensor], Tensor] = encoder
        if isinstance(encoder, ResNet) and torch.backends.mkldnn.is_available():
            self.encode = FoldedResNet(encoder, dtype)

    @torch.inference_mode()
    def __call__(
        self, waveforms: Tensor, lengths: Tensor | None = None, together: bool = False
    ) -> Tensor:
        """The embeddings; with ``together``, those of one length share calls.

        This is several times faster for windows of a second or two. An embedding then depends on
        its batch in the last digits.
        """
        samples = [waveforms.shape[1]] * len(waveforms) if lengths is None else lengths.tolist()
        of_length: dict[int, list[int]] = {}
        for row, length in enumerate(samples):
            of_length.setdefault(length, []).append(row)
        calls = []
        for length, rows in of_length.items():
            most = min(MOST_TOGETHER, SAMPLES_TOGETHER // max(1, length)) if together else 1
            calls += [rows[i : i + max(1, most)] for i in range(0, len(rows), max(1, most))]
        parts = [waveforms[rows, : samples[rows[0]]] for rows in calls]
        embeddings = torch.cat(each_on_a_core(self._embed, parts))
        order = torch.tensor([row for rows in calls for row in rows])
        return torch.empty_like(embeddings).index_copy_(0, order, embeddings)

    @torch.inference_mode()  # a setting of each thread
    def _embed(self, waveforms: Tensor) -> Tensor:
        features, _ = self.front_end(waveforms)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            return self.encode(features).float()


class FoldedResNet:
    """A ResNet in evaluation mode: embeddings (n, dim) of features (n, frames, num_mels)."""

    def __init__(self, encoder: ResNet, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.stem = _folded(encoder.conv1, encoder.bn1, dtype)
        self.blocks: list[tuple[_Convolution, _Convolution, _Convolution | None]] = []
        for name in encoder.stages:
            for block in encoder.get_submodule(name).children():
                assert isinstance(block, Block)
                first = _folded(block.conv1, block.bn1, dtype)
                second = _folded(block.conv2, block.bn2, dtype)
                shortcut = None
                if len(block.shortcut):
                    shortcut = _folded(block.shortcut[0], block.shortcut[1], dtype)
                self.blocks.append((first, second, shortcut))
        self.pool, self.output = encoder.pool, encoder.output

    def __call__(self, features: Tensor) -> Tensor:
        maps = self.stem(features.transpose(1, 2)[:, None].contiguous().to(self.dtype), "relu")
        for first, second, shortcut in self.blocks:
            inner = first(maps, "relu")
            maps = second.added_to(maps if shortcut is None else shortcut(maps), inner)
        with torch.autocast("cpu", enabled=False):
            return self.output(self.pool(maps.flatten(1, 2), None))


class _Convolution(NamedTuple):
    """The arguments of a oneDNN convolution, its weight in oneDNN's layout."""

    weight: Tensor
    bias: Tensor
    padding: list[int]
    stride: list[int]
    dilation: list[int]
    groups: int

    def __call__(self, maps: Tensor, then: str = "none") -> Tensor:
        """The convolution, and then "relu" or "none"."""
        return torch.ops.mkldnn._convolution_pointwise(maps, *self, then, [], "")

    def added_to(self, others: Tensor, maps: Tensor) -> Tensor:
        """Added in place to other maps, with ReLU on the sum."""
        return torch.ops.mkldnn._convolution_pointwise_.binary(
            others, maps, *self, "add", 1.0, "relu", [], ""
        )


def _folded(convolution: Any, batch_norm: Any, dtype: torch.dtype) -> _Convolution:
    """A Conv2d with the BatchNorm2d after it folded into its weights."""
    fused = fuse_conv_bn_eval(convolution, batch_norm).requires_grad_(False)
    layout = (list(fused.padding), list(fused.stride), [1, 1], 1)
    packed = torch.ops.mkldnn._reorder_convolution_weight(fused.weight.to(dtype), *layout, [])
    return _Convolution(packed, fused.bias.to(dtype), *layout)


def each_on_a_core(task: Callable[[Tensor], Tensor], rows: list[Tensor]) -> list[Tensor]:
    """The results of n rows, computed in as many threads as torch may use."""
    cores = torch.get_num_threads()
    at_once = min(cores, len(rows))
    if at_once < 2:
        return [task(row) for row in rows]

    def share_cores() -> None:
        torch.get_num_threads()  # else the thread's first operation would reset its number
        torch.set_num_threads(cores // at_once)

    try:
        with ThreadPoolExecutor(at_once, initializer=share_cores) as pool:
            try:
                results = pool.map(task, rows)
            except RuntimeError:  # the system refuses to start more threads
                pool.shutdown(cancel_futures=True)
                return [task(row) for row in rows]
            return list(results)
    finally:
        torch.set_num_threads(cores)  # new threads inherit it
