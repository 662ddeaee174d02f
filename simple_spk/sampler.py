"""Which crops make a batch: P speakers times K recordings, all of one length.

All randomness of the data is drawn here, from (seed, epoch, number of the batch) alone: any batch
can be made again at any time, in any process, which is what exact resumption rests on.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from simple_spk.distributed import rank, world_size


class Crop(NamedTuple):
    """One training example to be read: a manifest row, where in it (0 to 1), how many samples."""

    row: int
    position: float
    samples: int


class SpeakerSampler(Sampler[list[Crop]]):
    """Batches of ``speakers_per_batch`` x ``recordings_per_speaker`` crops of one common length.

    Speakers are drawn without replacement with weight count ** ``count_exponent``; recordings of
    one speaker are distinct if there are enough. With several processes each takes an equal share
    of the speakers of the same batch: what a batch teaches does not depend on their number.

    Arguments:
        speaker_of_row: the speaker (0, 1, ...) of each manifest row.
        crop_seconds: shortest and longest crop; one length is drawn for each batch.
        batches_per_epoch: how many batches an epoch has (None: as many as cover the rows once).
        minimum_recordings: speakers with fewer recordings are left out.
    """

    def __init__(
        self,
        speaker_of_row: NDArray[np.int32],
        speakers_per_batch: int,
        recordings_per_speaker: int,
        crop_seconds: tuple[float, float] = (3.0, 8.0),
        sample_rate: int = 16000,
        batches_per_epoch: int | None = None,
        count_exponent: float = 0.5,
        minimum_recordings: int = 2,
        seed: int = 0,
    ) -> None:
        shortest, longest = crop_seconds
        if not 0.0 < shortest <= longest:
            raise ValueError(
                f"crop_seconds must be two rising positive numbers, not {crop_seconds}"
            )
        for name, number in (
            ("speakers_per_batch", speakers_per_batch),
            ("recordings_per_speaker", recordings_per_speaker),
            ("batches_per_epoch", 1 if batches_per_epoch is None else batches_per_epoch),
        ):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        self.rows = np.argsort(speaker_of_row, kind="stable")  # grouped by speaker
        counts = np.bincount(speaker_of_row)
        first_rows = np.cumsum(counts) - counts
        kept = np.flatnonzero(counts >= max(1, minimum_recordings))
        if speakers_per_batch > len(kept):
            raise ValueError(
                f"speakers_per_batch is {speakers_per_batch}, but only {len(kept)} speakers have "
                f"at least {minimum_recordings} recordings: lower it or add data"
            )
        if speakers_per_batch % world_size():
            raise ValueError(
                f"speakers_per_batch {speakers_per_batch} must be a multiple of the number of "
                f"processes, {world_size()}"
            )
        self.counts, self.first_rows = counts[kept], first_rows[kept]
        self.weights = self.counts.astype(np.float64) ** count_exponent
        self.speakers_per_batch = speakers_per_batch
        self.recordings_per_speaker = recordings_per_speaker
        self.crop_samples = round(shortest * sample_rate), round(longest * sample_rate)
        batch_size = speakers_per_batch * recordings_per_speaker
        self.batches_per_epoch = batches_per_epoch or max(1, int(self.counts.sum()) // batch_size)
        self.seed = seed
        self.epoch = 0
        self.first_batch = 0

    def set_epoch(self, epoch: int, first_batch: int = 0) -> None:
        """Make the next iteration that of ``epoch``, beginning with its batch ``first_batch``."""
        self.epoch, self.first_batch = epoch, first_batch

    def __len__(self) -> int:
        return self.batches_per_epoch

    def __iter__(self) -> Iterator[list[Crop]]:
        for number in range(self.first_batch, self.batches_per_epoch):
            yield self.batch(number)

    def batch(self, number: int) -> list[Crop]:
        """This process's share of batch ``number`` of the epoch, speaker by speaker."""
        random = np.random.default_rng((self.seed, self.epoch, number))
        samples = int(random.integers(self.crop_samples[0], self.crop_samples[1], endpoint=True))
        speakers = self._draw_speakers(random)
        rows = self._draw_rows(random, speakers)
        positions = random.random(rows.shape)
        share = slice(rank(), None, world_size())
        return [
            Crop(row, position, samples)
            for row, position in zip(
                rows[share].ravel().tolist(), positions[share].ravel().tolist(), strict=True
            )
        ]

    def _draw_speakers(self, random: np.random.Generator) -> NDArray[np.int64]:
        """Distinct speakers (P,), drawn one after the other by weight.

        The first P of exponential alarm clocks with the weights as rates to ring have just that
        distribution.
        """
        alarms = random.exponential(size=len(self.weights)) / self.weights
        if self.speakers_per_batch == len(alarms):
            return np.argsort(alarms)
        return np.argpartition(alarms, self.speakers_per_batch)[: self.speakers_per_batch]

    def _draw_rows(
        self, random: np.random.Generator, speakers: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Manifest rows (P, K), K of each speaker: every subset equally likely (Floyd's method)."""
        counts, wanted = self.counts[speakers], self.recordings_per_speaker
        chosen = np.full((len(speakers), wanted), -1)
        for number in range(wanted):
            last = counts - wanted + number  # Floyd's bound; negative if recordings do not suffice
            draw = random.integers(0, np.where(last < 0, counts - 1, last), endpoint=True)
            taken = (chosen == draw[:, None]).any(axis=1) & (last >= 0)
            chosen[:, number] = np.where(taken, last, draw)
        return self.rows[self.first_rows[speakers][:, None] + chosen]
