"""torchrun restarts a job whose worker was killed; it ends as an uninterrupted one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
OPTIONS = [
    *("--prepare=null", "--validation=null", "--test_lists=null", "--tensorboard=null"),
    *("--speakers_per_batch=4", "--recordings_per_speaker=2", "--crop_seconds=[0.5, 0.8]"),
    *("--batches_per_epoch=12", "--number_of_epochs=1", "--workers=0", "--device=cpu"),
    *("--width=4", "--queue_size=20", "--ckpt_interval_steps=1", "--noprogressbar"),
]


def start(corpus: Path, output: Path) -> subprocess.Popen[bytes]:
    """A job of two workers that may be restarted once."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc_per_node=2", "--max-restarts=1", "--monitor-interval=0.1"]
    folders = f"--data_folder={corpus}", f"--output_folder={output}"
    with (output.parent / f"{output.name}.txt").open("wb") as log:
        return subprocess.Popen(
            [*launcher, "train.py", "hparams/mini.yaml", *folders, *OPTIONS],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            stdout=log,
            stderr=log,
        )


def workers_of(agent: int) -> list[int]:
    """The processes that an agent of torchrun started."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text(encoding="utf-8").split()
    return [int(child) for child in children]


def test_a_job_whose_worker_is_killed_ends_with_the_same_weights(tmp_path: Path) -> None:
    from tools.make_toy_corpus import make_toy_corpus

    corpus, whole, killed = (tmp_path / name for name in ("corpus", "whole", "killed"))
    make_toy_corpus(
        corpus, train_speakers=6, valid_speakers=2, test_speakers=2, recordings_per_speaker=3
    )
    unbroken, job = start(corpus, whole), start(corpus, killed)
    deadline = time.monotonic() + 120
    while not any((killed / "checkpoints").glob("CKPT*")):
        assert job.poll() is None and time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.01)
    os.kill(workers_of(job.pid)[-1], signal.SIGKILL)
    assert job.wait(120) == 0, (tmp_path / "killed.txt").read_text()
    assert unbroken.wait(120) == 0, (tmp_path / "whole.txt").read_text()
    logs = [(tmp_path / f"{folder.name}.txt").read_text() for folder in (whole, killed)]
    assert ["exitcode: -9" in log for log in logs] == [False, True]
    assert ["Loading a checkpoint from" in log for log in logs] == [False, True], logs[1]
    first, second = (load_file(folder / "model/model.safetensors") for folder in (whole, killed))
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
