"""Laws of ONNX exports: a runtime's embeddings are PyTorch's, in any batch, with any padding."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from simple_spk.evaluation.quality_measures import DURATION, TYPICALITY
from simple_spk.export.onnx import (
    WaveformEncoder,
    check_onnx,
    export_onnx,
    relative_difference,
)
from simple_spk.inference.model import Model
from simple_spk.inference.voice_stores.voice import MEASURES
from simple_spk.models.fbank import Fbank, Window
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import GeneralizedInnerProduct

onnx = pytest.importorskip("onnx", reason="pip install -e '.[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install -e '.[onnx]'")
pytest.importorskip("onnxscript", reason="pip install -e '.[onnx]'")

POLAR = {"form": "polar", "centered": True, "initial_length": 2.0, "minimum_length": 0.5}


@pytest.fixture(scope="module")
def model(stir: Callable[[nn.Module], nn.Module]) -> Model:
    """A model with every kind of layer; without dither, the quietest sounds matter, too."""
    torch.manual_seed(0)
    front_end = Fbank(dither=0.0, window="hamming").eval()
    encoder = stir(ResNet(width=8, blocks=(1, 1, 1, 1), stem_stride=2, output=POLAR)).eval()
    encoder.requires_grad_(False)
    return Model(front_end, encoder, GeneralizedInnerProduct(0.25), threshold=1.5)


@pytest.fixture(scope="module")
def export(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``model`` was exported to."""
    folder = tmp_path_factory.mktemp("export") / "onnx"
    export_onnx(folder, model)
    return folder


Run = Callable[..., NDArray[np.float32]]


@pytest.fixture(scope="module")
def run(export: Path) -> Run:
    """Embeddings of the runtime."""
    session = onnxruntime.InferenceSession(str(export / "model.onnx"))

    def embed(waveforms: NDArray[np.float32], lengths: list[int]) -> NDArray[np.float32]:
        inputs = {"waveforms": waveforms, "lengths": np.array(lengths)}
        return session.run(["embeddings"], inputs)[0]

    return embed


def expected(model: Model, waveform: NDArray[np.float32]) -> NDArray[np.float32]:
    """The embedding (dim,) of one recording, alone and without padding, by PyTorch."""
    with torch.no_grad():
        return model.encoder(*model.front_end(torch.from_numpy(waveform)[None]))[0].numpy()


def padded(waveforms: list[NDArray[np.float32]], samples: int) -> NDArray[np.float32]:
    """Waveforms in rows, behind whose ends is a noise that must not matter."""
    noise = np.random.default_rng(5).standard_normal((len(waveforms), samples))
    batch = noise.astype(np.float32)
    for row, waveform in zip(batch, waveforms, strict=True):
        row[: len(waveform)] = waveform
    return batch


@pytest.mark.parametrize("seconds", [0.025, 0.031, 0.5, 1.0, 4.999])
def test_one_recording(
    seconds: float, model: Model, run: Run, noisy_tone: Callable[..., NDArray[np.float32]]
) -> None:
    waveform = noisy_tone(seconds, seed=3)
    found = run(waveform[None], [len(waveform)])[0]
    assert relative_difference(found, expected(model, waveform)) < 1e-5


def test_padding_has_no_effect(
    model: Model, run: Run, noisy_tone: Callable[..., NDArray[np.float32]]
) -> None:
    waveforms = [noisy_tone(s, seed=n) for n, s in enumerate((1.3, 0.6, 0.0251, 0.5, 1.29))]
    lengths = [len(waveform) for waveform in waveforms]
    for samples in (max(lengths), 30000):
        found = run(padded(waveforms, samples), lengths)
        for row, waveform in zip(found, waveforms, strict=True):
            assert relative_difference(row, expected(model, waveform)) < 1e-5


def test_quiet_parts_of_a_spectrum_keep_their_digits(model: Model, run: Run) -> None:
    """Single precision would drown in rounding what lies beside a loud pure tone."""
    tone = 0.9 * np.sin(2 * np.pi * 440.0 * np.arange(16000) / 16000)
    waveform = tone.astype(np.float32)
    found = run(waveform[None], [len(waveform)])[0]
    assert relative_difference(found, expected(model, waveform)) < 1e-3


