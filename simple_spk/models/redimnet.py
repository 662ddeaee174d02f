"""ReDimNet (Yakovlev et al., 2024), size B2; padding never changes an embedding.

Written by hand because the authors' own knows no lengths. The network before pooling is theirs, the
sizes of B2 are those in WeSpeaker. Biases without effect are left out: those before BatchNorm, and
of the keys of an attention.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.pooling import AttentivePooling, ValidFrames
from simple_spk.models.saved_arguments import remember_arguments

CONTEXT_SIZES = (7, 19, 31, 59)  # of the convolutions over time before an attention, in frames
HEADS = 4


@remember_arguments
class ReDimNet(nn.Module):
    """Embeddings (n, embedding_dim) of log-mel features (n, frames, num_mels).

    Two-dimensional blocks see channels and heights, context blocks see all of them as channels over
    time: channels times heights is the same everywhere, so that each stage reads a weighted sum of
    the outputs of all stages before it.

    Arguments:
        num_mels: height of the features, a multiple of the product of strides.
        width: channels of the first stage.
        blocks: two-dimensional blocks of each stage.
        strides: over frequency, of each stage, which has so many times more channels.
        reductions: channels of a stage's context block are width * num_mels divided by this.
        group_size: channels in a group of a two-dimensional convolution.
        embedding_dim: size of the embedding.
        output: further arguments of ``EmbeddingHead``: its form and its stabilizers.
    """

    def __init__(
        self,
        num_mels: int = 72,
        width: int = 16,
        blocks: tuple[int, ...] = (2, 2, 3, 4, 4, 4),
        strides: tuple[int, ...] = (1, 2, 1, 2, 1, 2),
        reductions: tuple[int, ...] = (12, 12, 12, 8, 8, 4),
        group_size: int = 4,
        embedding_dim: int = 192,
        output: dict | None = None,
    ) -> None:
        super().__init__()
        if not len(blocks) == len(strides) == len(reductions):
            raise ValueError(f"stages differ in number: {blocks=}, {strides=}, {reductions=}")
        self.num_mels = num_mels
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.stem_norm = ChannelNorm(width)
        size, channels, height = width * num_mels, width, num_mels
        self.stages, self.mixing = nn.ModuleList(), nn.ParameterList()
        for number, (count, stride, reduction) in enumerate(
            zip(blocks, strides, reductions, strict=True)
        ):
            if height % stride or size % (reduction * HEADS) or channels * stride % group_size:
                raise ValueError(
                    f"stage {number + 1} cannot have a height of {height} divided by {stride}, "
                    f"{size} channels by {reduction} in {HEADS} heads, or groups of {group_size}"
                )
            self.stages.append(
                Stage(channels, height, count, stride, size // reduction, group_size)
            )
            channels, height = channels * stride, height // stride
            self.mixing.append(torch.zeros(number + 2, size, 1))
        self.pool = AttentivePooling(size)
        self.norm = nn.BatchNorm1d(2 * size)
        self.output = EmbeddingHead(2 * size, embedding_dim, **(output or {}))

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """lengths (n,) counts the frames of each row that are not padding (None: all are)."""
        return self.output(self.norm(self.pool(self.frames(features, lengths), lengths)))

    def frames(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What is pooled: (n, width * num_mels, frames)."""
        valid = ValidFrames(lengths)
        maps = self.stem_norm(self.stem(valid(features.transpose(1, 2)[:, None])))
        frames = maps.transpose(1, 2).flatten(1, 2)
        outputs = [frames]
        for stage, mixing in zip(self.stages, self.mixing, strict=True):
            outputs.append(stage(frames, valid))
            weights = torch.softmax(mixing, dim=0)
            frames = torch.stack([w * one for w, one in zip(weights, outputs, strict=True)]).sum(0)
        return frames


class Stage(nn.Module):
    """Two-dimensional blocks, and a context block with a residual connection."""

    def __init__(
        self, channels: int, height: int, blocks: int, stride: int, hidden: int, group_size: int
    ) -> None:
        super().__init__()
        self.height = height
        self.reshape = nn.Conv2d(channels, stride * channels, (stride, 1), stride=(stride, 1))
        outputs = stride * channels
        self.blocks = nn.ModuleList(
            ConvolutionBlock(
                nn.Conv2d(outputs, outputs, 3, padding=1, groups=outputs // group_size, bias=False)
            )
            for _ in range(blocks)
        )
        self.narrow = nn.Conv1d(channels * height, hidden, 1)
        self.narrow_norm = ChannelNorm(hidden)
        self.context = nn.ModuleList(
            ConvolutionBlock(
                nn.Conv1d(hidden, hidden, size, padding=size // 2, groups=hidden, bias=False)
            )
            for size in CONTEXT_SIZES
        )
        self.attention = Attention(hidden)
        self.widen = nn.Conv1d(hidden, channels * height, 1)

    def forward(self, frames: Tensor, valid: ValidFrames) -> Tensor:
        maps = self.reshape(frames.unflatten(1, (self.height, -1)).transpose(1, 2))
        for block in self.blocks:
            maps = block(maps, valid)
        frames = maps.transpose(1, 2).flatten(1, 2)
        hidden = self.narrow_norm(self.narrow(frames))
        for block in self.context:
            hidden = block(hidden, valid)
        return frames + self.widen(self.attention(hidden, valid))


class ConvolutionBlock(nn.Module):
    """A grouped convolution and one over channels, with a residual connection."""

    def __init__(self, convolution: Any) -> None:
        super().__init__()
        channels, is_2d = convolution.out_channels, isinstance(convolution, nn.Conv2d)
        self.conv = convolution
        self.norm = nn.BatchNorm2d(channels) if is_2d else nn.BatchNorm1d(channels)
        self.linear = type(convolution)(channels, channels, 1)

    def forward(self, maps: Tensor, valid: ValidFrames) -> Tensor:
        return maps + self.linear(functional.gelu(self.norm(self.conv(valid(maps)))))


class Attention(nn.Module):
    """A transformer layer: attention over the frames of a recording, and a layer for each."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.key = nn.Linear(channels, channels, bias=False)
        self.joined = nn.Linear(channels, channels)
        self.norm1, self.norm2 = (nn.LayerNorm(channels, eps=1e-6) for _ in range(2))
        self.inner, self.outer = nn.Linear(channels, channels), nn.Linear(channels, channels)

    def forward(self, frames: Tensor, valid: ValidFrames) -> Tensor:
        rows = frames.transpose(1, 2)
        query, key, value = (
            layer(rows).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mask = None if valid.mask is None else valid.mask[:, None]  # (n, 1, 1, frames)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        rows = self.norm1(rows + self.joined(seen.transpose(1, 2).flatten(2)))
        inner = functional.gelu(self.inner(rows), approximate="tanh")
        return self.norm2(rows + self.outer(inner)).transpose(1, 2)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (n, channels, ...)."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)
