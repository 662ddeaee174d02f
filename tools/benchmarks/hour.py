"""Memory and time of simple-spk embed for recordings of one hour, of several formats.

The full ResNet-34 (with random weights) and the built-in model; each recording is embedded by a
process of its own, whose peak memory is shown. "minute" is the same with a recording of one minute.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from simple_spk.inference.model import Model
from simple_spk.inference.model_folder import save_model
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import GeneralizedInnerProduct
from tools.benchmarks.extract import speech
from tools.benchmarks.measure import Row
from tools.write_m4a import write_m4a

THREADS = 1
HOUR, MINUTE = 3600, 60
ROOT = Path(__file__).parents[2]


def run(options: argparse.Namespace) -> list[Row]:
    """Peak MiB and seconds for each model and recording."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        torch.manual_seed(0)
        full = Model(Fbank(), ResNet(), GeneralizedInnerProduct(), None)
        save_model(folder / "full", full)
        recordings = write_long(folder, options.data)
        for model, model_options, paths in (
            ("built-in", [], recordings),
            ("ResNet-34", ["--model", str(folder / "full")], recordings[:2]),
        ):
            for path in paths:
                mib, seconds = measured(path, folder / "e.npz", model_options, options.threads)
                rows.append({"model": model, "recording": path.name, "MiB": mib, "s": seconds})
    return rows


# What a child held before it became another program counts in the kernel's own account of it
# (ru_maxrss), and that is all that this process holds. So the command tells its peak itself.
COMMAND = """
import sys
from simple_spk.cli.main import main
from tools.benchmarks.measure import memory
code = main(sys.argv[2:])
open(sys.argv[1], "w").write(str(memory("VmHWM")))
sys.exit(code)
"""


def measured(path: Path, output: Path, model: list[str], threads: int) -> tuple[float, float]:
    """Peak MiB and seconds of simple-spk embed with one recording."""
    peak = output.with_name("peak.txt")
    command = ["embed", str(path), "-o", str(output), *model]
    start = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", COMMAND, str(peak), *command],
        env=os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)},
        check=False,
    )
    if process.returncode != 0:
        raise RuntimeError(f"simple-spk embed {path} failed")
    return float(peak.read_text()), time.perf_counter() - start


def write_long(folder: Path, data: Path | None) -> list[Path]:
    """Recordings of a minute and of an hour, the latter in several formats."""

    def fill(seconds: int, rate: int, channels: int) -> NDArray[np.float32]:
        mono = np.resize(speech(600.0, rate, data, seed=0), seconds * rate)
        return np.tile(mono, (channels, 1))

    soundfile.write(folder / "minute.wav", fill(MINUTE, 16000, 1).T, 16000)
    soundfile.write(folder / "hour.wav", fill(HOUR, 16000, 1).T, 16000)
    soundfile.write(folder / "hour.flac", fill(HOUR, 16000, 1).T, 16000)
    stereo = fill(HOUR, 44100, 2)
    soundfile.write(folder / "hour_44100_hertz_stereo.wav", stereo.T, 44100)
    write_m4a(folder / "hour_44100_hertz_stereo.m4a", stereo, 44100)
    names = ("minute.wav", "hour.wav", "hour.flac", "hour_44100_hertz_stereo.wav")
    return [folder / name for name in (*names, "hour_44100_hertz_stereo.m4a")]
