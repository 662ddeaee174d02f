"""Laws of simple-spk export: from runs, checkpoints and folders to folders that work elsewhere."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from simple_spk.cli.main import main
from simple_spk.evaluation.calibration import train_calibration
from simple_spk.export.training_run import find_model
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.model import Model, trained_model
from simple_spk.inference.model_folder import default_card, is_automatic, load_model, save_model
from simple_spk.io.safe_yaml import read_tagged_yaml
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet

ROOT = Path(__file__).parents[2]


def embeddings_of(model: Model) -> torch.Tensor:
    torch.manual_seed(7)
    return Extractor(model).embed_waveforms(0.1 * torch.randn(2, 9000), torch.tensor([9000, 5000]))


def assert_same(first: Model, second: Model, tolerance: float = 0.0) -> None:
    """Both models embed, score and decide alike."""
    one, other = embeddings_of(first), embeddings_of(second)
    assert (one - other).norm() <= tolerance * one.norm()
    scores = [model.similarity.pairs(*e.split(1)) for model, e in ((first, one), (second, other))]
    torch.testing.assert_close(scores[0], scores[1], rtol=tolerance, atol=0.0)
    assert first.threshold == second.threshold


@pytest.fixture
def run_folder(tmp_path: Path, stir: Callable[[nn.Module], nn.Module]) -> Path:
    """A run of hparams/mini.yaml that was stopped: settings and two checkpoints, no model."""
    # Not imported above: its lazy modules break hypothesis, if they are there during collection.
    from hyperpyyaml import resolve_references

    from simple_spk.training.checkpoints import AtomicCheckpointer

    run = tmp_path / "run"
    run.mkdir()
    overrides = {"output_folder": str(run), "width": 4, "embedding_dim": 12, "angular_bias": 0.2}
    text: io.StringIO = resolve_references((ROOT / "hparams" / "mini.yaml").open(), overrides)
    (run / "hyperparams.yaml").write_text(text.getvalue())
    arguments = read_tagged_yaml(run / "hyperparams.yaml")["encoder"]
    del arguments[""]
    for bias in (-0.25, -0.75):  # the second is the newer one
        torch.manual_seed(round(100 * -bias))
        encoder = stir(ResNet(**arguments))
        checkpointer = AtomicCheckpointer(
            run / "checkpoints", {"encoder": encoder, "loss": SimPLELoss(initial_bias=bias)}
        )
        checkpointer.save_checkpoint(name=f"{bias}")
    return run


def test_the_newest_checkpoint_of_a_run(run_folder: Path, tmp_path: Path) -> None:
    assert main(["export", str(run_folder), str(tmp_path / "model")]) == 0
    model = load_model(tmp_path / "model")
    assert model.threshold == 0.75
    assert (tmp_path / "model" / "README.md").is_file()
    newest = run_folder / "checkpoints" / "CKPT+-0.75"
    encoder: Any = model.encoder
    expected = torch.load(newest / "encoder.ckpt", weights_only=True)
    assert encoder.state_dict().keys() == expected.keys()
    assert all(torch.equal(t, expected[name]) for name, t in encoder.state_dict().items())
    assert encoder.arguments["output"]["form"] == "log_polar"
    assert model.front_end.arguments == Fbank().arguments
    # what the checkpoint has learned counts, not what the YAML began with
    assert float(model.similarity.state_dict()["angular_bias"]) == pytest.approx(0.3)


def test_a_checkpoint_by_name(run_folder: Path, tmp_path: Path) -> None:
    checkpoint = run_folder / "checkpoints" / "CKPT+-0.25"
    assert main(["export", str(checkpoint), str(tmp_path / "model")]) == 0
    assert load_model(tmp_path / "model").threshold == 0.25


def test_the_model_of_a_run_that_ended(
    run_folder: Path, model_folder: Path, tmp_path: Path
) -> None:
    model_folder.rename(run_folder / "model")
    assert main(["export", str(run_folder), str(tmp_path / "exported")]) == 0
    assert_same(load_model(tmp_path / "exported"), load_model(run_folder / "model"))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no settings": (lambda run: (run / "hyperparams.yaml").unlink(), "hyperparams.yaml"),
    "settings that are no YAML": (
        lambda run: (run / "hyperparams.yaml").write_text("a: [1"),
        "hyperparams.yaml",
    ),
    "an encoder of somebody's own": (
        lambda run: edit(run, "simple_spk.models.resnet.ResNet", "their.Encoder"),
        "SIMPLE_SPK_ENCODERS=their",
    ),
    "an encoder that is no class with arguments": (
        lambda run: edit(run, "!new:simple_spk.models.resnet.ResNet", "!apply:their.make"),
        "--test_only",
    ),
    "another size": (lambda run: edit(run, "width: 4", "width: 5"), "encoder.ckpt"),
    "no weights": (lambda run: [p.unlink() for p in every(run, "encoder.ckpt")], "encoder.ckpt"),
    "damaged weights": (
        lambda run: [path.write_bytes(b"x" * 99) for path in every(run, "loss.ckpt")],
        "loss.ckpt",
    ),
}


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "hyperparams.yaml").read_text()
    assert old in text
    (run / "hyperparams.yaml").write_text(text.replace(old, new))


def every(run: Path, name: str) -> list[Path]:
    """A file of every checkpoint: with one damaged, export takes the other."""
    return sorted(run.glob(f"checkpoints/CKPT*/{name}"))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_run_is_explained(
    kind: str, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = BROKEN[kind]
    change(run_folder)
    assert main(["export", str(run_folder), str(tmp_path / "model")]) == 1
    assert words in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_a_damaged_checkpoint_is_passed_over(
    run_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every(run_folder, "encoder.ckpt")[-1].write_bytes(b"x" * 99)
    assert main(["export", str(run_folder), str(tmp_path / "model")]) == 0
    assert load_model(tmp_path / "model").threshold == 0.25  # that of the older one
    assert "encoder.ckpt" in caplog.text


def test_settings_execute_nothing(run_folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    with (run_folder / "hyperparams.yaml").open("a") as file:
        file.write(f"\nextra: !apply:os.system ['touch {trace}']\n")
    assert main(["export", str(run_folder), str(tmp_path / "model")]) == 0
    assert not trace.exists()


def test_what_options_add(model_folder: Path, tmp_path: Path) -> None:
    scores, labels = [-2.0, -1.0, 0.5, 0.0, 1.0, 2.0, 3.0], [0, 0, 0, 1, 1, 1, 1]
    calibration = train_calibration(scores, labels, trained_on="seven trials")
    calibration.save(tmp_path / "calibration.json")
    options = [
        "--calibration",
        str(tmp_path / "calibration.json"),
        "--training-data",
        "some voices",
    ]
    assert main(["export", str(model_folder), str(tmp_path / "new"), *options]) == 0
    model = load_model(tmp_path / "new")
    assert_same(model, load_model(model_folder))
    assert model.calibration == calibration
    assert model.training_data == "some voices"
    card = (tmp_path / "new" / "README.md").read_text()
    assert "seven trials" in card
    assert "some voices" in card


def test_cards(model_folder: Path, tmp_path: Path) -> None:
    """A card that somebody wrote stays; the one that is given replaces it."""
    (model_folder / "README.md").write_text("by hand")
    (tmp_path / "other.md").write_text("another")
    assert main(["export", str(model_folder), str(tmp_path / "kept")]) == 0
    assert (tmp_path / "kept" / "README.md").read_text() == "by hand"
    options = ["--card", str(tmp_path / "other.md"), "--format", "speechbrain"]
    assert main(["export", str(model_folder), str(tmp_path / "given"), *options]) == 0
    assert (tmp_path / "given" / "README.md").read_text() == "another"


def test_a_card_that_nobody_wrote_is_of_the_model_as_it_is(
    model_folder: Path, tmp_path: Path
) -> None:
    """Also if it is of an earlier version; but what somebody added to it stays."""
    old = load_model(model_folder)._replace(training_data="other voices", threshold=0.125)
    automatic = default_card(old)
    assert is_automatic(automatic) and "other voices" in automatic
    (model_folder / "README.md").write_text(automatic)
    assert main(["export", str(model_folder), str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "README.md").read_text() == default_card(load_model(model_folder))
    for edited in ("Mine. " + automatic, automatic + "Mine.", automatic.replace("other", "our")):
        (model_folder / "README.md").write_text(edited)
        target = tmp_path / f"edited {len(list(tmp_path.iterdir()))}"
        assert main(["export", str(model_folder), str(target)]) == 0
        assert (target / "README.md").read_text() == edited


def test_folders_of_others_are_left_alone(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.partial").mkdir()
    (tmp_path / "new.partial" / "thesis.txt").write_text("years of work")
    assert main(["export", str(model_folder), str(tmp_path / "new")]) == 0
    assert (tmp_path / "new.partial" / "thesis.txt").read_text() == "years of work"
    assert {path.name for path in tmp_path.iterdir()} == {"model", "new", "new.partial"}


def test_half_the_size(model_folder: Path, tmp_path: Path) -> None:
    assert main(["export", str(model_folder), str(tmp_path / "half"), "--half"]) == 0
    before, after = (
        (folder / "model.safetensors").stat().st_size
        for folder in (model_folder, tmp_path / "half")
    )
    assert after < 0.65 * before  # a small model is mostly statistics and names, which stay
    assert_same(load_model(tmp_path / "half"), load_model(model_folder), tolerance=2e-3)


def test_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="pip install -e '.[onnx]'")
    encoder = ResNet(width=2, blocks=(1,), stem_stride=4, embedding_dim=8)
    save_model(tmp_path / "model", trained_model(Fbank(), encoder.eval(), SimPLELoss()))
    source, target = tmp_path / "model", tmp_path / "onnx"
    assert main(["export", str(source), str(target), "--format", "onnx"]) == 0
    assert "equal to PyTorch's" in capsys.readouterr().out
    assert main(["export", "--check", str(target)]) == 0
    from safetensors.numpy import load_file, save_file

    parity = load_file(target / "parity.safetensors")
    save_file(parity | {"embeddings": 1.01 * parity["embeddings"]}, target / "parity.safetensors")
    assert main(["export", "--check", str(target)]) == 1
    assert "NOT" in capsys.readouterr().out


def test_mistakes_are_explained(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = str(model_folder), str(tmp_path / "target")
    (tmp_path / "empty").mkdir()
    mistakes = {
        ("export", source): "TARGET",
        ("export", source, source): "exists",
        ("export", source, target, "--half", "--format", "onnx"): "--half",
        ("export", source, target, "--check", source): "SOURCE",
        ("export", "--check", source): "parity.safetensors",
        ("export", str(tmp_path / "nowhere"), target): "nowhere",
        ("export", str(tmp_path / "empty"), target): "checkpoints",
        ("export", source, target, "--card", "no.md"): "no.md",
        ("export", source, target, "--calibration", "no.json"): "no.json",
        ("export", source, target, "--from", "wespeaker"): "avg_model.pt",
        ("export", source, target, "--sample-rate", "8000"): "--from wespeaker",
        ("export", source, target, "--from", "wespeaker", "--sample-rate", "0"): "not 0",
    }
    for arguments, words in mistakes.items():
        assert main(arguments) == 1, arguments
        assert words in capsys.readouterr().err, arguments
        assert not Path(target).exists()


def test_wespeaker(
    tiny_model: tuple[Fbank, ResNet, SimPLELoss],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    encoder = ResNet(width=2, embedding_dim=8)
    weights = {
        name.replace("output.linear", "seg_1"): tensor
        for name, tensor in encoder.state_dict().items()
    }
    path = tmp_path / "avg_model.pt"
    torch.save(weights | {"projection.weight": torch.zeros(50, 8)}, path)
    target = tmp_path / "model"
    assert main(["export", "--from", "wespeaker", str(path), str(target)]) == 0
    assert "400 weights" in capsys.readouterr().out
    model = load_model(target)
    assert model.front_end.arguments["window"] == "hamming"
    assert json.dumps(model.encoder.arguments["blocks"]) == "[3, 4, 6, 3]"
    assert model.front_end.sample_rate == 16000
    options = ["--from", "wespeaker", "--sample-rate", "8000"]
    assert main(["export", *options, str(path), str(tmp_path / "telephone")]) == 0
    assert load_model(tmp_path / "telephone").front_end.sample_rate == 8000


def test_the_newest_checkpoint_is_that_of_the_latest_step(tmp_path: Path) -> None:
    """Also if the clock was set back between the two."""
    for name, moment, progress in (("CKPT+a", 200, [2, 8]), ("CKPT+b", 900, [1, 4])):
        folder = tmp_path / "checkpoints" / name
        folder.mkdir(parents=True)
        (folder / "CKPT.yaml").write_text(f"unixtime: {moment}\nprogress: {progress}\n")
    assert find_model(tmp_path).name == "CKPT+a"
