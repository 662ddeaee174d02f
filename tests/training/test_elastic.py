"""torchrun restarts a job that lost a worker or a node; it ends as an uninterrupted one."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tools.make_toy_corpus import make_toy_corpus

ROOT = Path(__file__).parents[2]
OPTIONS = [
    *("--prepare=null", "--validation=null", "--test_lists=null", "--tensorboard=null"),
    *("--speakers_per_batch=4", "--recordings_per_speaker=2", "--crop_seconds=[0.5, 0.8]"),
    *("--batches_per_epoch=12", "--number_of_epochs=1", "--workers=0", "--device=cpu"),
    *("--width=4", "--queue_size=20", "--ckpt_interval_steps=1", "--noprogressbar"),
]


def start(corpus: Path, output: Path, *launcher: str) -> subprocess.Popen[bytes]:
    """An agent of torchrun, by default of a whole job of two workers that may be restarted once."""
    launcher = launcher or ("--standalone", "--nproc_per_node=2", "--max-restarts=1")
    command = [sys.executable, "-m", "torch.distributed.run", "--monitor-interval=0.1", *launcher]
    folders = f"--data_folder={corpus}", f"--output_folder={output}"
    with (output.parent / f"{output.name}.txt").open("ab") as log:
        return subprocess.Popen(
            [*command, "train.py", "hparams/mini.yaml", *folders, *OPTIONS],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            stdout=log,
            stderr=log,
        )


def workers_of(agent: int) -> list[int]:
    """The processes that an agent of torchrun started."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text(encoding="utf-8").split()
    return [int(child) for child in children]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "corpus"
    make_toy_corpus(
        folder, train_speakers=6, valid_speakers=2, test_speakers=2, recordings_per_speaker=3
    )
    return folder


@pytest.fixture(scope="module")
def weights(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Those of an uninterrupted job."""
    output = tmp_path_factory.mktemp("whole") / "whole"
    log = output.with_suffix(".txt")
    assert start(corpus, output).wait(120) == 0, log.read_text()
    assert "Loading a checkpoint from" not in log.read_text()
    return load_file(output / "model/model.safetensors")


def wait_for_checkpoint(output: Path, job: subprocess.Popen[bytes]) -> None:
    """Until the job has saved a checkpoint."""
    deadline = time.monotonic() + 120
    while not any((output / "checkpoints").glob("CKPT*")):
        assert job.poll() is None and time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.01)


def check_resumed(output: Path, weights: dict[str, torch.Tensor]) -> None:
    """Raise unless a job went on from a checkpoint and ended with these weights."""
    log = output.with_suffix(".txt").read_text()
    assert "Loading a checkpoint from" in log, log
    found = load_file(output / "model/model.safetensors")
    assert found.keys() == weights.keys()
    for name in found:
        assert torch.equal(found[name], weights[name]), name


def test_a_job_whose_worker_is_killed_ends_with_the_same_weights(
    corpus: Path, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    output = tmp_path / "killed"
    job = start(corpus, output)
    wait_for_checkpoint(output, job)
    os.kill(workers_of(job.pid)[-1], signal.SIGKILL)
    assert job.wait(120) == 0, output.with_suffix(".txt").read_text()
    assert "exitcode: -9" in output.with_suffix(".txt").read_text()
    check_resumed(output, weights)


def test_a_job_goes_on_when_a_lost_node_comes_back(
    corpus: Path, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    """Two nodes of one worker each; one is killed with its agent, and started anew."""
    output = tmp_path / "lost"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"--rdzv_endpoint=127.0.0.1:{probe.getsockname()[1]}"
    node = ("--nnodes=2", "--nproc_per_node=1", "--max-restarts=3", "--rdzv_backend=c10d", endpoint)
    first = start(corpus, output, *node, "--rdzv_conf=is_host=true")  # it is not the one to fail
    second = start(corpus, output, *node, "--rdzv_conf=is_host=false")
    agents = [first, second]
    try:
        wait_for_checkpoint(output, first)
        for process in (second.pid, *workers_of(second.pid)):
            os.kill(process, signal.SIGKILL)
        second.wait()
        agents.append(start(corpus, output, *node, "--rdzv_conf=is_host=false"))
        for agent in (first, agents[-1]):
            assert agent.wait(180) == 0, output.with_suffix(".txt").read_text()
    finally:
        for agent in agents:
            agent.kill()
    check_resumed(output, weights)
