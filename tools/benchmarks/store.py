"""Crops of 3 s out of recordings of 20 s, by one process: from loose files and from tar files.

Both ways make the same batch of 64 through the dataset of training; all files are in the cache of
the operating system, so that the cost of the way itself shows.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from simple_spk.corpora.tar_shards import store_recordings
from simple_spk.data.dataset import CropDataset
from simple_spk.data.manifest import read_manifest
from tools.benchmarks.loader import Candidates, batch_of, loading_rows, write_recordings
from tools.benchmarks.measure import Row

SHARD_MEGABYTES = 10.0  # several tar files


def run(options: argparse.Namespace) -> list[Row]:
    """Crops per second of both ways, for both formats."""
    title = "time of loose files"
    return loading_rows(store_candidates, options.data, "loose files", title, rounds=101)


def store_candidates(folder: Path, audio_format: str, data: Path | None) -> Candidates:
    """Loose files and tar files."""
    loose = write_recordings(folder, audio_format, data)
    stored = store_recordings(loose, folder / f"stored_{audio_format}", SHARD_MEGABYTES).manifest
    manifests = {"loose files": read_manifest(loose), "tar files": read_manifest(stored)}
    batch = batch_of(manifests["loose files"])

    def reader(dataset: CropDataset) -> Callable[[], torch.Tensor]:
        return lambda: torch.stack([dataset[crop].inputs for crop in batch])

    candidates = {name: reader(CropDataset(manifest)) for name, manifest in manifests.items()}
    assert torch.equal(*(candidate() for candidate in candidates.values()))
    return candidates
