"""Laws of model folders: what is saved is loaded, and nothing that a folder holds is executed."""

import pickle
import time
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import nn

from simple_spk import __version__
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.ratio_spread import Spread
from simple_spk.inference.model import embedding_fingerprint, trained_model
from simple_spk.inference.model_folder import LIMITS, PARTS, load_model, save_model
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

Parts = tuple[Fbank, ResNet, SimPLELoss]

POLAR = {"form": "polar", "centered": True, "initial_length": 2.0}
LOG_POLAR = {"form": "log_polar", "centered": True, "initial_length": 2.0}


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
@pytest.mark.parametrize(
    "output", [None, POLAR, LOG_POLAR], ids=["cartesian", "polar", "log_polar"]
)
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
    save_model(
        tmp_path / "new" / "model", trained_model(front_end, encoder, SimPLELoss(similarity))
    )
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
    save_model(tmp_path, trained_model(front_end, encoder, loss))
    assert load_model(tmp_path).threshold == -float(loss.bias.detach())


def test_a_loss_without_a_bias_gives_no_threshold(tiny_model: Parts, tmp_path: Path) -> None:
    loss = nn.Module()
    loss.similarity = GeneralizedInnerProduct()
    save_model(tmp_path, trained_model(*tiny_model[:2], loss))
    assert load_model(tmp_path).threshold is None


def test_saving_again_replaces_the_model(model_folder: Path, tiny_model: Parts) -> None:
    front_end, encoder, loss = tiny_model
    nn.init.ones_(encoder.output.linear.bias)
    save_model(model_folder, trained_model(front_end, encoder, loss))
    loaded: Any = load_model(model_folder).encoder
    assert torch.equal(loaded.output.linear.bias, encoder.output.linear.bias)
    names = {"config.yaml", "model.safetensors", "README.md"}
    assert {path.name for path in model_folder.iterdir()} == names


def test_a_loaded_model_is_for_use_not_for_training(model_folder: Path) -> None:
    model = load_model(model_folder)
    for part in (model.front_end, model.encoder, model.similarity):
        assert not any(module.training for module in part.modules())
        assert not any(parameter.requires_grad for parameter in part.parameters())


def test_a_part_that_a_folder_cannot_describe_raises(tiny_model: Parts, tmp_path: Path) -> None:
    front_end, _, loss = tiny_model
    with pytest.raises(ValueError, match=r"encoder.*Linear"):
        save_model(tmp_path / "model", trained_model(front_end, nn.Linear(2, 2), loss))
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
    "format of the future": (lambda c: c.update(format=5), "format"),
    "no format": (lambda c: c.pop("format"), "format"),
    "no encoder": (lambda c: c.pop("encoder"), "encoder"),
    "no calibration": (lambda c: c.pop("calibration"), "calibration"),
    "calibration of another version": (
        lambda c: c.update(calibration={"calibration_version": 1}),
        "calibration.*version",
    ),
    "version that is a number": (lambda c: c.update(made_with=0.1), "made_with"),
    "data that is a list": (lambda c: c.update(training_data=["VoxCeleb"]), "training_data"),
    "truth for a width": (lambda c: c["encoder"]["arguments"].update(width=True), "width"),
    "text for a truth": (
        lambda c: c["front_end"]["arguments"].update(mean_normalization="false"),
        "mean_normalization",
    ),
    "width of a billion": (lambda c: c["encoder"]["arguments"].update(width=10**9), "width"),
    "size of a googol": (lambda c: c["encoder"]["arguments"].update(embedding_dim=10**100), "huge"),
    "million blocks": (lambda c: c["encoder"]["arguments"].update(blocks=[10**6]), "blocks"),
    "million stages": (lambda c: c["encoder"]["arguments"].update(blocks=[1] * 9999), "blocks"),
    "hour of a frame": (
        lambda c: c["front_end"]["arguments"].update(frame_milliseconds=3.6e6),
        "frame_milliseconds",
    ),
    "output that is unknown": (
        lambda c: c["encoder"]["arguments"].update(output={"form": "round"}),
        "output.*form.*round",
    ),
    "output of another size": (
        lambda c: c["encoder"]["arguments"].update(output={"input_dim": 3}),
        "encoder.*input_dim",
    ),
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
    "threshold that is true": (lambda c: c.update(threshold=True), "threshold"),
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
        lambda w: w["encoder.bn1.running_var"].fill_(-1.0),
        lambda w: w.update({"encoder.bn1.weight": w["encoder.bn1.weight"].double()}),
        lambda w: w.update({"encoder.bn1.num_batches_tracked": torch.tensor(1.0)}),
    ],
    ids=[
        *("wrong shape", "too few", "too many", "not a number", "infinite"),
        *("negative variance", "doubles", "a float for a count"),
    ],
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
        "!new:simple_spk.models.resnet.ResNet {{}}",
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


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors"])
def test_a_pickle_executes_nothing(name: str, model_folder: Path, tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "executed",))

    (model_folder / name).write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match=name):
        load_model(model_folder)
    torch.save(Payload(), model_folder / name)
    with pytest.raises(ValueError, match=name):
        load_model(model_folder)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["a0: &a0 [x]", *(f"a{i + 1}: &a{i + 1} [{f'*a{i}, ' * 9}]" for i in range(99))]),
        "a: &a [*a]",
        "threshold: 2.0\nthreshold: 3.0",
        "[" * 50_000,
        "a: " * 100_000,
        "when: 2020-99-99",
        "number: !!int ''",
    ],
    ids=["billion laughs", "circle", "doubled key", "deep", "long", "no date", "no number"],
)
def test_yaml_that_is_more_than_data_is_refused_at_once(text: str, model_folder: Path) -> None:
    (model_folder / "config.yaml").write_text(text)
    started = time.process_time()
    with pytest.raises(ValueError, match=r"config\.yaml"):
        load_model(model_folder)
    assert time.process_time() - started < 10.0


