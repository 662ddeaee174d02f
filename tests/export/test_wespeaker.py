"""Laws of imported WeSpeaker models: embeddings equal those of its architecture, written out here.

The reference follows the published description of its ResNet-34, slowly and straight from tensors
by name, in double precision; features are torchaudio's.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torchaudio.compliance import kaldi

from simple_spk.export.wespeaker import import_wespeaker
from simple_spk.inference.model_folder import load_model, save_model

Weights = dict[str, Tensor]
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def make_weights(
    depth: int = 34, width: int = 4, mels: int = 80, dim: int = 12, two_layers: bool = False
) -> Weights:
    """Random weights, named as WeSpeaker names them, that keep values in a sound range."""
    generator = torch.Generator().manual_seed(depth)
    weights: Weights = {}

    def add_filter(name: str, channels: int, inputs: int, size: int) -> None:
        values = torch.randn(channels, inputs, size, size, generator=generator)
        weights[f"{name}.weight"] = values / (inputs * size * size) ** 0.5

    def add_norm(name: str, channels: int, affine: bool = True) -> None:
        if affine:
            weights[f"{name}.weight"] = 0.5 + torch.rand(channels, generator=generator)
            weights[f"{name}.bias"] = 0.3 * torch.randn(channels, generator=generator)
        weights[f"{name}.running_mean"] = 0.3 * torch.randn(channels, generator=generator)
        weights[f"{name}.running_var"] = 0.5 + torch.rand(channels, generator=generator)
        weights[f"{name}.num_batches_tracked"] = torch.tensor(77)

    def add_linear(name: str, outputs: int, inputs: int) -> None:
        weights[f"{name}.weight"] = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
        weights[f"{name}.bias"] = torch.randn(outputs, generator=generator)

    add_filter("conv1", width, 1, 3)
    add_norm("bn1", width)
    inputs = width
    for stage, count in enumerate(BLOCKS[depth]):
        channels = width * 2**stage
        for number in range(count):
            block = f"layer{stage + 1}.{number}"
            add_filter(f"{block}.conv1", channels, inputs, 3)
            add_norm(f"{block}.bn1", channels)
            add_filter(f"{block}.conv2", channels, channels, 3)
            add_norm(f"{block}.bn2", channels)
            if number == 0 and stage > 0:
                add_filter(f"{block}.shortcut.0", channels, inputs, 1)
                add_norm(f"{block}.shortcut.1", channels)
            inputs = channels
    add_linear("seg_1", dim, 2 * inputs * mels // 8)
    if two_layers:
        add_norm("seg_bn_1", dim, affine=False)
        add_linear("seg_2", dim, dim)
    weights["projection.weight"] = torch.randn(100, dim, generator=generator)
    return weights


def reference(waveform: NDArray[np.float32], weights: Weights, depth: int, mels: int) -> Tensor:
    """The embedding (dim,) that WeSpeaker gives a recording at 16 kHz."""
    exact = {name: tensor.double() for name, tensor in weights.items()}

    def convolve(name: str, maps: Tensor, stride: int = 1) -> Tensor:
        kernel = exact[f"{name}.weight"]
        return functional.conv2d(maps, kernel, stride=stride, padding=kernel.shape[-1] // 2)

    def normalize(name: str, values: Tensor) -> Tensor:
        shape = (1, -1) + (1,) * (values.ndim - 2)
        mean, variance = (exact[f"{name}.running_{kind}"].view(shape) for kind in ("mean", "var"))
        values = (values - mean) / (variance + 1e-5).sqrt()
        if f"{name}.weight" in exact:
            values = values * exact[f"{name}.weight"].view(shape)
            values = values + exact[f"{name}.bias"].view(shape)
        return values

    features = kaldi.fbank(
        torch.from_numpy(waveform).double()[None] * 2**15,
        num_mel_bins=mels,
        frame_length=25,
        frame_shift=10,
        dither=0.0,
        sample_frequency=16000,
        window_type="hamming",
        use_energy=False,
    )
    features = features - features.mean(dim=0)
    maps = functional.relu(normalize("bn1", convolve("conv1", features.T[None, None])))
    for stage, count in enumerate(BLOCKS[depth]):
        for number in range(count):
            block = f"layer{stage + 1}.{number}"
            stride = 2 if stage > 0 and number == 0 else 1
            inner = normalize(f"{block}.bn1", convolve(f"{block}.conv1", maps, stride))
            inner = normalize(f"{block}.bn2", convolve(f"{block}.conv2", inner.relu()))
            if f"{block}.shortcut.0.weight" in exact:
                maps = convolve(f"{block}.shortcut.0", maps, stride)
                maps = normalize(f"{block}.shortcut.1", maps)
            maps = (inner + maps).relu()
    mean, deviation = maps.mean(dim=-1), (maps.var(dim=-1) + 1e-7).sqrt()
    statistics = torch.cat([mean.flatten(1), deviation.flatten(1)], dim=1)
    embedding = functional.linear(statistics, exact["seg_1.weight"], exact["seg_1.bias"])
    if "seg_2.weight" in exact:
        embedding = normalize("seg_bn_1", embedding.relu())
        embedding = functional.linear(embedding, exact["seg_2.weight"], exact["seg_2.bias"])
    return embedding[0]


@pytest.mark.parametrize(
    ("depth", "width", "mels", "two_layers"),
    [(34, 4, 80, False), (34, 3, 40, True), (18, 8, 80, False)],
    ids=["34", "34, two layers", "18"],
)
@torch.no_grad()
def test_embeddings_equal_wespeakers(
    depth: int,
    width: int,
    mels: int,
    two_layers: bool,
    noisy_tone: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    weights = make_weights(depth, width, mels, two_layers=two_layers)
    torch.save(weights, tmp_path / "avg_model.pt")
    imported, dropped = import_wespeaker(tmp_path)
    assert dropped == 1200
    save_model(tmp_path / "model", imported)
    model = load_model(tmp_path / "model")
    assert model.threshold is None
    embeddings = []
    for seconds in (0.6, 1.53):
        waveform = noisy_tone(seconds, hertz=100.0 * seconds)
        embeddings.append(model.encoder(*model.front_end(torch.from_numpy(waveform)[None])))
        expected = reference(waveform, weights, depth, mels).float()
        assert (embeddings[-1][0] - expected).norm() / expected.norm() < 1e-5
    cosine = functional.cosine_similarity(*embeddings)
    torch.testing.assert_close(model.similarity.pairs(*embeddings), cosine)


def bottleneck(weights: Weights) -> None:
    weights["layer1.0.conv3.weight"] = torch.zeros(16, 4, 1, 1)


# What is wrong: how to make it so, and what the message must say.
OTHERS: dict[str, tuple[Callable[[Weights], object], str]] = {
    "bottleneck": (bottleneck, "bottleneck.*221"),
    "attentive pooling": (
        lambda w: w.update({"pool.linear1.weight": torch.zeros(3)}),
        "attentive pooling",
    ),
    "ECAPA": (
        lambda w: (w.clear(), w.update({"layer2.se_res2block.0.conv.weight": torch.zeros(3)})),
        "ECAPA-TDNN",
    ),
    "CAM++": (lambda w: (w.clear(), w.update({"xvector.tdnn.weight": torch.zeros(3)})), r"CAM\+\+"),
    "nothing known": (
        lambda w: (w.clear(), w.update({"fc.weight": torch.zeros(3)})),
        r"fc\.weight",
    ),
    "empty": (lambda w: w.clear(), r"conv1\.weight"),
    "a layer too few": (lambda w: w.pop("layer3.2.bn1.bias"), r"layer3\.2\.bn1\.bias"),
    "a layer too many": (lambda w: w.update({"extra.weight": torch.zeros(1)}), r"extra\.weight"),
    "another shape": (
        lambda w: w.update({"layer1.1.conv1.weight": torch.zeros(4, 4, 5, 5)}),
        r"layer1\.1\.conv1\.weight",
    ),
    "not a number": (lambda w: w["bn1.bias"].fill_(torch.nan), r"bn1\.bias"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_cannot_be_imported_is_named(kind: str, tmp_path: Path) -> None:
    change, words = OTHERS[kind]
    weights = make_weights()
    change(weights)
    torch.save(weights, tmp_path / "avg_model.pt")
    with pytest.raises(ValueError, match=rf"(?s)avg_model\.pt.*{words}"):
        import_wespeaker(tmp_path / "avg_model.pt")


class Payload:
    """A pickle that would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["missing", "random bytes", "truncated", "payload", "number"])
def test_a_file_that_holds_no_weights_is_named(kind: str, tmp_path: Path) -> None:
    path, trace = tmp_path / "avg_model.pt", tmp_path / "executed"
    if kind == "random bytes":
        path.write_bytes(bytes(range(256)) * 9)
    elif kind == "truncated":
        torch.save(make_weights(), path)
        path.write_bytes(path.read_bytes()[:5000])
    elif kind == "payload":
        torch.save({"conv1.weight": Payload(trace)}, path)
    elif kind == "number":
        torch.save(3, path)
    with pytest.raises((ValueError, OSError), match=r"avg_model\.pt"):
        import_wespeaker(path)
    assert not trace.exists()
