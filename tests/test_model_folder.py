"""Laws of model folders: what is saved is loaded, and nothing that a folder holds is executed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import nn

from simple_spk.fbank import Fbank
from simple_spk.loss import SimPLELoss
from simple_spk.model_folder import load_model, save_model
from simple_spk.resnet import ResNet
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

Parts = tuple[Fbank, ResNet, SimPLELoss]

POLAR = {"form": "polar", "centred": True, "initial_length": 2.0, "hold_steps": 7}


def change_config(folder: Path, change: Callable[[dict], object]) -> None:
    """Rewrite config.yaml after a change to what it holds."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    change(config)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize(
    "similarity",
    [
        GeneralizedInnerProduct(0.3),
        GeneralizedInnerProduct(-0.123456, learnable=True),
        CosineSimilarity(),
    ],
    ids=["fixed", "learnable", "cosine"],
)
@pytest.mark.parametrize("output", [None, POLAR], ids=["cartesian", "polar"])
@torch.no_grad()
def test_a_loaded_model_answers_bit_by_bit_the_same(
    similarity: Similarity,
    output: dict | None,
    tmp_path: Path,
    stir: Callable[[nn.Module], nn.Module],
) -> None:
    torch.manual_seed(0)
    front_end = Fbank(num_mels=24, dither=0.5)
    encoder = stir(
        ResNet(24, width=4, blocks=(1, 2), stem_stride=2, embedding_dim=6, output=output)
    )
    encoder.output.at_step(100)
    save_model(tmp_path / "new" / "model", front_end, encoder, SimPLELoss(similarity))
    model = load_model(tmp_path / "new" / "model")
    front_end.eval(), encoder.eval()
    waveforms = 0.1 * torch.randn(3, 8000)
    expected = encoder(*front_end(waveforms))
    found = model.encoder(*model.front_end(waveforms))
    assert torch.equal(found, expected)
    assert torch.equal(model.similarity(found, found), similarity(expected, expected))


@pytest.mark.parametrize("bias", [-10.0, 0.0, 0.123456789])
def test_the_threshold_is_minus_the_bias_of_the_loss(
    bias: float, tiny_model: Parts, tmp_path: Path
) -> None:
    front_end, encoder, _ = tiny_model
    loss = SimPLELoss(initial_bias=bias)
    save_model(tmp_path, front_end, encoder, loss)
    assert load_model(tmp_path).threshold == -float(loss.bias.detach())


def test_a_loss_without_a_bias_gives_no_threshold(tiny_model: Parts, tmp_path: Path) -> None:
    loss = nn.Module()
    loss.similarity = GeneralizedInnerProduct()
    save_model(tmp_path, *tiny_model[:2], loss)
    assert load_model(tmp_path).threshold is None


def test_saving_again_replaces_the_model(model_folder: Path, tiny_model: Parts) -> None:
    front_end, encoder, loss = tiny_model
    nn.init.ones_(encoder.output.linear.bias)
    save_model(model_folder, front_end, encoder, loss)
    loaded: Any = load_model(model_folder).encoder
    assert torch.equal(loaded.output.linear.bias, encoder.output.linear.bias)
    assert {path.name for path in model_folder.iterdir()} == {"config.yaml", "model.safetensors"}


def test_a_loaded_model_is_for_use_not_for_training(model_folder: Path) -> None:
    model = load_model(model_folder)
    for part in (model.front_end, model.encoder, model.similarity):
        assert not any(module.training for module in part.modules())
        assert not any(parameter.requires_grad for parameter in part.parameters())


def test_a_part_that_a_folder_cannot_describe_raises(tiny_model: Parts, tmp_path: Path) -> None:
    front_end, _, loss = tiny_model
    with pytest.raises(ValueError, match=r"encoder.*Linear"):
        save_model(tmp_path / "model", front_end, nn.Linear(2, 2), loss)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors"])