@pytest.mark.parametrize("window", ["povey", "hamming"])
@pytest.mark.parametrize(("sample_rate", "dither"), [(16000, 0.0), (16000, 1.0), (8000, 1.0)])
def test_the_front_end_as_a_matrix_equals_itself(
    window: Window, sample_rate: int, dither: float
) -> None:
    torch.manual_seed(0)
    front_end = Fbank(sample_rate, dither=dither, window=window).eval()
    waveforms, lengths = 0.1 * torch.randn(3, 9999), torch.tensor([9999, 4000, 401])
    found = WaveformEncoder(front_end, Features())(waveforms, lengths)
    torch.testing.assert_close(found, front_end(waveforms, lengths)[0], rtol=0.0, atol=1e-4)


class Features(nn.Module):
    """An encoder that hands on what it is given."""

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        return features


def test_the_folder_says_how_to_use_it(export: Path, model: Model) -> None:
    config = yaml.safe_load((export / "config.yaml").read_text())
    assert config["sample_rate"] == 16000
    assert config["embedding_dim"] == 256
    assert config["similarity"] == {"class": "GeneralizedInnerProduct", "angular_bias": 0.25}
    assert config["threshold"] == 1.5
    assert {p.name for p in export.iterdir()} == {"model.onnx", "config.yaml", "parity.safetensors"}


def test_the_folder_explains_every_measure_of_a_calibration(export: Path) -> None:
    lines = (export / "config.yaml").read_text().splitlines()
    comments = " ".join(line for line in lines if line.startswith("#"))
    missing = {name for name in (*MEASURES, DURATION, TYPICALITY) if name not in comments}
    assert not missing


def test_the_stored_check_passes(export: Path) -> None:
    assert check_onnx(export) < 1e-5


def test_the_stored_check_finds_a_graph_that_is_off(export: Path, tmp_path: Path) -> None:
    """By one layer that is a little off, as a lossy conversion might leave it."""
    shutil.copytree(export, tmp_path / "export")
    graph = onnx.load(export / "model.onnx")
    (bias,) = (i for i in graph.graph.initializer if i.name == "encoder.output.linear.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(numpy_array(bias) + 0.02, bias.name))
    onnx.save(graph, tmp_path / "export" / "model.onnx")
    assert check_onnx(tmp_path / "export") > 1e-3


def numpy_array(initializer: Any) -> NDArray[np.float32]:
    return onnx.numpy_helper.to_array(initializer)


@pytest.mark.parametrize("name", ["model.onnx", "parity.safetensors"])
@pytest.mark.parametrize("share", [None, 0.0, 0.3])
def test_a_damaged_export_is_named(
    name: str, share: float | None, export: Path, tmp_path: Path
) -> None:
    shutil.copytree(export, tmp_path, dirs_exist_ok=True)
    if share is None:
        (tmp_path / name).unlink()
    else:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises((ValueError, OSError), match=name):
        check_onnx(tmp_path)


def test_embeddings_that_are_no_numbers_differ_infinitely() -> None:
    assert relative_difference(np.array([[np.nan, 1.0]]), np.ones((1, 2))) == np.inf
    assert relative_difference(np.ones((1, 2)), np.zeros((1, 2))) == np.inf


def test_real_recordings(model: Model, run: Run) -> None:
    """Half a second to thirty, alone and in padded batches."""
    if not os.environ.get("SIMPLE_SPK_DATA"):
        pytest.skip("set SIMPLE_SPK_DATA to a folder with real speech (speech/manifest.csv)")
    folder = Path(os.environ["SIMPLE_SPK_DATA"]) / "speech"
    paths = sorted(folder.rglob("*.ogg"))[::97][:24]
    speech = np.concatenate([soundfile.read(path, dtype="float32")[0] for path in paths])
    generator = np.random.default_rng(0)
    lengths = (16000 * np.geomspace(0.5, 30.0, 12)).astype(int)
    starts = generator.integers(0, len(speech) - lengths)
    waveforms = [speech[s : s + n] for s, n in zip(starts, lengths, strict=True)]
    references = np.stack([expected(model, waveform) for waveform in waveforms])
    alone = np.concatenate([run(waveform[None], [len(waveform)]) for waveform in waveforms])
    assert relative_difference(alone, references) < 1e-4
    together = run(padded(waveforms, max(lengths)), list(lengths))
    assert relative_difference(together, references) < 1e-4