def test_a_large_model_without_weights_takes_neither_time_nor_memory(model_folder: Path) -> None:
    """300 GB if it were built before its weights are looked at."""
    sizes = {"width": 4096, "blocks": [2, 2, 2, 2], "embedding_dim": 65536}
    change_config(model_folder, lambda c: c["encoder"]["arguments"].update(sizes))
    with pytest.raises(ValueError, match=r"model\.safetensors does not fit"):
        load_model(model_folder)


def test_every_number_that_a_folder_may_name_has_limits() -> None:
    classes = [cls for group in PARTS.values() for cls in group]
    for cls in (*classes, EmbeddingHead):
        constructor: Any = cls.__init__
        for name, hint in typing.get_type_hints(constructor).items():
            text = str(hint)
            if name != "input_dim" and ("int" in text or "float" in text):
                assert name in LIMITS, f"{cls.__name__}: {name}"


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors"])
def test_what_is_no_file_is_refused_and_a_link_to_one_is_as_good(
    name: str, model_folder: Path, tmp_path: Path
) -> None:
    moved = (model_folder / name).rename(tmp_path / name)
    (model_folder / name).symlink_to(moved)  # as in a cache of downloads
    load_model(model_folder)
    for target in (tmp_path / "nowhere", tmp_path, Path("/dev/zero")):
        (model_folder / name).unlink()
        (model_folder / name).symlink_to(target)
        with pytest.raises(OSError, match=name):
            load_model(model_folder)


@torch.no_grad()
def test_half_precision_halves_the_file_and_changes_little(
    tiny_model: Parts, model_folder: Path, tmp_path: Path
) -> None:
    model = trained_model(*tiny_model)
    save_model(tmp_path / "half", model, half_precision=True)
    half = load_model(tmp_path / "half")
    assert all(p.dtype in (torch.float32, torch.bool) for p in half.encoder.parameters())
    sizes = [(f / "model.safetensors").stat().st_size for f in (tmp_path / "half", model_folder)]
    assert sizes[0] < 0.65 * sizes[1]
    waveforms = 0.1 * torch.randn(3, 8000, generator=torch.Generator().manual_seed(0))
    expected = model.encoder(*model.front_end(waveforms))
    found = half.encoder(*half.front_end(waveforms))
    assert (found - expected).norm() < 5e-3 * expected.norm()
    nn.init.constant_(tiny_model[1].output.linear.weight, 1e5)
    with pytest.raises(ValueError, match=r"linear\.weight.*16-bit"):
        save_model(tmp_path / "half", model, half_precision=True)


def test_weights_that_overflow_together_are_refused(tiny_model: Parts, tmp_path: Path) -> None:
    for block in tiny_model[1].layer1:
        nn.init.constant_(block.conv1.weight, 1e30)
    save_model(tmp_path, trained_model(*tiny_model))
    with pytest.raises(ValueError, match="not numbers"):
        load_model(tmp_path)


def test_calibration_and_origin_are_kept(tiny_model: Parts, tmp_path: Path) -> None:
    spread = Spread({"least_log_duration": 1.5}, {}, ((0.1, 1.25), (0.01, 3.5)), 94)
    calibration = Calibration(2.0, -1.0, {"least_log_duration": 0.5}, 0.01, "list", 99, 5)
    means = {"least_log_duration": 1.0}
    calibration = replace(calibration, nontarget_spread=spread, quality_means=means)
    model = trained_model(*tiny_model)._replace(
        calibration=calibration, training_data="Hörspiele: ten of them\nand more"
    )
    save_model(tmp_path, model)
    loaded = load_model(tmp_path)
    assert loaded.calibration == calibration
    assert loaded.training_data == model.training_data
    config = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))
    assert config["made_with"] == f"simple_spk {__version__}"
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Hörspiele" in card and "No figures" in card and "list" in card
    save_model(tmp_path, model, card="# Mine\n")
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


def test_a_fingerprint_tells_models_apart_that_embed_differently(
    tiny_model: Parts, model_folder: Path
) -> None:
    model = trained_model(*tiny_model)
    expected = embedding_fingerprint(model)
    assert embedding_fingerprint(load_model(model_folder)) == expected
    assert embedding_fingerprint(model._replace(threshold=7.0)) == expected
    assert embedding_fingerprint(model._replace(front_end=Fbank(dither=0.5))) != expected
    with torch.no_grad():
        tiny_model[1].conv1.weight[0, 0, 0, 0] += 1e-6
    assert embedding_fingerprint(model) != expected
