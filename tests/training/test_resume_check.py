"""A run goes on with the settings it began with; its speed and length may change."""

from pathlib import Path

import pytest

from simple_spk.training.resume_check import FREE_TO_CHANGE, require_same_settings

SETTINGS = "seed: 1  # why\nlearning_rate: 0.1\nloss:\n    sharpness: 3.0\nworkers: 2\n"


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
        ("seed: 1", "# a comment\n\nseed: 1"),
        *(("seed", f"{key}: 5\nseed") for key in FREE_TO_CHANGE),
    ],
)
def test_what_decides_nothing_may_change(folder: Path, old: str, new: str) -> None:
    require_same_settings(folder, SETTINGS.replace(old, new))


@pytest.mark.parametrize("new", ["learning_rate: 0.2", "sharpness: 2.0"])
def test_what_decides_may_not_change(folder: Path, new: str) -> None:
    key = new.partition(":")[0]
    changed = "\n".join(
        line.partition(key)[0] + new if key in line else line for line in SETTINGS.splitlines()
    )
    with pytest.raises(ValueError, match=rf"{new}: give this one another --output_folder"):
        require_same_settings(folder, changed)


def test_a_folder_without_checkpoints_holds_no_run(folder: Path) -> None:
    (folder / "checkpoints" / "CKPT+now").rmdir()
    require_same_settings(folder, "seed: 2\n")
    require_same_settings(folder / "nowhere", "seed: 2\n")
