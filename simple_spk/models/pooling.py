"""From frames to one vector per recording; frames that are padding do not count."""

import torch
from torch import Tensor, nn


class ValidFrames:
    """Sets the frames after each recording's end to zero, as convolutions pad."""

    def __init__(self, lengths: Tensor | None) -> None:
        self.lengths = lengths
        self.mask: Tensor | None = None

    def __call__(self, maps: Tensor, stride: int = 1) -> Tensor:
        """Maps (n, channels, [height,] frames) with zeros in the frames that are padding.

        stride is that of the convolution that made the maps.
        """
        if self.lengths is None:
            return maps
        if stride != 1 or self.mask is None:
            self.lengths = (self.lengths + stride - 1) // stride
            self.mask = valid_frames(maps, self.lengths)[:, None]
        return maps * (self.mask if maps.ndim == 3 else self.mask[:, None])


def valid_frames(frames: Tensor, lengths: Tensor) -> Tensor:
    """A mask (n, time) of the frames (n, ..., time) that are not padding."""
    return torch.arange(frames.shape[-1], device=frames.device) < lengths[:, None]


def statistics_pooling(frames: Tensor, lengths: Tensor | None) -> Tensor:
    """Mean and standard deviation over time, (n, 2 * channels), of frames (n, channels, time).

    Frames after a recording's length must be zero, and do not count.
    """
    frames = frames.float()
    if lengths is None:
        lengths = torch.full((len(frames),), frames.shape[-1], device=frames.device)
    count = lengths.clamp(min=1).to(frames.dtype)[:, None]
    mean = frames.sum(dim=-1) / count
    valid = valid_frames(frames, lengths)
    squares = ((frames - mean[..., None]) * valid[:, None]).square().sum(dim=-1)
    deviation = (squares / (count - 1.0).clamp(min=1.0) + 1e-7).sqrt()
    return torch.cat([mean, deviation], dim=-1)


class AttentivePooling(nn.Module):
    """Weighted mean and standard deviation over time, (n, 2 * channels), of (n, channels, time).

    Each channel has weights over time of its own. They depend on the frame and on the mean and
    deviation of the recording, as in ECAPA-TDNN (Desplanques et al., 2020). Unlike there, frame and
    recording have their own matrices instead of one over their concatenation, which is the same
    function, and the last layer has no bias, which the softmax over time would cancel.
    """

    def __init__(self, channels: int, attention_channels: int = 128) -> None:
        super().__init__()
        self.of_frame = nn.Conv1d(channels, attention_channels, 1)
        self.of_recording = nn.Linear(2 * channels, attention_channels, bias=False)
        self.norm = nn.BatchNorm1d(attention_channels)
        self.weights = nn.Conv1d(attention_channels, channels, 1, bias=False)

    def forward(self, frames: Tensor, lengths: Tensor | None) -> Tensor:
        frames = frames.float()
        if lengths is None:
            valid = frames.new_ones(len(frames), 1, frames.shape[-1])
        else:
            valid = valid_frames(frames, lengths)[:, None].to(frames.dtype)
        whole = _weighted_statistics(frames, valid / valid.sum(dim=-1, keepdim=True).clamp(min=1.0))
        hidden = self.of_frame(frames) + self.of_recording(whole)[..., None]
        logits = self.weights(torch.tanh(self.norm(torch.relu(hidden)))).float()
        logits = logits.masked_fill(valid == 0.0, torch.finfo(logits.dtype).min)
        return _weighted_statistics(frames, torch.softmax(logits, dim=-1) * valid)


def _weighted_statistics(frames: Tensor, weights: Tensor) -> Tensor:
    """Mean and deviation (n, 2 * channels) of frames (n, channels, time) with such weights."""
    mean = (frames * weights).sum(dim=-1)
    squares = ((frames - mean[..., None]).square() * weights).sum(dim=-1)
    return torch.cat([mean, squares.clamp(min=1e-12).sqrt()], dim=-1)
