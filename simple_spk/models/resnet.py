"""ResNet-34 for speech with statistics pooling; padding never changes an embedding.

Written by hand because SpeechBrain's ResNet ignores lengths. Layer names follow WeSpeaker's
ResNet-34, so that its weights can be imported.
"""

import torch
from torch import Tensor, nn

from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.saved_arguments import remember_arguments


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
    """

    def __init__(
        self,
        num_mels: int = 80,
        width: int = 32,
        blocks: tuple[int, ...] = (3, 4, 6, 3),
        stem_stride: int = 1,
        embedding_dim: int = 256,
        output: dict | None = None,
    ) -> None:
        super().__init__()
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
        self.output = EmbeddingHead(2 * input_channels * height, embedding_dim, **(output or {}))

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """lengths (n,) counts the frames of each row that are not padding (None: all are)."""
        maps = features.transpose(1, 2)[:, None]
        valid = ValidFrames(lengths)
        maps = valid(torch.relu(self.bn1(self.conv1(valid(maps)))), self.conv1.stride[1])
        for name in self.stages:
            for block in self.get_submodule(name).children():
                maps = block(maps, valid)
        return self.output(statistics_pooling(maps.flatten(1, 2), valid.lengths))


class Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, input_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(input_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or input_channels != channels:
            self.shortcut.append(nn.Conv2d(input_channels, channels, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(channels))

    def forward(self, maps: Tensor, valid: "ValidFrames") -> Tensor:
        inner = valid(torch.relu_(self.bn1(self.conv1(maps))), self.conv1.stride[1])
        return valid(torch.relu_(self.bn2(self.conv2(inner)) + self.shortcut(maps)))


class ValidFrames:
    """Sets the frames after each recording's end to zero, as convolutions pad."""

    def __init__(self, lengths: Tensor | None) -> None:
        self.lengths = lengths
        self.mask: Tensor | None = None

    def __call__(self, maps: Tensor, stride: int = 1) -> Tensor:
        """Maps (n, channels, height, frames) with zeros in the frames that are padding.

        stride is that of the convolution that made the maps.
        """
        if self.lengths is None:
            return maps
        if stride != 1 or self.mask is None:
            self.lengths = (self.lengths + stride - 1) // stride
            positions = torch.arange(maps.shape[-1], device=maps.device)
            self.mask = (positions < self.lengths[:, None])[:, None, None]
        return maps * self.mask


def statistics_pooling(frames: Tensor, lengths: Tensor | None) -> Tensor:
    """Mean and standard deviation over time, (n, 2 * channels), of frames (n, channels, time).

    Frames after a recording's length must be zero, and do not count.
    """
    frames = frames.float()
    if lengths is None:
        lengths = torch.full((len(frames),), frames.shape[-1], device=frames.device)
    count = lengths.clamp(min=1).to(frames.dtype)[:, None]
    mean = frames.sum(dim=-1) / count
    valid = torch.arange(frames.shape[-1], device=frames.device) < lengths[:, None]
    squares = ((frames - mean[..., None]) * valid[:, None]).square().sum(dim=-1)
    deviation = (squares / (count - 1.0).clamp(min=1.0) + 1e-7).sqrt()
    return torch.cat([mean, deviation], dim=-1)
