"""Laws of ShardEmbedder and of the job scripts of docs/many_gpus.md."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.inference.shard_embedding import ShardEmbedder
from simple_spk.io.parquet_parts import part_name
from tests.command_line import NAMES, run

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/many_gpus.md").read_text(encoding="utf-8")


def block_of_guide(words: str) -> str:
    """The block of the guide that contains some words."""
    (block,) = [text for text in re.findall(r"```\w+\n(.*?)```", GUIDE, re.DOTALL) if words in text]
    return block


@pytest.fixture
def corpus(audio_folder: Path, tmp_path: Path) -> Path:
    """A copy of the recordings that may be damaged."""
    return Path(shutil.copytree(audio_folder, tmp_path / "corpus"))


def test_its_parts_are_those_of_the_command_and_complete_ones_are_kept(
    model_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    good = (corpus / "b0.wav").read_bytes()
    (corpus / "b0.wav").write_bytes(b"no audio")
    embedder = ShardEmbedder([corpus], tmp_path / "parts", 2, str(model_folder))
    answer = embedder({"part": np.array([2, 1])})
    assert [Path(name).name for name in answer["file"]] == [part_name(2, 2), part_name(1, 2)]
    assert answer["embedded"].tolist() == [3, 2] and answer["failed"].tolist() == [0, 1]
    assert answer["errors"][1].startswith("b0.wav: ") and not answer["errors"][0]
    (corpus / "b0.wav").write_bytes(good)
    first, second = (tmp_path / "parts" / part_name(number, 2) for number in (1, 2))
    kept = second.stat().st_mtime_ns
    assert embedder({"part": np.array([1, 2])})["embedded"].tolist() == [3, 3]
    assert second.stat().st_mtime_ns == kept
    command = ("embed", corpus, "--model", model_folder, "-o")
    for number, path in enumerate((first, second), 1):
        assert run(*command, tmp_path / "command", "--shard", f"{number}/2") == 0
        assert path.read_bytes() == (tmp_path / "command" / path.name).read_bytes()


def test_a_shard_without_any_usable_recording_has_no_part(
    model_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    (corpus / "a0.wav").write_bytes(b"no audio")
    embedder = ShardEmbedder([corpus], tmp_path / "parts", 6, str(model_folder))
    answer = embedder({"part": np.array([1])})
    assert answer["embedded"].tolist() == [0] and answer["failed"].tolist() == [1]
    assert not list((tmp_path / "parts").iterdir())


def test_two_workers_of_ray_write_the_bits_of_one_process(
    model_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray.data", reason="needs the extra [ray]")
    program = block_of_guide("ShardEmbedder")
    for old, new in (
        ('["/shared/test.csv"]', repr([str(corpus)])),
        ('"/shared/parts"', repr(str(tmp_path / "parts"))),
        ('"device": "cuda"', f'"model": {str(model_folder)!r}'),
        (", num_gpus=1", ""),
    ):
        assert old in program
        program = program.replace(old, new)
    start = "import ray\nray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", start + program]
    times = []
    for _ in range(2):  # the second run finds all parts complete
        ended = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
        assert ended.returncode == 0, ended.stderr
        counts = re.findall(r"part-0000(\d)-of-00004.parquet (\d) 0 $", ended.stdout, re.MULTILINE)
        assert sorted(counts) == [("1", "1"), ("2", "2"), ("3", "1"), ("4", "2")], ended.stdout
        parts = sorted((tmp_path / "parts").iterdir())
        times.append([path.stat().st_mtime_ns for path in parts])
    assert len(parts) == 4 and times[0] == times[1]
    alone = [sys.executable, "-m", "simple_spk.cli.main", "embed", corpus, "-o", "whole.parquet"]
    ended = subprocess.run([*alone, "--model", model_folder], env=environment, cwd=tmp_path)
    found, expected = (
        read_embeddings(tmp_path / "parts"),
        read_embeddings(tmp_path / "whole.parquet"),
    )
    assert found.ids == expected.ids == NAMES and found.origin == expected.origin
    assert np.array_equal(found.matrix, expected.matrix)


@pytest.mark.parametrize("in_time", [True, False])
def test_the_slurm_job_starts_torchrun_and_is_queued_again_before_its_time_is_over(
    in_time: bool, tmp_path: Path
) -> None:
    (tmp_path / "job.sh").write_text(block_of_guide("--requeue --open-mode"))
    (tmp_path / "bin").mkdir()
    stand_ins = {
        "scontrol": 'if [ $1 = show ]; then printf "n1\\nn2\\n"; else echo "scontrol $*"; fi',
        "srun": f'echo "srun $*"; sleep {0 if in_time else 30}',
    }
    for name, line in stand_ins.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    of_slurm = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8"}
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    with (tmp_path / "out.txt").open("w") as output:
        job = subprocess.Popen(
            ["bash", "job.sh"],
            cwd=tmp_path,
            env=os.environ | of_slurm | {"PATH": path, "SLURM_JOB_NODELIST": "n[1-2]"},
            stdout=output,
            start_new_session=True,
        )
        deadline = time.monotonic() + 30
        while "srun" not in (tmp_path / "out.txt").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not in_time:
            job.send_signal(signal.SIGUSR1)
        job.wait(timeout=20)
    if not in_time:
        os.killpg(job.pid, signal.SIGKILL)  # the rest of the job, as Slurm does
    lines = (tmp_path / "out.txt").read_text().splitlines()
    started = "srun torchrun --nnodes=2 --nproc_per_node=8 --max-restarts=3 --rdzv_backend=c10d"
    place = "--rdzv_id=7 --rdzv_endpoint=n1:29500"
    assert lines[0].startswith(f"{started} {place} train.py hparams/")
    assert lines[1:] == ([] if in_time else ["scontrol requeue 7"])
