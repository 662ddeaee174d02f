"""CAM++ (Wang et al., 2023), a densely connected TDNN; padding never changes an embedding.

Written by hand because 3D-Speaker's own knows no lengths. Layers are the same: its weights can be
imported.
"""

import torch
from torch import Tensor, nn

from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.pooling import ValidFrames, statistics_pooling
from simple_spk.models.resnet import Block
from simple_spk.models.saved_arguments import remember_arguments

SEGMENT_FRAMES = 100  # whose mean is the local context of a frame, after the stride of 2
BOTTLENECK = 4  # channels before a dense layer, in units of those that it adds


@remember_arguments
class CamPlusPlus(nn.Module):
    """Embeddings (n, embedding_dim) of log-mel features (n, frames, num_mels).

    Arguments:
        num_mels: height of the features.
        width: channels of the two-dimensional convolutions, which come first.
        channels: of the first layer over time, which halves the frame rate.
        growth: channels that each dense layer adds.
        layers: dense layers of each block; the channels are halved after a block.
        dilations: of the layers of each block.
        embedding_dim: size of the embedding.
        output: further arguments of ``EmbeddingHead``; the published models are centered.
    """

    def __init__(
        self,
        num_mels: int = 80,
        width: int = 32,
        channels: int = 128,
        growth: int = 32,
        layers: tuple[int, ...] = (12, 24, 16),
        dilations: tuple[int, ...] = (1, 2, 2),
        embedding_dim: int = 192,
        output: dict | None = None,
    ) -> None:
        super().__init__()
        if len(layers) != len(dilations):
            raise ValueError(f"{len(layers)} blocks of layers, but {len(dilations)} dilations")
        self.num_mels = num_mels
        self.head = Head(width)
        height = -(-num_mels // 8)  # after three strides of 2
        self.tdnn = nn.Conv1d(width * height, channels, 5, stride=2, padding=2, bias=False)
        self.tdnn_norm = nn.BatchNorm1d(channels)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for count, dilation in zip(layers, dilations, strict=True):
            inputs = [channels + growth * number for number in range(count)]
            self.blocks.append(nn.ModuleList(DenseLayer(n, growth, dilation) for n in inputs))
            channels += growth * count
            linear = nn.Conv1d(channels, channels // 2, 1, bias=False)
            self.transitions.append(nn.Sequential(nn.BatchNorm1d(channels), nn.ReLU(), linear))
            channels //= 2
        self.norm = nn.BatchNorm1d(channels)
        self.output = EmbeddingHead(2 * channels, embedding_dim, **(output or {}))

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """lengths (n,) counts the frames of each row that are not padding (None: all are)."""
        valid = ValidFrames(lengths)
        frames = self.head(features.transpose(1, 2)[:, None], valid).flatten(1, 2)
        frames = valid(torch.relu(self.tdnn_norm(self.tdnn(frames))), self.tdnn.stride[0])
        segments = Segments(frames, valid.lengths)
        for block, transition in zip(self.blocks, self.transitions, strict=True):
            for layer in block.children():
                frames = torch.cat([frames, layer(frames, valid, segments)], dim=1)
            frames = transition(frames)
        frames = valid(torch.relu(self.norm(frames)))
        return self.output(statistics_pooling(frames, valid.lengths))


class Head(nn.Module):
    """Residual convolutions over time and frequency that shrink only the frequency, by 8."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = nn.ModuleList([Block(width, width, (2, 1)), Block(width, width, 1)])
        self.layer2 = nn.ModuleList([Block(width, width, (2, 1)), Block(width, width, 1)])
        self.conv2 = nn.Conv2d(width, width, 3, stride=(2, 1), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, maps: Tensor, valid: ValidFrames) -> Tensor:
        maps = valid(torch.relu(self.bn1(self.conv1(valid(maps)))))
        for block in [*self.layer1, *self.layer2]:
            maps = block(maps, valid)
        return valid(torch.relu(self.bn2(self.conv2(maps))))


class DenseLayer(nn.Module):
    """A convolution over time whose channels are weighted by their context ("CAM")."""

    def __init__(self, inputs: int, growth: int, dilation: int) -> None:
        super().__init__()
        hidden = BOTTLENECK * growth
        self.norm1 = nn.BatchNorm1d(inputs)
        self.linear1 = nn.Conv1d(inputs, hidden, 1, bias=False)
        self.norm2 = nn.BatchNorm1d(hidden)
        self.local = nn.Conv1d(hidden, growth, 3, padding=dilation, dilation=dilation, bias=False)
        self.squeeze = nn.Conv1d(hidden, hidden // 2, 1)
        self.excite = nn.Conv1d(hidden // 2, growth, 1)

    def forward(self, frames: Tensor, valid: ValidFrames, segments: "Segments") -> Tensor:
        hidden = self.linear1(torch.relu(self.norm1(frames)))
        hidden = valid(torch.relu(self.norm2(hidden)))
        # The context is the same in a segment, and so are the weights.
        weights = torch.sigmoid(self.excite(torch.relu(self.squeeze(segments.context(hidden)))))
        return self.local(hidden) * weights.index_select(2, segments.of_frame)


class Segments:
    """Segments of 100 frames, the last of a recording shorter."""

    def __init__(self, frames: Tensor, lengths: Tensor | None) -> None:
        time, device = frames.shape[-1], frames.device
        self.of_frame = torch.arange(time, device=device) // SEGMENT_FRAMES
        numbers = torch.arange((time + SEGMENT_FRAMES - 1) // SEGMENT_FRAMES, device=device)
        self.members = (self.of_frame[:, None] == numbers).to(frames.dtype)  # (time, segments)
        if lengths is None:
            lengths = torch.full((1,), time, device=device)
        self.lengths = lengths.clamp(min=1)[:, None, None]
        self.counts = (self.lengths - SEGMENT_FRAMES * numbers).clamp(1, SEGMENT_FRAMES)

    def context(self, frames: Tensor) -> Tensor:
        """Mean of a segment plus mean of all, (n, channels, segments); padding must be zero."""
        sums = frames @ self.members.to(frames.dtype)
        return sums / self.counts + sums.sum(dim=-1, keepdim=True) / self.lengths
