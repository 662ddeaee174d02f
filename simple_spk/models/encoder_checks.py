"""Checks that an encoder keeps the protocol: for tests, also those of encoders outside simple_spk.

An encoder is a module ``encoder(features, lengths=None) -> (n, dim)`` with an attribute
``num_mels``, where features (n, frames, num_mels) are padded after lengths (n,).
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Most are not multiples of the usual strides; segments of 100 frames begin and end among them.
LENGTHS = (211, 200, 97, 64, 63, 33, 16, 15, 9, 8, 2, 1)
FILL = 7.0  # what follows a recording in its row
LEAST_EFFECT = 1e-5  # relative, of a frame that changes much


def check_encoder(
    encoder: nn.Module, lengths: Sequence[int] = LENGTHS, tolerance: float = 1e-4, seed: int = 0
) -> None:
    """Raise an AssertionError unless an encoder keeps the protocol; it is left as it is.

    Padding, whatever it holds, and the order of a batch do not change embeddings by more than the
    tolerance (relative). Every frame of a recording counts. A loss has a gradient for every
    parameter. Lengths, features and, in evaluation mode, the encoder itself are left alone.
    The check works on a copy whose normalization layers are stirred, since fresh ones map zero to
    zero and hide mistakes. lengths are those of the recordings, in frames.
    """
    generator = torch.Generator().manual_seed(seed)
    num_mels: Any = getattr(encoder, "num_mels", None)
    _require(isinstance(num_mels, int), "it has no attribute num_mels, the height of its features")
    copied: nn.Module = stir(copy.deepcopy(encoder), seed).cpu().eval().requires_grad_(True)
    recordings = [torch.randn(length, num_mels, generator=generator) for length in lengths]
    with torch.no_grad():
        alone = _check_alone(copied, recordings)
        _check_padding(copied, recordings, alone, tolerance)
        for recording in sorted(recordings, key=len)[:3]:  # where a frame counts most
            _check_frames(copied, recording)
    _check_gradients(copied.train(), recordings)


def stir(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module, whose normalization layers get values unlike their initial ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            for name, one in part.named_parameters(recurse=False):
                if one.ndim == 1 and len(one) > 1 and bool((one == one[0]).all()):
                    if name == "bias":
                        one.normal_(0.0, 0.3, generator=generator)
                    else:
                        one.uniform_(0.5, 1.5, generator=generator)
            for name, values in part.named_buffers(recurse=False):
                if name == "running_mean":
                    values.normal_(0.0, 0.3, generator=generator)
                elif name == "running_var":
                    values.uniform_(0.5, 1.5, generator=generator)
    return module


def _check_alone(encoder: nn.Module, recordings: list[Tensor]) -> Tensor:
    """Embeddings (n, dim) of recordings that are embedded alone."""
    state = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    alone = []
    for recording in recordings:
        embedding = encoder(recording[None])
        what = f"of {len(recording)} frames has an embedding of the shape {tuple(embedding.shape)}"
        is_right = embedding.ndim == 2 and len(embedding) == 1
        _require(is_right, f"a recording {what}, expected (1, dim)")
        what = f"of {len(recording)} frames has an embedding that is not finite"
        _require(bool(embedding.isfinite().all()), f"a recording {what}")
        alone.append(embedding[0])
        with_length = encoder(recording[None], torch.tensor([len(recording)]))[0]
        difference = float(relative_difference(with_length, alone[-1]))
        _require(difference < 1e-4, f"lengths that are all full differ from None: {difference:.2g}")
    changed = [n for n, tensor in encoder.state_dict().items() if not torch.equal(tensor, state[n])]
    _require(not changed, f"embedding in evaluation mode changes {changed}")
    return torch.stack(alone)


def _check_padding(
    encoder: nn.Module, recordings: list[Tensor], alone: Tensor, tolerance: float
) -> None:
    """Embeddings do not change in batches of several widths, which are filled with anything."""
    for first, extra, fill in ((0, 4, FILL), (0, 37, 0.0), (len(recordings) // 3, 0, -FILL)):
        rows = recordings[first:]
        lengths = torch.tensor([len(row) for row in rows])
        features = torch.full((len(rows), int(lengths.max()) + extra, rows[0].shape[1]), fill)
        for target, row in zip(features, rows, strict=True):
            target[: len(row)] = row
        given = (features.clone(), lengths.clone())
        embeddings = encoder(features, lengths)
        is_kept = torch.equal(features, given[0]) and torch.equal(lengths, given[1])
        _require(is_kept, "it changes the features or the lengths that it is given")
        order = torch.arange(len(rows)).flip(0)
        shuffled = encoder(features[order], lengths[order])[order]
        for found, what in ((embeddings, "padding"), (shuffled, "the order of a batch")):
            differences = relative_difference(found, alone[first:])
            worst = int(differences.argmax())
            _require(
                bool(differences.max() < tolerance),
                f"{what} changes the embedding of a recording of {len(rows[worst])} frames in "
                f"{features.shape[1]} by {differences[worst]:.2g} (at most {tolerance:.2g})",
            )


def _check_frames(encoder: nn.Module, recording: Tensor) -> None:
    """Nothing of a recording is taken for padding: not its last frame, and not its first."""
    count, expected = len(recording), encoder(recording[None])[0]
    for frame in (0, count // 2, count - 1):
        changed = recording.clone()
        changed[frame] += 9.0 * torch.linspace(-1.0, 1.0, recording.shape[1])
        effect = relative_difference(encoder(changed[None], torch.tensor([count]))[0], expected)
        _require(bool(effect > LEAST_EFFECT), f"frame {frame} of {count} has no effect: {effect:g}")


def _check_gradients(encoder: nn.Module, recordings: list[Tensor]) -> None:
    """A loss over a batch has a gradient for every parameter."""
    frames = min(len(row) for row in recordings[:4])
    features = torch.stack([row[:frames] for row in recordings[:4]])
    lengths = torch.tensor([frames] * (len(features) - 1) + [max(1, frames // 2)])
    embeddings = encoder(features, lengths)
    (
        embeddings * torch.linspace(-1.0, 1.0, embeddings.numel()).view_as(embeddings)
    ).sum().backward()
    for name, parameter in encoder.named_parameters():
        gradient = parameter.grad
        is_there = gradient is not None and bool(gradient.any())
        _require(is_there, f"{name} gets no gradient: remove it, or use it")
        assert gradient is not None
        _require(bool(gradient.isfinite().all()), f"the gradient of {name} is not finite")


def relative_difference(found: Tensor, expected: Tensor) -> Tensor:
    """|found - expected| / |expected| of embeddings (..., dim)."""
    return (found - expected).norm(dim=-1) / expected.norm(dim=-1)


def _require(holds: bool, otherwise: str) -> None:
    """Raise an AssertionError that says what does not hold (also in optimized Python)."""
    if not holds:
        raise AssertionError(f"the encoder breaks the protocol: {otherwise}")
