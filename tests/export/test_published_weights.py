"""Published weights have the embeddings of their own toolkits on real recordings.

They are read from the folder SIMPLE_SPK_WEIGHTS, which holds what there is of these:
    speechbrain/    the folder of speechbrain/spkrec-ecapa-voxceleb
    3dspeaker.pt    a CAM++ of 3D-Speaker; its own code is the package speakerlab
    wespeaker.onnx  a ResNet-34 of WeSpeaker as ONNX, from features to embeddings
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from torch import Tensor
from torchaudio.compliance import kaldi

from simple_spk.cli.main import main
from simple_spk.inference.model import Model
from simple_spk.inference.model_folder import load_model

LEAST_COSINE = 0.9999
RECORDINGS = 24


def weights(name: str) -> Path:
    """A file or folder of SIMPLE_SPK_WEIGHTS; skips the test without it."""
    path = Path(os.environ.get("SIMPLE_SPK_WEIGHTS", "")) / name
    if not os.environ.get("SIMPLE_SPK_WEIGHTS") or not path.exists():
        pytest.skip(f"set SIMPLE_SPK_WEIGHTS to a folder with {name}")
    return path


@pytest.fixture(scope="module")
def speech() -> list[Tensor]:
    """Waveforms (1, samples) of real recordings."""
    if not os.environ.get("SIMPLE_SPK_DATA"):
        pytest.skip("set SIMPLE_SPK_DATA to a folder with real speech (speech/manifest.csv)")
    paths = sorted((Path(os.environ["SIMPLE_SPK_DATA"]) / "speech").rglob("*.ogg"))
    chosen = paths[:: len(paths) // RECORDINGS][:RECORDINGS]
    return [torch.from_numpy(soundfile.read(path, dtype="float32")[0])[None] for path in chosen]


@torch.no_grad()
def check(model: Model, theirs: Callable[[Tensor], Tensor], speech: list[Tensor]) -> None:
    """Cosines with their embeddings alone, and with our own in a padded batch, are near 1."""
    lengths = torch.tensor([waveform.shape[1] for waveform in speech[:4]])
    batch = torch.full((4, int(lengths.max()) + 999), 0.1)
    for row, waveform in zip(batch, speech, strict=False):
        row[: waveform.shape[1]] = waveform
    ours = torch.cat([model.encoder(*model.front_end(waveform)) for waveform in speech])
    cosines = torch.cosine_similarity(ours, torch.stack([theirs(one) for one in speech]))
    padded = torch.cosine_similarity(ours[:4], model.encoder(*model.front_end(batch, lengths)))
    print(f"\nleast cosine of {len(speech)}: {cosines.min():.8f}, padded {padded.min():.8f}")
    assert cosines.min() > LEAST_COSINE
    assert padded.min() > 1.0 - 1e-6


def imported(origin: str, source: Path, target: Path) -> Model:
    """The model of the folder that simple-spk export writes."""
    assert main(["export", "--from", origin, str(source), str(target)]) == 0
    return load_model(target)


def test_ecapa_of_speechbrain(speech: list[Tensor], tmp_path: Path) -> None:
    source = weights("speechbrain")
    from speechbrain.inference.classifiers import EncoderClassifier

    settings = (source / "hyperparams.yaml").read_text()
    # Only the encoder and its features are compared; paths in the file lead to the Hub.
    settings = settings.partition("\nclassifier:")[0] + (
        "\nmodules:\n    compute_features: !ref <compute_features>\n"
        "    mean_var_norm: !ref <mean_var_norm>\n    embedding_model: !ref <embedding_model>\n"
        "pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer\n"
        "    loadables:\n        embedding_model: !ref <embedding_model>\n"
    )
    (tmp_path / "source").mkdir()
    (tmp_path / "source/hyperparams.yaml").write_text(settings)
    (tmp_path / "source/embedding_model.ckpt").symlink_to(source / "embedding_model.ckpt")
    original: Any = EncoderClassifier.from_hparams(
        source=str(tmp_path / "source"), savedir=str(tmp_path / "saved")
    )
    model = imported("speechbrain", source, tmp_path / "model")
    check(model, lambda waveform: original.encode_batch(waveform)[0, 0], speech)


def test_cam_plus_plus_of_3d_speaker(speech: list[Tensor], tmp_path: Path) -> None:
    source = weights("3dspeaker.pt")
    pytest.importorskip("speakerlab", reason="3D-Speaker's own code: pip install speakerlab")
    from speakerlab.models.campplus.DTDNN import CAMPPlus

    tensors = torch.load(source, weights_only=True)
    original = CAMPPlus(embedding_size=len(tensors["xvector.dense.linear.weight"]))
    original.load_state_dict(tensors)
    original.eval()

    def theirs(waveform: Tensor) -> Tensor:
        features = kaldi.fbank(waveform, num_mel_bins=80, sample_frequency=16000, dither=0.0)
        return original((features - features.mean(dim=0))[None])[0]

    check(imported("3dspeaker", source, tmp_path / "model"), theirs, speech)


def test_resnet_of_wespeaker(speech: list[Tensor], tmp_path: Path) -> None:
    source = weights("wespeaker.onnx")
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install -e '.[onnx]'")
    session = onnxruntime.InferenceSession(str(source))
    names = [one.name for one in session.get_inputs()]

    def theirs(waveform: Tensor) -> Tensor:
        features = kaldi.fbank(
            waveform * 2**15, num_mel_bins=80, window_type="hamming", dither=0.0, use_energy=False
        )
        features = (features - features.mean(dim=0))[None]
        inputs = [features.numpy(), torch.ones(features.shape[:2]).numpy()]  # some take weights
        return torch.from_numpy(session.run(None, dict(zip(names, inputs, strict=False)))[0][0])

    check(imported("wespeaker", source, tmp_path / "model"), theirs, speech)
