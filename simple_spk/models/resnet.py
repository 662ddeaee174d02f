"""ResNet-34 for speech; padding never changes an embedding.

Written by hand because SpeechBrain's ResNet ignores lengths. Layer names follow WeSpeaker's
ResNet-34, so that its weights can be imported.
"""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.pooling import AttentivePooling, ValidFrames, statistics_pooling
from simple_spk.models.saved_arguments import remember_arguments

Pooling = Literal["statistics", "attentive"]


@remember_arguments
class ResNet(nn.Module):
    """Embeddings (n, embedding_dim) of log-mel features (n, frames, num_mels).

    Arguments:
        num_mels: height of the features.
        width: channels of the first stage; each later stage doubles them.
        blocks: residual blocks per stage; (3, 4, 6, 3) makes ResNet-34.
        stem_stride: stride of the first convolution; 2 makes everything four times cheaper.
        embedding_dim: size of the embedding.
        output: further arguments of ``EmbeddingHead``: its form and its stabilizers.
        pooling: mean and deviation over time, or with attention (``AttentivePooling``).
    """

    def __init__(
        self,
        num_mels: int = 80,
        width: int = 32,
        blocks: tuple[int, ...] = (3, 4, 6, 3),
        stem_stride: int = 1,
        embedding_dim: int = 256,
        output: dict | None = None,
        pooling: Pooling = "statistics",
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {get_args(Pooling)}, not {pooling!r}")
        self.num_mels = num_mels
        self.conv1 = nn.Conv2d(1, width, 3, stride=stem_stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = [f"layer{number}" for number in range(1, len(blocks) + 1)]
        input_channels, height = width, -(-num_mels // stem_stride)
        for number, (name, count) in enumerate(zip(self.stages, blocks, strict=True)):
            channels, stride = width * 2**number, 1 if number == 0 else 2
            layers = []
            for position in range(count):
                layers.append(Block(input_channels, channels, stride if position == 0 else 1))
                input_channels = channels
            self.add_module(name, nn.ModuleList(layers))
            height = -(-height // stride)
        pooled = input_channels * height
        self.pool: Callable[[Tensor, Tensor | None], Tensor] = statistics_pooling
        if pooling == "attentive":
            self.pool = AttentivePooling(pooled)
        self.output = EmbeddingHead(2 * pooled, embedding_dim, **(output or {}))

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """lengths (n,) counts the frames of each row that are not padding (None: all are)."""
        maps = features.transpose(1, 2)[:, None]
        valid = ValidFrames(lengths)
        maps = valid(torch.relu(self.bn1(self.conv1(valid(maps)))), self.conv1.stride[1])
        for name in self.stages:
            for block in self.get_submodule(name).children():
                maps = block(maps, valid)
        return self.output(self.pool(maps.flatten(1, 2), valid.lengths))


class _Shortcut(nn.Conv2d):
    """A 1x1 convolution with a stride, whose gradient is safe in the layout channels_last.

    There the weights' gradient of oneDNN (torch 2.11, CPU) writes beyond its memory if a stride is
    given and channels are few. Without the stride, on the frames that it would visit, it does not.
    """

    def forward(self, maps: Tensor) -> Tensor:
        if not self.training:
            return super().forward(maps)
        rows, columns = self.stride
        return functional.conv2d(maps[:, :, ::rows, ::columns], self.weight, self.bias)


class Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, input_channels: int, channels: int, stride: int | tuple[int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(input_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or input_channels != channels:
            self.shortcut.append(_Shortcut(input_channels, channels, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(channels))

    def forward(self, maps: Tensor, valid: ValidFrames) -> Tensor:
        inner = valid(torch.relu_(self.bn1(self.conv1(maps))), self.conv1.stride[1])
        return valid(torch.relu_(self.bn2(self.conv2(inner)) + self.shortcut(maps)))