def test_a_missing_file_is_named(name: str, model_folder: Path) -> None:
    (model_folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_model(model_folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors"])
def test_a_truncated_file_is_named(name: str, share: float, model_folder: Path) -> None:
    content = (model_folder / name).read_bytes()
    (model_folder / name).write_bytes(content[: int(share * (len(content) - 10))])
    with pytest.raises(ValueError, match=name):
        load_model(model_folder)


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors"])
def test_random_bytes_are_named(name: str, model_folder: Path) -> None:
    (model_folder / name).write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ValueError, match=name):
        load_model(model_folder)


# What is wrong: how to make it so, and a word that the message must have.
BAD_CONFIGS: dict[str, tuple[Callable[[dict], object], str]] = {
    "field that is unknown": (lambda c: c.update(extra=1), "extra"),
    "format of the future": (lambda c: c.update(format=2), "format"),
    "no format": (lambda c: c.pop("format"), "format"),
    "no encoder": (lambda c: c.pop("encoder"), "encoder"),
    "class that is unknown": (lambda c: c["encoder"].update({"class": "Linear"}), "Linear"),
    "class of Python": (lambda c: c["encoder"].update({"class": "os.system"}), r"os\.system"),
    "class that is no name": (lambda c: c["encoder"].update({"class": ["ResNet"]}), "encoder"),
    "class for another part": (
        lambda c: c["front_end"].update({"class": "CosineSimilarity", "arguments": {}}),
        "front_end",
    ),
    "field of a part": (lambda c: c["encoder"].update(extra=1), "encoder.*extra"),
    "no arguments": (lambda c: c["encoder"].update(arguments=None), "encoder"),
    "argument that is unknown": (lambda c: c["encoder"]["arguments"].update(depth=34), "depth"),
    "text for a number": (lambda c: c["encoder"]["arguments"].update(width="wide"), "encoder"),
    "negative width": (lambda c: c["encoder"]["arguments"].update(width=-1), "encoder"),
    "stride of zero": (lambda c: c["encoder"]["arguments"].update(stem_stride=0), "encoder"),
    "bias that is no cosine": (
        lambda c: c["similarity"]["arguments"].update(angular_bias=7.0),
        r"similarity.*7\.0",
    ),
    "parts that do not fit": (
        lambda c: c["front_end"]["arguments"].update(num_mels=40),
        "num_mels",
    ),
    "threshold of text": (lambda c: c.update(threshold="high"), "threshold"),
    "threshold that is not a number": (lambda c: c.update(threshold=float("nan")), "threshold"),
}


@pytest.mark.parametrize("mistake", BAD_CONFIGS)
def test_a_config_that_makes_no_sense_is_named(mistake: str, model_folder: Path) -> None:
    change, word = BAD_CONFIGS[mistake]
    change_config(model_folder, change)
    with pytest.raises(ValueError, match=rf"(?s)config\.yaml.*{word}"):
        load_model(model_folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.update({"encoder.conv1.weight": torch.zeros(5, 1, 3, 3)}),
        lambda w: w.pop("encoder.conv1.weight"),
        lambda w: w.update({"encoder.conv9.weight": torch.zeros(5)}),
        lambda w: w["encoder.conv1.weight"][0, 0, 0].fill_(torch.nan),
        lambda w: w["encoder.bn1.running_var"].fill_(torch.inf),
    ],
    ids=["wrong shape", "too few", "too many", "not a number", "infinite"],
)
def test_weights_that_do_not_fit_are_named(
    change: Callable[[dict], object], model_folder: Path
) -> None:
    weights = load_file(model_folder / "model.safetensors")
    change(weights)
    save_file(weights, model_folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"(?s)model\.safetensors.*(conv[19]|bn1)\."):
        load_model(model_folder)


@pytest.mark.parametrize(
    "payload",
    [
        "!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{}']]",
        "!!python/object/apply:os.system ['touch {}']",
        "!!python/object/new:os.system ['touch {}']",
        "!apply:os.system ['touch {}']",
        "!new:simple_spk.resnet.ResNet {{}}",
    ],
)
@pytest.mark.parametrize("place", ["top", "arguments"])
def test_a_payload_executes_nothing(
    place: str, payload: str, model_folder: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "executed"
    config = (model_folder / "config.yaml").read_text()
    filled = payload.format(trace)
    if place == "top":
        config = f"payload: {filled}\n{config}"
    else:
        config = config.replace("    num_mels:", f"    payload: {filled}\n    num_mels:", 1)
    assert filled in config
    (model_folder / "config.yaml").write_text(config)
    with pytest.raises(ValueError, match=r"config\.yaml"):
        load_model(model_folder)
    assert not trace.exists()
