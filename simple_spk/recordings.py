"""Embeddings of whole recordings: read ahead, batched by length, padded without effect."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from simple_spk.audio import AudioError, duration_seconds, read_recording
from simple_spk.distributed import gather_objects, rank, world_size

# From padded waveforms (n, samples) and their lengths (n,) to embeddings (n, dim).
Embed = Callable[[Tensor, Tensor], Tensor]
Answer = TypeVar("Answer")

SHORTEST_SECONDS = 0.025  # one frame of the filterbank: less cannot be embedded at all
OPENED_AT_ONCE = 16  # files that are looked at together: network disks answer slowly, but many


class RecordingDataset(Dataset[Tensor | AudioError]):
    """Whole recordings as waveforms (samples,); an error is returned, to be raised by the caller.

    (Raised in a worker process, it would arrive wrapped in that process's traceback.)
    """

    def __init__(self, paths: Sequence[Path], sample_rate: int) -> None:
        self.paths = paths
        self.sample_rate = sample_rate

    def __getitem__(self, index: int) -> Tensor | AudioError:
        path = self.paths[index]
        try:
            waveform = read_recording(path, self.sample_rate)
        except AudioError as error:
            return error
        if len(waveform) < SHORTEST_SECONDS * self.sample_rate:
            return too_short(path, len(waveform) / self.sample_rate)
        return torch.from_numpy(waveform)


def embed_recordings(
    paths: Sequence[Path],
    embed: Embed,
    sample_rate: int = 16000,
    batch_seconds: float = 120.0,
    workers: int = 0,
    progress: bool = True,
    durations_seconds: NDArray[np.floating] | None = None,
) -> NDArray[np.float32]:
    """Embeddings (n, dim) of n recordings, in the order given; several processes share the work.

    batch_seconds bounds the padded audio of a batch, except that one recording always fits.
    durations_seconds (n,) are those of a manifest, so that no file is opened just to learn them.
    """
    if not paths:
        raise ValueError("there are no recordings to embed")
    mine = np.arange(len(paths))[rank() :: world_size()]
    if durations_seconds is None:
        durations = recording_seconds([paths[index] for index in mine], progress)
    else:
        durations = durations_seconds[mine].astype(np.float64)
    batches = [mine[batch].tolist() for batch in length_batches(durations, batch_seconds)]
    loader: DataLoader = DataLoader(
        RecordingDataset(paths, sample_rate),
        batch_sampler=batches,
        collate_fn=_pad,
        num_workers=workers,
    )
    bar = tqdm(total=len(mine), unit="rec", desc="embed", disable=not progress or rank() > 0)
    embeddings = []
    with torch.no_grad(), bar:
        for batch in loader:
            if isinstance(batch, AudioError):
                raise batch
            waveforms, lengths = batch
            embeddings.append(embed(waveforms, lengths).float().cpu().numpy())
            bar.update(len(lengths))
    order = [index for batch in batches for index in batch]
    parts = gather_objects((order, embeddings))
    rows = np.concatenate([part for _, arrays in parts for part in arrays])
    result = np.empty_like(rows)
    result[[index for indexes, _ in parts for index in indexes]] = rows
    return result


def length_batches(durations: NDArray[np.float64], batch_seconds: float) -> list[NDArray[np.int64]]:
    """Indexes grouped by similar duration, longest first; a group's padded length is bounded.

    >>> [batch.tolist() for batch in length_batches(np.array([1.0, 9.0, 2.0, 2.0]), 5.0)]
    [[1], [2, 3], [0]]
    """
    order = np.argsort(-durations, kind="stable")
    batches, start = [], 0
    while start < len(order):
        fitting = max(1, int(batch_seconds / durations[order[start]]))
        batches.append(order[start : start + fitting])
        start += fitting
    return batches


def recording_seconds(paths: Sequence[Path], progress: bool = True) -> NDArray[np.float64]:
    """The durations (n,) of n recordings, each long enough to be embedded."""
    durations = np.array(ask_all(duration_seconds, paths, "durations", progress))
    short = np.flatnonzero(durations < SHORTEST_SECONDS)
    if len(short):
        raise too_short(paths[short[0]], durations[short[0]])
    return durations


def ask_all(
    question: Callable[[Path], Answer], paths: Sequence[Path], what: str, progress: bool = True
) -> list[Answer]:
    """The answers for n files, in their order; several files are asked at the same time."""
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        answers = pool.map(question, paths)
        quiet = not progress or rank() > 0
        bar = tqdm(answers, what, len(paths), leave=False, unit="rec", delay=1.0, disable=quiet)
        return list(bar)


def too_short(path: Path, seconds: float) -> AudioError:
    """What to say about a recording of which no embedding can be made."""
    return AudioError(
        f"{path} lasts {seconds * 1000:.1f} ms, less than one frame of "
        f"{SHORTEST_SECONDS * 1000:.0f} ms: leave it out"
    )


def _pad(waveforms: list[Tensor | AudioError]) -> tuple[Tensor, Tensor] | AudioError:
    """Waveforms (n, longest) filled up with zeros, and their lengths (n,); or the first error."""
    usable = []
    for waveform in waveforms:
        if isinstance(waveform, AudioError):
            return waveform
        usable.append(waveform)
    lengths = torch.tensor([len(waveform) for waveform in usable])
    return pad_sequence(usable, batch_first=True), lengths
