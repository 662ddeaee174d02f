"""Encoders of others in model folders: imported only if the user lists their module."""

import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import load_model, save_model
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.saved_arguments import remember_arguments
from tests.command_line import run

MODULE = """
from pathlib import Path
import torch
from simple_spk.models.pooling import statistics_pooling
from simple_spk.models.saved_arguments import remember_arguments

Path(__file__).with_name("imported").touch()

@remember_arguments
class MeanEncoder(torch.nn.Module):
    def __init__(self, num_mels: int = 24, dim: int = 6):
        super().__init__()
        self.num_mels = num_mels
        self.linear = torch.nn.Linear(2 * num_mels, dim)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def forward(self, features, lengths=None):
        return self.scale * self.linear(statistics_pooling(features.mT, lengths))

not_a_class = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the module their_encoders, on the path but not imported yet."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "their_encoders.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "their_encoders", raising=False)
    return folder


@pytest.fixture
def saved(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder with their encoder, in a process that has not imported it."""
    import their_encoders  # type: ignore[import-not-found]

    torch.manual_seed(0)
    encoder = their_encoders.MeanEncoder()
    save_model(tmp_path / "model", trained_model(Fbank(num_mels=24), encoder, SimPLELoss()))
    monkeypatch.delitem(sys.modules, "their_encoders")
    (module / "imported").unlink()
    return tmp_path / "model"


def test_a_folder_alone_imports_nothing(
    saved: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for listed in ("", "their_encoders_too, their_encoders.MeanEncoder", "their"):
        monkeypatch.setenv("SIMPLE_SPK_ENCODERS", listed)
        with pytest.raises(ValueError, match="export SIMPLE_SPK_ENCODERS=their_encoders"):
            load_model(saved)
    assert not (module / "imported").exists()
    assert "their_encoders" not in sys.modules


@torch.no_grad()
def test_a_listed_module_is_used(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMPLE_SPK_ENCODERS", "something.else, their_encoders")
    model = load_model(saved)
    assert type(model.encoder).__name__ == "MeanEncoder"
    assert run("export", saved, tmp_path / "again") == 0
    again = load_model(tmp_path / "again")
    waveform = 0.1 * torch.randn(1, 8000)
    expected = model.encoder(*model.front_end(waveform))
    assert torch.equal(again.encoder(*again.front_end(waveform)), expected)
    card = (tmp_path / "again" / "README.md").read_text()
    assert "SIMPLE_SPK_ENCODERS=their_encoders" in card


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("their_encoders.Nothing", "not a class"),
        ("their_encoders.not_a_class", "not a class"),
        ("their_encoders.Path", "not a class"),
        ("no_such_module.Encoder", "PYTHONPATH"),
        ("their_encoders.MeanEncoder()", "unknown class"),
        ("../their_encoders.MeanEncoder", "unknown class"),
    ],
)
def test_a_name_that_cannot_be_used_is_explained(
    name: str, words: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMPLE_SPK_ENCODERS", "their_encoders,no_such_module")
    config = yaml.safe_load((saved / "config.yaml").read_text())
    config["encoder"]["class"] = name
    (saved / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ValueError, match=words):
        load_model(saved)


@remember_arguments
class Untyped(ResNet):
    """Arguments without types cannot be checked when a folder is loaded."""

    def __init__(self, depth) -> None:  # type: ignore[no-untyped-def]
        super().__init__(24, 4, (1,) * depth)


class Plain(nn.Module):
    """An encoder that does not keep its arguments."""

    num_mels = 24


def test_an_encoder_that_a_folder_cannot_describe_is_explained(tmp_path: Path) -> None:
    @remember_arguments
    class Local(ResNet):
        pass

    for encoder, words in (
        (Untyped(2), "depth"),
        (Plain(), "remember_arguments"),
        (Local(), "globally"),
    ):
        with pytest.raises(ValueError, match=words):
            save_model(tmp_path / "model", trained_model(Fbank(), encoder, SimPLELoss()))
    assert not (tmp_path / "model").exists()
