"""Crops of 3 s out of recordings of 20 s, by one process: from loose files and from tar files.

Both ways make the same batch of 64 through the dataset of training; all files are in the cache of
the operating system, so that the cost of the way itself shows.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import soundfile
import torch

from simple_spk.corpora.tar_shards import store_recordings
from simple_spk.data.dataset import CropDataset
from simple_spk.data.manifest import read_manifest, write_manifest
from simple_spk.data.samplers import SpeakerSampler
from tools.benchmarks.loader import CROP_SECONDS, RATE, RECORDINGS, SECONDS, speech_of
from tools.benchmarks.measure import Row, in_turns

SHARD_MEGABYTES = 10.0  # several tar files


def run(options: argparse.Namespace) -> list[Row]:
    """Crops per second of both ways, for both formats."""
    rows = []
    torch.set_num_threads(1)  # as in a worker process
    with tempfile.TemporaryDirectory() as folder:
        for audio_format in ("flac", "wav"):
            candidates = store_candidates(Path(folder), audio_format, options.data)
            crops = len(candidates["loose files"]())
            seconds = in_turns(candidates, rounds=101)
            rows += [
                {
                    "format": audio_format,
                    "how": name,
                    "crops per second": crops / seconds[name],
                    "time of loose files": seconds[name] / seconds["loose files"],
                }
                for name in candidates
            ]
    return rows


def store_candidates(
    folder: Path, audio_format: str, data: Path | None
) -> dict[str, Callable[[], torch.Tensor]]:
    """Two ways to make one and the same batch."""
    names = [f"{number}.{audio_format}" for number in range(RECORDINGS)]
    for number, name in enumerate(names):
        soundfile.write(folder / name, speech_of(number, data), RATE)
    speakers = [f"s{number // 4}" for number in range(RECORDINGS)]
    loose = folder / f"{audio_format}.csv"
    write_manifest(loose, names, names, [SECONDS] * RECORDINGS, speakers)
    stored = store_recordings(loose, folder / f"stored_{audio_format}", SHARD_MEGABYTES).manifest
    manifests = {"loose files": read_manifest(loose), "tar files": read_manifest(stored)}
    labels = manifests["loose files"].speaker_of_row
    batch = SpeakerSampler(labels, 16, 4, (CROP_SECONDS, CROP_SECONDS)).batch(0)

    def reader(dataset: CropDataset) -> Callable[[], torch.Tensor]:
        return lambda: torch.stack([dataset[crop].inputs for crop in batch])

    candidates = {name: reader(CropDataset(manifest)) for name, manifest in manifests.items()}
    assert torch.equal(*(candidate() for candidate in candidates.values()))
    return candidates
