"""The checkpoint of a run to export: the newest that is whole, also of version 0.1."""

from pathlib import Path

import pytest
import torch

from simple_spk.export.training_run import find_model, load_trained
from simple_spk.inference.model import embedding_fingerprint
from simple_spk.inference.model_folder import load_model
from simple_spk.io.atomic_file import seal_folder
from simple_spk.models.saved_arguments import NAMES_BEFORE_FORMAT_3, renamed

OLD_MODEL = Path(__file__).parents[1] / "inference" / "version_0_1"
OLD_SETTINGS = """\
front_end: !new:simple_spk.fbank.Fbank
    num_mels: 24
    dither: 0.5
    mean_normalisation: true
    window: hamming
encoder: !new:simple_spk.resnet.ResNet
    num_mels: 24
    width: 4
    blocks: [1, 1]
    stem_stride: 2
    embedding_dim: 8
    output: {form: polar, centred: true, initial_length: 2.0, hold_steps: 7, minimum_length: 0.5,
             hidden_dim: 8}
loss: !new:simple_spk.loss.SimPLELoss
    similarity: !new:simple_spk.similarity.GeneralizedInnerProduct {learnable: true}
"""


def test_damaged_checkpoints_are_not_exported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older, newest = (tmp_path / "checkpoints" / f"CKPT+{number}" for number in (1, 2))
    for step, checkpoint in enumerate((older, newest)):
        checkpoint.mkdir(parents=True)
        (checkpoint / "CKPT.yaml").write_text(f"unixtime: 1.0\nprogress: [1, {step}]\n")
        (checkpoint / "encoder.ckpt").write_bytes(b"weights")
        seal_folder(checkpoint)
    assert find_model(tmp_path) == newest
    (newest / "encoder.ckpt").write_bytes(b"weightz")
    assert find_model(tmp_path) == older
    assert "CKPT+2 is damaged and ignored: the content of encoder.ckpt has changed" in caplog.text
    with pytest.raises(ValueError, match=r"CKPT\+2 is damaged .*name an older checkpoint"):
        find_model(newest)
    (older / "encoder.ckpt").unlink()
    with pytest.raises(ValueError, match=r"all 2 checkpoints of .* are damaged"):
        find_model(tmp_path)


def test_a_checkpoint_of_version_0_1(tmp_path: Path) -> None:
    model = load_model(OLD_MODEL)
    checkpoint = tmp_path / "checkpoints" / "CKPT+1"
    checkpoint.mkdir(parents=True)
    (tmp_path / "hyperparams.yaml").write_text(OLD_SETTINGS)
    (checkpoint / "CKPT.yaml").write_text("unixtime: 1.0\n")
    weights = renamed(model.encoder.state_dict(), NAMES_BEFORE_FORMAT_3)
    assert any("centring" in name for name in weights)
    torch.save(weights, checkpoint / "encoder.ckpt")
    similarity = model.similarity.state_dict(prefix="similarity.")
    torch.save({**similarity, "bias": torch.tensor(-0.5)}, checkpoint / "loss.ckpt")
    found = load_trained(find_model(tmp_path))
    assert embedding_fingerprint(found) == embedding_fingerprint(model)
    assert found.threshold == 0.5 and not found.encoder.training
    assert torch.equal(found.similarity.angular_bias, model.similarity.angular_bias)
