"""The checkpoint of a run to export: the newest that is whole, also of version 0.1."""

from pathlib import Path

import pytest
import torch

from simple_spk.export.training_run import find_model, load_trained
from simple_spk.inference.model_folder import load_model
from simple_spk.io.atomic_file import seal_folder
from simple_spk.losses.margin import SoftmaxLoss
from simple_spk.losses.quality_aware import AdaFaceLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.losses.warm_start import WarmStartLoss
from simple_spk.models.resnet import ResNet
from simple_spk.models.saved_arguments import NAMES_BEFORE_FORMAT_3, renamed
from simple_spk.models.similarity import GeneralizedInnerProduct

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


@pytest.mark.parametrize("is_held", [False, True])
def test_a_checkpoint_of_version_0_1(is_held: bool, tmp_path: Path) -> None:
    model = load_model(OLD_MODEL)
    checkpoint = tmp_path / "checkpoints" / "CKPT+1"
    checkpoint.mkdir(parents=True)
    (tmp_path / "hyperparams.yaml").write_text(OLD_SETTINGS)
    (checkpoint / "CKPT.yaml").write_text("unixtime: 1.0\n")
    weights = renamed(model.encoder.state_dict(), NAMES_BEFORE_FORMAT_3)
    weights["output.length_is_held"] = torch.tensor(is_held)
    assert any("centring" in name for name in weights)
    torch.save(weights, checkpoint / "encoder.ckpt")
    similarity = model.similarity.state_dict(prefix="similarity.")
    torch.save({**similarity, "bias": torch.tensor(-0.5)}, checkpoint / "loss.ckpt")
    found = load_trained(find_model(tmp_path))
    features = torch.randn(3, 60, 24)
    expected, answer = model.encoder(features), found.encoder(features)
    if is_held:
        expected = 2.0 * torch.nn.functional.normalize(expected, dim=1)
    torch.testing.assert_close(answer, expected)
    assert found.threshold == 0.5 and not found.encoder.training
    assert torch.equal(found.similarity.angular_bias, model.similarity.angular_bias)


@pytest.mark.parametrize("loss", ["softmax", "AdaFace", "warm start"])
def test_an_unfinished_run_with_class_vectors(loss: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = ResNet(num_mels=24, width=4, blocks=(1, 1), embedding_dim=8)
    cls = AdaFaceLoss if loss == "AdaFace" else SoftmaxLoss
    module: torch.nn.Module = cls(8, 5)
    text = f"!new:{cls.__module__}.{cls.__name__} {{embedding_dim: 8, num_classes: 5}}"
    if loss == "warm start":
        simple = SimPLELoss(GeneralizedInnerProduct(0.7), initial_bias=2.0)
        module = WarmStartLoss(SoftmaxLoss(8, 5), simple, steps=3)
        text = f"""!new:simple_spk.losses.warm_start.WarmStartLoss
    first: {text}
    then: !new:simple_spk.losses.simple.SimPLELoss
        similarity: !new:simple_spk.models.similarity.GeneralizedInnerProduct {{angular_bias: 0.7}}
    steps: 3"""
    (tmp_path / "hyperparams.yaml").write_text(f"""
front_end: !new:simple_spk.models.fbank.Fbank {{num_mels: 24}}
encoder: !new:simple_spk.models.resnet.ResNet
    {{num_mels: 24, width: 4, blocks: [1, 1], embedding_dim: 8}}
loss: {text}
""")
    checkpoint = tmp_path / "checkpoints" / "CKPT+1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "CKPT.yaml").write_text("unixtime: 1.0\n")
    torch.save(encoder.state_dict(), checkpoint / "encoder.ckpt")
    torch.save(module.state_dict(), checkpoint / "loss.ckpt")
    found = load_trained(find_model(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(found.similarity(x, x), module.similarity(x, x))
    assert found.threshold == (-2.0 if loss == "warm start" else None)
    features = torch.randn(2, 60, 24)
    assert torch.equal(found.encoder(features), encoder.eval()(features))
