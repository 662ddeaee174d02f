"""A run goes on with the settings it began with; its speed and length may change."""

from io import StringIO
from pathlib import Path

import pytest
from hyperpyyaml import resolve_references

from simple_spk.training.resume_check import FREE_TO_CHANGE, require_same_settings

ROOT = Path(__file__).parents[2]
SETTINGS = """\
seed: 1  # why
learning_rate: 0.1
encoder: &id001 !new:Encoder
    width: 8
loss: !new:Loss
    sharpness: 3.0
    inner: !name:f [1, 2]
modules: {encoder: *id001}
workers: 2
prepare: !name:make
    folder: data
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run that has a checkpoint."""
    (tmp_path / "checkpoints" / "CKPT+now").mkdir(parents=True)
    (tmp_path / "hyperparams.yaml").write_text(SETTINGS)
    return tmp_path


@pytest.mark.parametrize(
    "old, new",
    [
        ("# why", "# another comment"),
        ("workers: 2", "workers: 4"),
        ("folder: data", "folder: elsewhere"),
        ("seed: 1", "# a comment\n\nseed: 1"),
        ("learning_rate: 0.1", "learning_rate: 1.0e-1"),
        *(("    sharpness", f"    {key}: 5\n    sharpness") for key in sorted(FREE_TO_CHANGE)),
    ],
)
def test_what_decides_nothing_may_change(folder: Path, old: str, new: str) -> None:
    require_same_settings(folder, SETTINGS.replace(old, new))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("rate: 0.1", "rate: 0.2", "1 differ.: learning_rate was 0.1 and is 0.2: go on with"),
        ("ness: 3.0", "ness: 2.0", r"loss\.sharpness was 3\.0 and is 2\.0"),
        ("width: 8", "width: 4", r"1 differ.: encoder\.width was 8 and is 4"),
        ("!new:Loss", "!new:Other", "loss was !new:Loss and is !new:Other"),
        ("!name:f", "!name:g", r"loss\.inner was \['!name:f', 1, 2\] and is \['!name:g'"),
        ("    sharpness: 3.0\n", "", r"loss\.sharpness was 3\.0 and is absent"),
        ("ness: 3.0", "ness: 3.0\n    more: 1", r"loss\.more was absent and is 1"),
        ("{encoder: *id001}", "{encoder: null}", r"modules\.encoder was <encoder> and is None"),
    ],
)
def test_what_decides_may_not_change(folder: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        require_same_settings(folder, SETTINGS.replace(old, new))


def test_a_value_that_stands_under_another_key_is_noticed(tmp_path: Path) -> None:
    """The optimizer has momentum: 0.9, too; a line is not a setting."""
    text = (ROOT / "hparams" / "simple_resnet34.yaml").read_text()

    def resolved(**overrides: object) -> str:
        return resolve_references(StringIO(text), {"data_folder": "data", **overrides}).getvalue()

    (tmp_path / "checkpoints" / "CKPT+now").mkdir(parents=True)
    (tmp_path / "hyperparams.yaml").write_text(resolved())
    require_same_settings(tmp_path, resolved())
    require_same_settings(tmp_path, resolved(number_of_epochs=80, workers=1))
    with pytest.raises(
        ValueError, match=r"1 differ.: momentum, momentum_encoder\.momentum was 0\.999 and is 0\.9:"
    ):
        require_same_settings(tmp_path, resolved(momentum=0.9))


@pytest.mark.parametrize("size", [0, 1, 20, 60, 120])
def test_a_file_that_is_empty_or_short_is_not_the_users_fault(folder: Path, size: int) -> None:
    (folder / "hyperparams.yaml").write_text(SETTINGS[:size])
    with pytest.raises(ValueError, match="empty, cut short") as error:
        require_same_settings(folder, SETTINGS)
    assert "delete" not in str(error.value) and "remove this one file" in str(error.value)


def test_a_folder_without_checkpoints_holds_no_run(folder: Path) -> None:
    (folder / "checkpoints" / "CKPT+now").rmdir()
    require_same_settings(folder, "seed: 2\n")
    require_same_settings(folder / "nowhere", "seed: 2\n")
