"""The training data: from a sampled crop to a waveform and its label."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import read_crop
from simple_spk.data.augmentation import Augmentation
from simple_spk.data.decoding import AudioError
from simple_spk.data.manifest import Manifest, read_manifest, sessions_of_rows
from simple_spk.data.samplers import Crop, SpeakerSampler


class LabeledBatch(NamedTuple):
    """Inputs (n, ...) and the label (n,) of each."""

    inputs: Tensor
    labels: Tensor


@contextlib.contextmanager
def explain_worker_failures() -> Iterator[None]:
    """Turn torch's errors about dead data workers into an OSError with a cure."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error)
        if "shared memory" in reason:  # torch says so of a bus error, too
            raise OSError(
                "a data worker found no room in shared memory: --workers=0 or a larger /dev/shm "
                "(docker run --shm-size=8g)"
            ) from error
        if "DataLoader worker" in reason:
            raise OSError(f"{reason}: did memory run out? give fewer --workers") from error
        raise


def labeled_loader(
    dataset: Dataset[LabeledBatch], batch_sampler: Iterable[list[Any]], workers: int
) -> DataLoader[LabeledBatch]:
    """The batches that a sampler draws, read by ``workers`` processes (0: by this one).

    Workers are forked, so that they share the manifest. They must not use polars, whose threads do
    not survive a fork; torch is safe in them, because they let it use one thread.
    """
    return DataLoader(
        dataset,
        batch_sampler=batch_sampler,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=workers > 0,
    )


class CropDataset(Dataset[LabeledBatch]):
    """The crops of a manifest's recordings, each read and augmented when it is asked for."""

    def __init__(
        self,
        manifest: Manifest,
        sample_rate: int = SAMPLE_RATE,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.manifest = manifest
        self.sample_rate = sample_rate
        self.augmentation = augmentation

    def __getitem__(self, crop: Crop) -> LabeledBatch:
        path = self.manifest.wav(crop.row)
        try:
            waveform = read_crop(path, crop.samples, crop.position, self.sample_rate, crop.speed)
            if self.augmentation is not None:
                waveform = self.augmentation(waveform, crop.seed)
        except (AudioError, OSError) as error:  # of a class that data workers can hand on
            cure = "repair the file; the same command then resumes from the last checkpoint"
            raise AudioError(f"training cannot go on: {error} ({cure})") from error
        return LabeledBatch(torch.from_numpy(waveform), torch.tensor(crop.label))


def speaker_crop_loader(
    manifest: str | Path,
    sample_rate: int = SAMPLE_RATE,
    workers: int = 0,
    augmentation: Callable[[], Augmentation] | None = None,
    folders_are_sessions: bool = False,
    **sampling: Any,
) -> DataLoader[LabeledBatch]:
    """Batches of crops of recordings; ``sampling`` are the arguments of ``SpeakerSampler``.

    ``augmentation`` is made here, once the data is prepared, because it reads lists of noises.
    With ``folders_are_sessions``, recordings in one folder are of one session, as the videos of
    VoxCeleb and the chapters of LibriSpeech are: a batch has a speaker's from different ones. A
    column session of the manifest tells it instead, if there is one.
    """
    utterances = read_manifest(manifest, with_ids=False)
    if folders_are_sessions:
        sampling["session_of_row"] = sessions_of_rows(utterances)
    sampler = SpeakerSampler(utterances.speaker_of_row, sample_rate=sample_rate, **sampling)
    made = None if augmentation is None else augmentation()
    dataset = CropDataset(utterances, sample_rate, made)
    return labeled_loader(dataset, sampler, workers)
