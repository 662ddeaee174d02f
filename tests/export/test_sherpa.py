"""Laws of exports for sherpa-onnx: with its own front end, it computes our embeddings."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml
from numpy.typing import NDArray
from torch import nn

from simple_spk.cli.main import main
from simple_spk.export.onnx import relative_difference
from simple_spk.export.sherpa import check_sherpa, export_sherpa
from simple_spk.inference.model import Model
from simple_spk.inference.model_folder import load_model, save_model
from simple_spk.models.decibel_fbank import DecibelFbank
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import GeneralizedInnerProduct

sherpa_onnx = pytest.importorskip("sherpa_onnx", reason="pip install -e '.[sherpa]'")
pytest.importorskip("onnxscript", reason="pip install -e '.[sherpa]'")

POLAR = {"form": "polar", "centered": True, "initial_length": 2.0, "minimum_length": 0.5}
Stir = Callable[[nn.Module], nn.Module]


def small_model(front_end: Fbank, stir: Stir) -> Model:
    torch.manual_seed(0)
    encoder = stir(ResNet(width=4, blocks=(1, 1), stem_stride=2, embedding_dim=16, output=POLAR))
    return Model(front_end, encoder, GeneralizedInnerProduct(0.25), threshold=1.5).frozen()


@pytest.fixture(scope="module")
def model(stir: Stir) -> Model:
    return small_model(Fbank(highest_hertz=7600.0), stir)


@pytest.fixture(scope="module")
def export(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "sherpa"
    export_sherpa(folder, model)
    return folder


def embed_by_sherpa(folder: Path, waveforms: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Embeddings by a program that follows config.yaml."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    settings = sherpa_onnx.SpeakerEmbeddingExtractorConfig(model=str(folder / "sherpa.onnx"))
    extractor = sherpa_onnx.SpeakerEmbeddingExtractor(settings)
    assert extractor.dim == config["embedding_dim"]
    embeddings = []
    for waveform in waveforms:
        stream = extractor.create_stream()
        padded = np.pad(waveform, (config["leading_zeros"], 0))
        stream.accept_waveform(config["sample_rate"], padded)
        embeddings.append(extractor.compute(stream))
    return np.array(embeddings)


def embed(model: Model, waveforms: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    with torch.no_grad():
        rows = [model.encoder(*model.front_end(torch.from_numpy(w)[None])) for w in waveforms]
    return torch.cat(rows).double().numpy()


def test_synthetic_recordings(
    export: Path, model: Model, noisy_tone: Callable[..., NDArray[np.float32]]
) -> None:
    """Lengths around whole frames, and digital silence, where the energy of dither matters."""
    waveforms = [noisy_tone(s, seed=n) for n, s in enumerate((0.1, 1.0, 1.0049, 1.005, 2.3))]
    waveforms[-1][8000:16000] = 0.0
    found, expected = embed_by_sherpa(export, waveforms), embed(model, waveforms)
    assert relative_difference(found, expected) < 1e-3  # of directions and lengths
    similarity = GeneralizedInnerProduct(0.25)
    scores = [similarity(torch.tensor(x), torch.tensor(x)) for x in (found, expected)]
    torch.testing.assert_close(*scores, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("full_scale", [1.0, 32768.0])
def test_other_scales_and_rates(full_scale: float, stir: Stir, tmp_path: Path) -> None:
    front_end = Fbank(8000, highest_hertz=3600.0, full_scale=full_scale, mean_normalization=False)
    export_sherpa(tmp_path / "sherpa", small_model(front_end, stir))
    assert check_sherpa(tmp_path / "sherpa") < 1e-3


@pytest.mark.parametrize(
    ("front_end", "words"),
    [
        (Fbank(), "highest_hertz is None, not 7600"),
        (Fbank(highest_hertz=7600.0, window="hamming"), "window is hamming"),
        (Fbank(num_mels=40, highest_hertz=7600.0), "num_mels is 40"),
        (Fbank(highest_hertz=7600.0, full_scale=2.0), "full_scale is 2.0"),
        (DecibelFbank(), "DecibelFbank"),
    ],
)
def test_features_that_sherpa_cannot_compute(
    front_end: Fbank, words: str, stir: Stir, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"{words}.*--format onnx"):
        export_sherpa(tmp_path / "sherpa", small_model(front_end, stir))
    assert not (tmp_path / "sherpa").exists()


def test_command(model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "model", model)
    target = tmp_path / "sherpa"
    assert main(["export", str(tmp_path / "model"), str(target), "--format", "sherpa"]) == 0
    assert "equal to PyTorch's" in capsys.readouterr().out
    config = yaml.safe_load((target / "config.yaml").read_text())
    assert config["similarity"] == {"class": "GeneralizedInnerProduct", "angular_bias": 0.25}
    from safetensors.numpy import load_file, save_file

    parity = load_file(target / "parity.safetensors")
    save_file(parity | {"embeddings": 1.01 * parity["embeddings"]}, target / "parity.safetensors")
    assert main(["export", "--check", str(target)]) == 1


def test_real_recordings(tmp_path: Path) -> None:
    """With the weights of the built-in model, whose own features reach higher."""
    if not os.environ.get("SIMPLE_SPK_DATA"):
        pytest.skip("set SIMPLE_SPK_DATA to a folder with real speech (speech/manifest.csv)")
    paths = sorted((Path(os.environ["SIMPLE_SPK_DATA"]) / "speech").rglob("*.ogg"))[::97][:24]
    builtin = load_model(Path(__file__).parents[2] / "simple_spk" / "builtin_model")
    model = builtin._replace(front_end=Fbank(highest_hertz=7600.0).eval())
    waveforms = [soundfile.read(path, dtype="float32")[0] for path in paths]
    export_sherpa(tmp_path / "sherpa", model)
    found, expected = embed_by_sherpa(tmp_path / "sherpa", waveforms), embed(model, waveforms)
    assert relative_difference(found, expected) < 1e-3
