"""Checkpoints survive damage, a clock that is set back, a second run and a power cut."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file

from simple_spk.io.atomic_file import DIGESTS, damage_of
from simple_spk.training.checkpoints import DELETED, PARTIAL, AtomicCheckpointer
from tests.training_runs import run_train
from tools.make_toy_corpus import make_toy_corpus
from tools.power_cut import SMALL, can_mount, simulate

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "corpus"
    make_toy_corpus(
        folder, train_speakers=6, valid_speakers=2, test_speakers=3, recordings_per_speaker=4
    )
    return folder


def train(corpus: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A small run; later options win over earlier ones."""
    chosen = {text.partition("=")[0]: text for text in [*SMALL, *options]}
    yaml = ROOT / "hparams/mini.yaml"
    return run_train(
        [yaml, f"--data_folder={corpus}", f"--output_folder={output}", *chosen.values()]
    )


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three epochs, stopped after two, and of the whole one beside it."""
    folder = tmp_path_factory.mktemp("runs")
    assert train(corpus, folder / "whole").returncode == 0
    assert train(corpus, folder / "run", "--number_of_epochs=2").returncode == 0
    shutil.copytree(folder / "run", folder / "kept")
    return folder / "run"


@pytest.fixture
def stopped(run: Path) -> Path:
    """The stopped run, as it was left."""
    shutil.rmtree(run)
    shutil.copytree(run.with_name("kept"), run)
    return run


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = (run / "checkpoints").glob("CKPT*")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def finder(run: Path) -> AtomicCheckpointer:
    return AtomicCheckpointer(run / "checkpoints")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one bit": flip_a_bit,
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_never_the_one_to_resume_from(
    stopped: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    older, newest = checkpoints(stopped)
    assert finder(stopped).find_checkpoint().path == newest
    for file in sorted(newest.iterdir()):
        content = file.read_bytes()
        DAMAGES[damage](file)
        caplog.clear()
        if (file.name, damage) == (DIGESTS, "removed"):  # as version 0.1 wrote them
            assert finder(stopped).find_checkpoint().path == newest
        else:
            assert finder(stopped).find_checkpoint().path == older, file.name
            assert (file.name == "CKPT.yaml" and damage == "removed") or "damaged" in caplog.text
        file.write_bytes(content)
    assert finder(stopped).find_checkpoint().path == newest


def test_a_run_resumes_from_the_older_checkpoint_and_ends_the_same(
    corpus: Path, stopped: Path
) -> None:
    flip_a_bit(checkpoints(stopped)[-1] / "encoder.ckpt")
    finished = train(corpus, stopped)
    assert finished.returncode == 0, finished.stderr
    assert "the content of encoder.ckpt has changed" in finished.stderr + finished.stdout
    result, expected = (
        load_file(folder / "model/model.safetensors")
        for folder in (stopped, stopped.with_name("whole"))
    )
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_the_latest_step_is_the_newest_whatever_the_clock_says(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(
        "speechbrain.utils.checkpoints.time.time", lambda: float(next(moments)), raising=True
    )
    finished = train(corpus, tmp_path / "run", "--number_of_epochs=2")
    monkeypatch.undo()
    assert finished.returncode == 0, finished.stderr
    found = finder(tmp_path / "run").find_checkpoints()
    assert [checkpoint.meta["progress"] for checkpoint in found] == [[2, 8], [2, 8]]
    assert found[0].meta["end-of-epoch"] and not found[1].meta["end-of-epoch"]


def test_half_deleted_and_half_written_ones_are_removed_by_the_next_save(
    corpus: Path, stopped: Path
) -> None:
    folder = stopped / "checkpoints"
    for kind in (PARTIAL, DELETED):
        shutil.copytree(checkpoints(stopped)[0], folder / f"{kind}CKPT+2030-01-01+00-00-00+00")
    assert train(corpus, stopped).returncode == 0
    assert [path for path in folder.iterdir() if not path.name.startswith("CKPT")] == []


def test_a_second_training_in_one_folder_is_refused(corpus: Path, stopped: Path) -> None:
    program = (
        "import sys, time; from simple_spk.io.atomic_file import lock_folder\n"
        f"with lock_folder({str(stopped)!r}, 'training'): print('held', flush=True); time.sleep(60)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        before = checkpoints(stopped)
        finished = train(corpus, stopped)
        assert finished.returncode == 1
        assert f"process {holder.pid} on " in finished.stderr and checkpoints(stopped) == before
    finally:
        holder.kill()
        holder.wait()
    assert train(corpus, stopped).returncode == 0  # the lock went with its holder


def test_a_learning_rate_changes_on_request_only(corpus: Path, stopped: Path) -> None:
    finished = train(corpus, stopped, "--learning_rate=0.01")
    assert finished.returncode == 1
    assert "was 0.1 and is 0.01" in finished.stderr
    assert "--may_change" in finished.stderr
    finished = train(corpus, stopped, "--learning_rate=0.01", "--may_change=learning_rate")
    assert finished.returncode == 0, finished.stderr
    assert "was 0.1 and is 0.01" in finished.stderr + finished.stdout
    newest = finder(stopped).find_checkpoint().path
    groups = torch.load(newest / "optimizer.ckpt", weights_only=True)["param_groups"]
    assert groups[0]["initial_lr"] == 0.01
    assert "learning_rate: 0.01" in (stopped / "hyperparams.yaml").read_text()


def test_the_settings_of_a_run_are_written_once(corpus: Path, stopped: Path) -> None:
    before = (stopped / "hyperparams.yaml").stat().st_mtime_ns
    assert train(corpus, stopped, "--log_interval=3").returncode == 0
    assert (stopped / "hyperparams.yaml").stat().st_mtime_ns == before


def test_every_checkpoint_lists_its_files(run: Path) -> None:
    for checkpoint in checkpoints(run):
        listed = json.loads((checkpoint / DIGESTS).read_text())
        assert set(listed) == {path.name for path in checkpoint.iterdir()} - {DIGESTS}
        assert damage_of(checkpoint) is None


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system in memory at a folder, with little room."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(not can_mount(), reason="needs root and mounts")
def test_a_full_disk_stops_a_run_which_resumes_when_there_is_room(
    corpus: Path, run: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, "1500k"):
        finished = train(corpus, disk / "run")
        assert finished.returncode == 1 and "Traceback" not in finished.stderr
        assert "disk full: " in finished.stderr and "checkpoints" in finished.stderr
        assert "the same command then goes on" in finished.stderr
        assert all(damage_of(path) is None for path in checkpoints(disk / "run"))
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        finished = train(corpus, disk / "run")
        assert finished.returncode == 0, finished.stderr
        result = load((disk / "run/model/model.safetensors").read_bytes())  # not mapped
    expected = load_file(run.with_name("whole") / "model/model.safetensors")
    assert all(torch.equal(result[name], expected[name]) for name in expected)


@pytest.mark.skipif(not can_mount(), reason="needs root and mounts")
def test_too_little_shared_memory_is_named(corpus: Path, tmp_path: Path) -> None:
    """In a mount namespace of its own, in which /dev/shm is small."""
    chosen = {text.partition("=")[0]: text for text in [*SMALL, "--workers=1"]}
    places = [f"--data_folder={corpus}", f"--output_folder={tmp_path / 'run'}"]
    command = [sys.executable, "train.py", "hparams/mini.yaml", *places, *chosen.values()]
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    finished = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 1 and "Traceback" not in finished.stderr, finished.stderr
    assert "--workers=0 or a larger /dev/shm" in finished.stderr


@pytest.mark.skipif(not can_mount(), reason="needs root and loop devices")
def test_a_power_cut_loses_nothing() -> None:
    assert simulate(cuts=1) == []
