"""Simulate power cuts during training: python tools/power_cut.py [--cuts N]

Trains in a loop-mounted ext4 image. At random moments the image is copied while it is mounted: the
copy holds what a power cut would have left on the disk. Each copy is mounted; every file under its
final name must be whole, and training resumed there must end with the weights of an uninterrupted
run. Needs Linux, root and loop devices.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from simple_spk.io.atomic_file import damage_of
from tools.make_toy_corpus import make_toy_corpus

ROOT = Path(__file__).parents[1]
IMAGE_BYTES = 256 * 2**20
SMALL = [
    "--speakers_per_batch=4",
    "--recordings_per_speaker=2",
    "--crop_seconds=[0.5, 0.8]",
    "--batches_per_epoch=4",
    "--number_of_epochs=3",
    "--workers=0",
    "--width=4",
    "--encoder={stem_stride: 2}",
    "--queue_size=20",
    "--ckpt_interval_steps=1",
    "--device=cpu",
    "--prepare=null",
]


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """A file system image, mounted at a folder."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def can_mount() -> bool:
    """Whether this machine allows loop mounts."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            make_image(folder / "image")
            with mounted(folder / "image", folder / "mounted"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def make_image(path: Path) -> None:
    """An empty ext4 file system."""
    with path.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", path], check=True, stderr=subprocess.DEVNULL)


def start_training(corpus: Path, output: Path) -> subprocess.Popen[bytes]:
    """train.py on a toy corpus, with a checkpoint after every step."""
    options = [f"--data_folder={corpus}", f"--output_folder={output}", *SMALL]
    return subprocess.Popen(
        [sys.executable, "train.py", "hparams/mini.yaml", *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def faults_in(run: Path) -> list[str]:
    """Files of a run that have their final name and are not whole."""
    faults = [
        f"{folder.name}: {damage}"
        for folder in (run / "checkpoints").glob("CKPT*")
        if (damage := damage_of(folder)) is not None
    ]
    finals = [run / "hyperparams.yaml", run / "metrics.json", *(run / "model").glob("*")]
    faults += [
        f"{path.name} is empty"
        for path in finals
        if path.is_file() and path.suffix != ".partial" and path.stat().st_size == 0
    ]
    if (run / "metrics.json").is_file():
        json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    return faults


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    """The weights of a finished run."""
    return load((run / "model" / "model.safetensors").read_bytes())  # not mapped: it is unmounted


def simulate(cuts: int, seed: int = 0) -> list[str]:
    """The faults that ``cuts`` power cuts left; each is also resumed to its end."""
    draw = random.Random(seed)
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        corpus = work / "corpus"
        make_toy_corpus(
            corpus, train_speakers=6, valid_speakers=2, test_speakers=3, recordings_per_speaker=4
        )
        assert start_training(corpus, work / "whole").wait() == 0
        expected = weights_of(work / "whole")
        for cut in range(cuts):
            image, copy = work / "image", work / "copy"
            make_image(image)
            with mounted(image, work / "disk") as disk:
                training = start_training(corpus, disk / "run")
                checkpoints = disk / "run" / "checkpoints"
                while training.poll() is None and not list(checkpoints.glob("CKPT*")):
                    time.sleep(0.01)
                time.sleep(draw.uniform(0.0, 4.0))
                training.send_signal(signal.SIGSTOP)  # a copy takes time: nothing may change
                shutil.copyfile(image, copy)  # what has reached the disk by now
                training.kill()
                training.wait()
            with mounted(copy, work / "disk") as after:
                run = after / "run"
                found = faults_in(run)
                if not list((run / "checkpoints").glob("CKPT*")):
                    found.append("no checkpoint is left")
                code = start_training(corpus, run).wait()
                if code != 0:
                    found.append(f"resuming failed with exit code {code}")
                else:
                    result = weights_of(run)
                    if not all(torch.equal(result[key], expected[key]) for key in expected):
                        found.append("the resumed run ended with other weights")
            print(f"cut {cut + 1} of {cuts}: {'; '.join(found) or 'nothing lost'}", flush=True)
            faults += found
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, and return 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=4, metavar="N", help="(default 4)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of their moments")
    options = parser.parse_args(arguments)
    if not can_mount():
        print("power_cut.py: this machine allows no loop mounts", file=sys.stderr)
        return 2
    return exit_code("power_cut.py", lambda: int(bool(simulate(options.cuts, options.seed))))


if __name__ == "__main__":
    sys.exit(main())
