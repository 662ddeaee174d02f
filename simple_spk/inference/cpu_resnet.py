"""Fast embeddings on CPUs: one recording per core at a time, with fused convolutions.

So cores do not wait for each other within a layer, nothing is padded, and an embedding does not
depend on its batch. BatchNorm is folded into the convolutions; oneDNN fuses residual additions and
ReLU into them, with weights in its own layout (torch's compiler uses the same operations).
Convolutions may be computed in bfloat16, which is faster on some CPUs; features, pooling and the
embedding head stay in single precision.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import Block, ResNet, statistics_pooling


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
    def __call__(self, waveforms: Tensor, lengths: Tensor | None = None) -> Tensor:
        samples = [waveforms.shape[1]] * len(waveforms) if lengths is None else lengths.tolist()
        rows = [row[None, :length] for row, length in zip(waveforms, samples, strict=True)]
        return torch.cat(each_on_a_core(self._embed_row, rows))

    @torch.inference_mode()  # a setting of each thread
    def _embed_row(self, waveform: Tensor) -> Tensor:
        features, _ = self.front_end(waveform)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            return self.encode(features).float()


class FoldedResNet:
    """A ResNet in evaluation mode: embeddings (n, dim) of features (n, frames, num_mels)."""

    def __init__(self, encoder: ResNet, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.stem = _folded(encoder.conv1, encoder.bn1, dtype)
        self.blocks = [
            _FoldedBlock(block, dtype)
            for name in encoder.stages
            for block in encoder.get_submodule(name).children()
            if isinstance(block, Block)
        ]
        self.output = encoder.output

    def __call__(self, features: Tensor) -> Tensor:
        maps = self.stem.clipped(features.transpose(1, 2)[:, None].contiguous().to(self.dtype))
        for block in self.blocks:
            maps = block(maps)
        with torch.autocast("cpu", enabled=False):
            return self.output(statistics_pooling(maps.flatten(1, 2), None))


class _Convolution(NamedTuple):
    """The arguments of a oneDNN convolution, its weight in oneDNN's layout."""

    weight: Tensor
    bias: Tensor
    padding: list[int]
    stride: list[int]
    dilation: list[int]
    groups: int

    def plain(self, maps: Tensor) -> Tensor:
        return torch.ops.mkldnn._convolution_pointwise(maps, *self, "none", [], "")

    def clipped(self, maps: Tensor) -> Tensor:
        """With ReLU on the result."""
        return torch.ops.mkldnn._convolution_pointwise(maps, *self, "relu", [], "")

    def added_to(self, others: Tensor, maps: Tensor) -> Tensor:
        """Added in place to other maps, with ReLU on the sum."""
        return torch.ops.mkldnn._convolution_pointwise_.binary(
            others, maps, *self, "add", 1.0, "relu", [], ""
        )


class _FoldedBlock:
    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        self.first = _folded(block.conv1, block.bn1, dtype)
        self.second = _folded(block.conv2, block.bn2, dtype)
        self.shortcut: _Convolution | None = None
        if len(block.shortcut):
            self.shortcut = _folded(block.shortcut[0], block.shortcut[1], dtype)

    def __call__(self, maps: Tensor) -> Tensor:
        inner = self.first.clipped(maps)
        return self.second.added_to(
            maps if self.shortcut is None else self.shortcut.plain(maps), inner
        )


def _folded(convolution: nn.Module, normalization: nn.Module, dtype: torch.dtype) -> _Convolution:
    """A convolution with the BatchNorm after it folded into its weights."""
    assert isinstance(convolution, nn.Conv2d) and isinstance(normalization, nn.BatchNorm2d)
    norm = normalization
    assert norm.running_mean is not None and norm.running_var is not None
    weight, bias = fuse_conv_bn_weights(
        convolution.weight.detach(),
        None,
        norm.running_mean,
        norm.running_var,
        norm.eps,
        norm.weight.detach(),
        norm.bias.detach(),
    )
    assert isinstance(convolution.padding, tuple)
    layout = (list(convolution.padding), list(convolution.stride), [1, 1], 1)
    packed = torch.ops.mkldnn._reorder_convolution_weight(weight.detach().to(dtype), *layout, [])
    return _Convolution(packed, bias.detach().to(dtype), *layout)


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
