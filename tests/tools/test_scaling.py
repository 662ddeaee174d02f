"""The figure of EER by training speakers and steps."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from simple_spk.data.manifest import read_manifest
from tests.training_runs import train_here
from tools import scaling
from tools.make_toy_corpus import make_toy_corpus

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "recipes/OpenSpeech/hparams/simple_resnet34_small.yaml"
TINY = [
    *("--prepare=null", "--speakers_per_batch=2", "--workers=0", "--crop_seconds=[0.4, 0.5]"),
    *("--width=4", "--embedding_dim=8", "--queue_size=8", "--augmentation=null", "--device=cpu"),
]


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    make_toy_corpus(
        folder, train_speakers=5, valid_speakers=2, test_speakers=2, recordings_per_speaker=2
    )
    shutil.copy(folder / "test_trials.txt", folder / "test_trials_toy.txt")
    for condition in ("2s", "noise"):
        shutil.copy(folder / "test.csv", folder / f"test_{condition}.csv")
    return folder


def test_subsets_are_parts_of_larger_ones(corpus, tmp_path):
    for count in (2, 4):
        scaling.write_subset(corpus / "train.csv", count, tmp_path / f"{count}.csv")
    few, many = (read_manifest(tmp_path / f"{count}.csv") for count in (2, 4))
    assert len(few.speakers) == 2 and len(many.speakers) == 4
    assert set(few.row_of_id) < set(many.row_of_id)
    assert few.wav(0).is_file()
    with pytest.raises(ValueError, match="ask for fewer"):
        scaling.write_subset(corpus / "train.csv", 6, tmp_path / "6.csv")


def test_runs_become_a_table_and_a_plot(corpus, tmp_path, monkeypatch, capsys):
    output = tmp_path / "scaling"
    arguments = [SMALL, "--speakers", 2, 4, "--steps", 3, "-o", output]
    arguments += ["--", f"--data_folder={corpus}", *TINY]
    monkeypatch.setattr(sys, "argv", ["scaling.py", *map(str, arguments)])
    monkeypatch.setattr("tools.experiment_runs._train", train_here)
    assert scaling.main() == 0, capsys.readouterr().err
    lists = json.loads((output / f"{SMALL.stem}-4-3/1/metrics.json").read_text())["lists"]
    eer = sum(results["eer"] for results in lists.values()) / len(lists)
    assert len(lists) == 3 and f"| {eer:.2f} |" in (output / "table.md").read_text()
    assert (output / "plot.png").read_bytes()[1:4] == b"PNG"
    weights = output / f"{SMALL.stem}-2-3/1/model/model.safetensors"
    assert weights.is_file()


def test_the_data_folder_must_be_named(tmp_path):
    with pytest.raises(ValueError, match="--data_folder=DATA"):
        scaling.make_variants([SMALL], [2], [3], tmp_path, [])
