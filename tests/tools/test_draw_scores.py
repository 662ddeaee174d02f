"""The picture of scores, threshold and lengths."""

import sys
from pathlib import Path

import numpy as np
import pytest

from simple_spk.evaluation.embedding_files import write_embeddings
from simple_spk.inference.model_folder import builtin_model
from tools import draw_scores


@pytest.fixture
def files(tmp_path):
    generator = np.random.default_rng(0)
    centers = np.repeat(generator.normal(size=(4, 192)), 3, axis=0)
    table = (centers + 0.5 * generator.normal(size=centers.shape)).astype(np.float32)
    ids = [f"s{number // 3}/{number}" for number in range(12)]
    write_embeddings(tmp_path / "e.npz", ids, table)
    lines = [f"{int(a[:2] == b[:2])} {a} {b}" for a in ids for b in ids if a < b]
    (tmp_path / "trials.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def draw(monkeypatch, folder: Path, output: Path, trials: str = "trials.txt") -> int:
    arguments = [builtin_model(), "--embeddings", folder / "e.npz", "-o", output]
    arguments += ["--trials", folder / trials]
    monkeypatch.setattr(sys, "argv", ["draw_scores.py", *map(str, arguments)])
    return draw_scores.main()


def test_the_same_data_give_the_same_picture(files, monkeypatch):
    for name in ("a.svg", "b.svg"):
        assert draw(monkeypatch, files, files / name) == 0
    picture = (files / "a.svg").read_bytes()
    assert picture == (files / "b.svg").read_bytes()
    assert b"<svg" in picture


def test_lists_without_labels_and_other_formats_are_refused(files, monkeypatch, capsys):
    (files / "plain.txt").write_text("s0/0 s0/1\n")
    assert draw(monkeypatch, files, files / "a.svg", "plain.txt") == 1
    assert "has no labels" in capsys.readouterr().err
    assert draw(monkeypatch, files, files / "a.png") == 1
    assert "call it NAME.svg" in capsys.readouterr().err
    assert not (files / "a.svg").exists()
