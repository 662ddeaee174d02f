"""Start of training at any size of manifest: seconds, memory, and the cost of a batch of 128 x 4.

Rows are made up, except the 1,092,009 of VoxCeleb2 dev where the list is at hand. Each size is
measured in a process of its own. "of this, libraries" is what the process held before it read the
manifest; "own to a worker" is what a forked process holds for itself after 100,000 paths looked up.
"""

import argparse
import gzip
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simple_spk.data.dataset import CropDataset
from simple_spk.data.manifest import read_manifest
from simple_spk.data.samplers import SpeakerSampler
from tools.benchmarks.measure import Row, memory

SIZES = ((10_000, 400), (100_000, 1_200), (1_092_009, 5_994), (10_000_000, 110_000))


def run(options: argparse.Namespace) -> list[Row]:
    """One row for each size."""
    rows = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for size, speakers in SIZES:
            path = Path(folder) / f"{size}.csv"
            real = options.data / "voxceleb" / "vox2_dev_duration.txt.gz" if options.data else None
            is_real = size == 1_092_009 and real is not None and real.is_file()
            with path.open("w", encoding="utf-8") as file:
                file.write("ID,wav,duration,spk_id\n")
                file.writelines(_real_rows(real) if is_real else _made_up_rows(size, speakers))
            queue = context.Queue()
            process = context.Process(target=_measure, args=(path, queue))
            process.start()
            measured = queue.get()
            process.join()
            name = "VoxCeleb2 dev" if is_real else "made up"
            rows.append({"rows": f"{size:,}", "which": name, **measured})
            path.unlink()
    return rows


def _made_up_rows(size: int, speakers: int) -> Iterator[str]:
    """Lines of a manifest with names as long as VoxCeleb's."""
    random = np.random.default_rng(0)
    speaker_of_row = np.sort(np.append(np.arange(speakers), random.integers(0, speakers, size)))
    for row, speaker in enumerate(speaker_of_row[:size].tolist()):
        name = f"id{speaker:06d}/{row:011d}/00001"
        yield f"{name}.wav,flac/{name}.flac,{4 + row % 997 / 100:.3f},id{speaker:06d}\n"


def _real_rows(path: Path | None) -> Iterator[str]:
    """Lines of a manifest of VoxCeleb2 dev, from its list of utterances and seconds."""
    assert path is not None
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            utterance, seconds = line.split()
            name = utterance.rsplit(".", 1)[0]
            yield f"{name}.wav,flac/{name}.flac,{seconds},{name.split('/')[0]}\n"


def _measure(path: Path, queue: Any) -> None:
    """Put the figures of a manifest into a queue."""
    libraries = memory("VmRSS")
    start = time.perf_counter()
    manifest = read_manifest(path, with_ids=False)
    loaded = time.perf_counter()
    sampler = SpeakerSampler(manifest.speaker_of_row, 128, 4)
    ready = time.perf_counter()
    microseconds = []
    for number in range(200):
        before = time.perf_counter()
        batch = sampler.batch(number)
        microseconds.append(1e6 * (time.perf_counter() - before))
    assert len(batch) == 512
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.put(
        {
            "manifest s": loaded - start,
            "sampler s": ready - loaded,
            "peak MiB": peak,
            "of this, libraries": libraries,
            "own to a worker MiB": _private_of_fork(CropDataset(manifest)),
            "microseconds per batch": statistics.median(microseconds),
        }
    )


def _private_of_fork(dataset: CropDataset) -> float:
    """MiB that a forked process holds for itself after looking up many rows."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def look_up() -> None:
        random = np.random.default_rng(1)
        for row in random.integers(len(dataset.manifest), size=100_000).tolist():
            dataset.manifest.wav(row)
        rollup = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
        queue.put(int(rollup.split("Private_Dirty:")[1].split()[0]) / 1024)

    process = context.Process(target=look_up)
    process.start()
    private = queue.get()
    process.join()
    return private
