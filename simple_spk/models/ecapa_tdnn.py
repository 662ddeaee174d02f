"""ECAPA-TDNN (Desplanques et al., 2020); padding never changes an embedding.

Written by hand because SpeechBrain's ECAPA-TDNN reflects a batch at its end and not each recording
at its own, so that its embeddings depend on padding. Layers and, nearly, their names are the same:
its weights can be imported.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.pooling import AttentivePooling, valid_frames
from simple_spk.models.saved_arguments import remember_arguments


@remember_arguments
class EcapaTdnn(nn.Module):
    """Embeddings (n, embedding_dim) of log-mel features (n, frames, num_mels).

    Arguments:
        num_mels: height of the features.
        channels: of all layers but the last; 512 and 1024 are usual.
        pooled_channels: of the last layer before pooling.
        dilations: of the blocks, one after the other.
        res2net_scale: groups of channels in a block, each of which sees the one before it.
        attention_channels: hidden channels of the attention over channels and over time.
        embedding_dim: size of the embedding.
        output: further arguments of ``EmbeddingHead``: its form and its stabilizers.
    """

    def __init__(
        self,
        num_mels: int = 80,
        channels: int = 1024,
        pooled_channels: int = 3072,
        dilations: tuple[int, ...] = (2, 3, 4),
        res2net_scale: int = 8,
        attention_channels: int = 128,
        embedding_dim: int = 192,
        output: dict | None = None,
    ) -> None:
        super().__init__()
        if channels % res2net_scale:
            raise ValueError(f"{channels} channels cannot be split into {res2net_scale} groups")
        self.num_mels = num_mels
        self.stem = Tdnn(num_mels, channels, 5)
        self.blocks = nn.ModuleList(
            Block(channels, dilation, res2net_scale, attention_channels) for dilation in dilations
        )
        self.mfa = Tdnn(channels * len(dilations), pooled_channels)  # multi-layer aggregation
        self.asp = AttentivePooling(pooled_channels, attention_channels)
        self.asp_bn = nn.BatchNorm1d(2 * pooled_channels)
        self.output = EmbeddingHead(2 * pooled_channels, embedding_dim, **(output or {}))

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """lengths (n,) counts the frames of each row that are not padding (None: all are)."""
        frames = features.transpose(1, 2)
        reflected = ReflectedFrames(lengths)
        frames = self.stem(frames, reflected)
        outputs = []
        for block in self.blocks:
            frames = block(frames, reflected)
            outputs.append(frames)
        frames = self.mfa(torch.cat(outputs, dim=1), reflected)
        return self.output(self.asp_bn(self.asp(frames, lengths)))


class ReflectedFrames:
    """Continues recordings on both sides by their mirror images, each at its own end.

    Frames after a recording's end may hold anything: nothing reads them.
    """

    def __init__(self, lengths: Tensor | None) -> None:
        self.lengths = lengths
        self.positions: dict[int, Tensor] = {}  # by how many frames are added

    def __call__(self, frames: Tensor, added: int) -> Tensor:
        """Frames (n, channels, time + 2 * added) of frames (n, channels, time)."""
        if added == 0:
            return frames
        if self.lengths is None and added < frames.shape[-1]:
            return functional.pad(frames, (added, added), mode="reflect")
        if added not in self.positions:
            time, lengths = frames.shape[-1], self.lengths
            if lengths is None:
                lengths = torch.full((len(frames),), time, device=frames.device)
            last = lengths[:, None] - 1
            offsets = torch.arange(-added, time + added, device=frames.device).abs()
            self.positions[added] = last - (last - offsets % (2 * last).clamp(min=1)).abs()
        positions = self.positions[added][:, None].expand(-1, frames.shape[1], -1)
        return frames.gather(2, positions)

    def mean(self, frames: Tensor) -> Tensor:
        """The mean (n, channels, 1) over the time of each recording."""
        if self.lengths is None:
            return frames.mean(dim=-1, keepdim=True)
        valid = valid_frames(frames, self.lengths)[:, None]
        count = self.lengths.clamp(min=1)[:, None, None]
        return (frames * valid).sum(dim=-1, keepdim=True) / count


class Tdnn(nn.Module):
    """A convolution over time that keeps the length, ReLU and BatchNorm."""

    def __init__(self, inputs: int, channels: int, size: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.added = dilation * (size - 1) // 2
        self.conv = nn.Conv1d(inputs, channels, size, dilation=dilation)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, frames: Tensor, reflected: ReflectedFrames) -> Tensor:
        return self.norm(torch.relu(self.conv(reflected(frames, self.added))))


class Block(nn.Module):
    """A Res2Net block with attention over channels and a residual connection."""

    def __init__(self, channels: int, dilation: int, scale: int, attention_channels: int) -> None:
        super().__init__()
        self.tdnn1 = Tdnn(channels, channels)
        width = channels // scale
        self.groups = nn.ModuleList(Tdnn(width, width, 3, dilation) for _ in range(scale - 1))
        self.tdnn2 = Tdnn(channels, channels)
        self.squeeze = nn.Conv1d(channels, attention_channels, 1)
        self.excite = nn.Conv1d(attention_channels, channels, 1)

    def forward(self, frames: Tensor, reflected: ReflectedFrames) -> Tensor:
        first, *others = self.tdnn1(frames, reflected).chunk(len(self.groups) + 1, dim=1)
        outputs = [first]
        for number, (group, one) in enumerate(zip(self.groups, others, strict=True)):
            outputs.append(group(one if number == 0 else one + outputs[-1], reflected))
        inner = self.tdnn2(torch.cat(outputs, dim=1), reflected)
        attention = self.excite(torch.relu(self.squeeze(reflected.mean(inner))))
        return inner * torch.sigmoid(attention) + frames
