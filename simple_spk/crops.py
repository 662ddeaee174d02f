"""The training data: from a sampled crop to a waveform and its label."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from simple_spk.audio import read_crop
from simple_spk.manifest import Manifest, read_manifest
from simple_spk.sampler import Crop, SpeakerSampler


class LabelledBatch(NamedTuple):
    """What a training step receives: inputs (n, ...) and the label (n,) of each."""

    inputs: Tensor
    labels: Tensor


class CropDataset(Dataset[LabelledBatch]):
    """The crops of a manifest's recordings, read when asked for."""

    def __init__(self, manifest: Manifest, sample_rate: int = 16000) -> None:
        self.manifest = manifest
        self.sample_rate = sample_rate

    def __getitem__(self, crop: Crop) -> LabelledBatch:
        path = self.manifest.wav(crop.row)
        waveform = read_crop(path, crop.samples, crop.position, self.sample_rate)
        label = torch.tensor(int(self.manifest.speaker_of_row[crop.row]))
        return LabelledBatch(torch.from_numpy(waveform), label)


def speaker_crop_loader(
    manifest: str | Path, sample_rate: int = 16000, workers: int = 0, **sampling: Any
) -> DataLoader[LabelledBatch]:
    """Batches of crops of a manifest's recordings, read by ``workers`` processes (0: by this one).

    ``sampling`` are the arguments of ``SpeakerSampler``.
    """
    utterances = read_manifest(manifest)
    sampler = SpeakerSampler(utterances.speaker_of_row, sample_rate=sample_rate, **sampling)
    return DataLoader(
        CropDataset(utterances, sample_rate),
        batch_sampler=sampler,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=workers > 0,
    )
