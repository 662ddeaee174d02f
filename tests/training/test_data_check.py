"""Recordings that are missing or of no use are named before the first training step."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk.data.augmentation import Augmentation
from simple_spk.data.dataset import CropDataset
from simple_spk.data.manifest import read_manifest, write_manifest
from simple_spk.training import data_check
from simple_spk.training.data_check import check_recordings, missing_files
from tests.training_runs import run_train
from tools.make_toy_corpus import make_toy_corpus
from tools.power_cut import SMALL


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "corpus"
    make_toy_corpus(
        folder, train_speakers=4, valid_speakers=2, test_speakers=2, recordings_per_speaker=2
    )
    return folder


@pytest.fixture
def corpus(made: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(made, tmp_path / "corpus"))


def wav(corpus: Path, part: str, row: int) -> Path:
    return read_manifest(corpus / f"{part}.csv").wav(row)


def silence(path: Path) -> None:
    soundfile.write(path, np.zeros(32000), 16000)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


def train(corpus: Path, run: Path, *options: str) -> tuple[int, str]:
    """Exit code and message of a small run."""
    chosen = {text.partition("=")[0]: text for text in [*SMALL, *options]}
    places = [f"--data_folder={corpus}", f"--output_folder={run}"]
    finished = run_train(["hparams/mini.yaml", *places, *chosen.values(), "--noprogressbar"])
    assert "Traceback" not in finished.stderr
    return finished.returncode, finished.stderr


@pytest.mark.parametrize("part", ["train", "valid", "test"])
@pytest.mark.parametrize("damage", [Path.unlink, silence, cut])
def test_a_bad_recording_is_named_before_the_first_step(
    corpus: Path, tmp_path: Path, part: str, damage: object
) -> None:
    path = wav(corpus, part, 3)
    damage(path)  # type: ignore[operator]
    code, message = train(corpus, tmp_path / "run")
    assert code == 1 and str(path) in message
    assert not any((tmp_path / "run" / "checkpoints").iterdir())


def test_missing_files_are_counted_and_found_in_any_order(corpus: Path) -> None:
    paths = [str(path) for path in sorted(corpus.rglob("*.wav"))]
    np.random.default_rng(0).shuffle(paths)
    assert missing_files(paths) == []
    gone = paths[1::3]
    for path in gone:
        Path(path).unlink()
    shutil.rmtree(Path(paths[0]).parent)
    assert missing_files(paths) == [path for path in paths if not Path(path).is_file()]
    manifest = read_manifest(corpus / "train.csv")
    missing = sum(not manifest.wav(row).is_file() for row in range(len(manifest)))
    with pytest.raises(FileNotFoundError, match=f"{missing} of 8 recordings of .*train.csv"):
        check_recordings(CropDataset(manifest), [])


def test_noises_are_looked_at_too(corpus: Path) -> None:
    write_manifest(corpus / "noises.csv", ["n"], ["none.wav"], [1.0], ["noise"])
    augmentation = Augmentation(corpus / "noises.csv", kinds={"noise": ((0.0, 15.0),)})
    dataset = CropDataset(read_manifest(corpus / "train.csv"), augmentation=augmentation)
    with pytest.raises(FileNotFoundError, match=r"1 of 1 recordings of .*noises\.csv"):
        check_recordings(dataset, [])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_turns_bad_during_training_is_named_and_the_run_resumes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """As in a large corpus, of which only some files are opened before."""
    monkeypatch.setattr(data_check, "MOST_INSPECTED", 1)
    path = wav(corpus, "train", 5)
    whole = path.read_bytes()
    cut(path)
    code, message = train(corpus, tmp_path / "run", f"--workers={workers}")
    assert code == 1
    assert message.splitlines()[-2].startswith(f"train.py: error: training cannot go on: {path} ")
    assert "the same command then resumes" in message
    path.write_bytes(whole)
    assert train(corpus, tmp_path / "run", f"--workers={workers}")[0] == 0
