"""Which crops make a batch: P speakers times K recordings, all of one length.

All randomness of the data is drawn here, from (seed, epoch, number of the batch) alone: any batch
can be made again at any time, in any process, which is what exact resumption rests on.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from simple_spk.distributed import rank, world_size
from simple_spk.schedule import Stages

logger = logging.getLogger(__name__)
# With more speakers than this for each one of a batch, a batch is drawn without looking at all.
FEW_SPEAKERS = 16
# But not if those that fill a batch can have more than this share of all weights: drawing would
# bring the same few again and again.
LARGEST_SHARE = 0.5


class Crop(NamedTuple):
    """One training example to be read, and all that is random about it."""

    row: int  # of the manifest
    label: int  # the speaker; the same voice at another speed is another speaker
    position: float  # where in the recording, 0 to 1
    samples: int
    speed: float = 1.0
    seed: int = 0  # of what is done to the crop after reading


class SpeakerSampler(Sampler[list[Crop]]):
    """Batches of ``speakers_per_batch`` x ``recordings_per_speaker`` crops of one common length.

    Speakers are drawn without replacement with weight count ** ``count_exponent``; recordings of
    one speaker are distinct if there are enough. With several processes each takes an equal share
    of the speakers of the same batch: what a batch teaches does not depend on their number.

    Arguments:
        speaker_of_row: the speaker (0, 1, ...) of each manifest row.
        crop_seconds: shortest and longest crop; one length is drawn for each batch. A mapping
            {epoch: [shortest, longest]} changes them at the start of these epochs (1, 2, ...).
        speeds: each speaker counts as one more speaker at each of these speeds, which must begin
            with 1.0. A mapping {epoch: speeds} changes them, too.
        batches_per_epoch: how many batches an epoch has (None: as many as cover the rows once).
        minimum_recordings: speakers with fewer recordings are left out.
    """

    def __init__(
        self,
        speaker_of_row: NDArray[np.int32],
        speakers_per_batch: int,
        recordings_per_speaker: int,
        crop_seconds: Sequence[float] | Mapping[int, Sequence[float]] = (3.0, 8.0),
        sample_rate: int = 16000,
        batches_per_epoch: int | None = None,
        count_exponent: float = 0.5,
        minimum_recordings: int = 2,
        seed: int = 0,
        speeds: Sequence[float] | Mapping[int, Sequence[float]] = (1.0,),
    ) -> None:
        self.crop_samples = Stages(
            "crop_seconds", crop_seconds, lambda limits: _sample_limits(limits, sample_rate)
        )
        self.speeds = Stages("speeds", speeds, _checked_speeds)
        for name, number in (
            ("speakers_per_batch", speakers_per_batch),
            ("recordings_per_speaker", recordings_per_speaker),
            ("batches_per_epoch", 1 if batches_per_epoch is None else batches_per_epoch),
        ):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        self.rows = _grouped(speaker_of_row)
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
        if len(kept) < np.count_nonzero(counts):
            logger.warning(
                "%d of %d speakers have fewer than %d recordings and are left out",
                *(np.count_nonzero(counts) - len(kept), np.count_nonzero(counts)),
                minimum_recordings,
            )
        self.speakers, self.number_of_speakers = kept, len(counts)
        self.counts, self.first_rows = counts[kept], first_rows[kept]
        self.weights = self.counts.astype(np.float64) ** count_exponent
        self.weights_up_to = np.cumsum(self.weights)
        heaviest = np.sort(self.weights)[-speakers_per_batch:].sum()
        self.is_uneven = bool(heaviest > LARGEST_SHARE * self.weights_up_to[-1])
        self.speakers_per_batch = speakers_per_batch
        self.recordings_per_speaker = recordings_per_speaker
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
        shortest, longest = self.crop_samples(self.epoch)
        samples = int(random.integers(shortest, longest, endpoint=True))
        speeds = np.array(self.speeds(self.epoch))
        voices = self._draw_voices(random, len(speeds))
        speed_of, speakers = np.divmod(voices, len(self.weights))
        labels = self.speakers[speakers] + speed_of * self.number_of_speakers
        rows = self._draw_rows(random, speakers)
        positions = random.random(rows.shape)
        seeds = random.integers(2**62, size=rows.shape)
        share = slice(rank(), None, world_size())
        crops = zip(
            rows[share].ravel().tolist(),
            labels[share].repeat(self.recordings_per_speaker).tolist(),
            positions[share].ravel().tolist(),
            [samples] * rows[share].size,
            speeds[speed_of][share].repeat(self.recordings_per_speaker).tolist(),
            seeds[share].ravel().tolist(),
            strict=True,
        )
        return [Crop(*crop) for crop in crops]

    def _draw_voices(self, random: np.random.Generator, speeds: int) -> NDArray[np.int64]:
        """Distinct voices (P,), drawn one after the other by weight: speed * speakers + speaker.

        With few speakers, or a few that outweigh all others: the first of exponential alarm clocks,
        one each, with the weights as rates to ring. Else: those who come up first when drawing with
        replacement, at a cost that does not grow with their number. Both have just that
        distribution.
        """
        wanted, all_voices = self.speakers_per_batch, speeds * len(self.weights)
        if self.is_uneven or all_voices <= FEW_SPEAKERS * wanted:
            alarms = random.exponential(size=all_voices) / np.tile(self.weights, speeds)
            if wanted == all_voices:
                return np.argsort(alarms)
            return np.argpartition(alarms, wanted)[:wanted]
        drawn = np.empty(0, dtype=np.int64)
        while True:
            points = random.random(2 * wanted) * self.weights_up_to[-1]
            speakers = np.searchsorted(self.weights_up_to, points, side="right")
            speed_of = random.integers(speeds, size=len(points))
            drawn = np.append(drawn, speed_of * len(self.weights) + speakers)
            distinct, first_places = np.unique(drawn, return_index=True)
            if len(distinct) >= wanted:
                return drawn[np.sort(first_places)[:wanted]]

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


def _grouped(speaker_of_row: NDArray[np.int32]) -> NDArray[np.int32]:
    """The numbers of all rows, those of a speaker together; 32 bits are enough for them."""
    if (speaker_of_row[1:] >= speaker_of_row[:-1]).all():  # as prepared manifests mostly are
        return np.arange(len(speaker_of_row), dtype=np.int32)
    return np.argsort(speaker_of_row, kind="stable").astype(np.int32)


def _sample_limits(seconds: Sequence[float], sample_rate: int) -> tuple[int, int]:
    """The shortest and the longest crop in samples."""
    if len(seconds) != 2 or not 0.0 < seconds[0] <= seconds[1]:
        raise ValueError(f"crop_seconds must be two rising positive numbers, not {seconds}")
    return round(seconds[0] * sample_rate), round(seconds[1] * sample_rate)


def _checked_speeds(speeds: Sequence[float]) -> tuple[float, ...]:
    """Speeds that can be told apart, the first of which leaves a voice as it is."""
    if not speeds or speeds[0] != 1.0 or len(set(speeds)) < len(speeds):
        raise ValueError(f"speeds must begin with 1.0 and differ, as in [1.0, 0.9, 1.1]: {speeds}")
    if not all(0.5 <= speed <= 2.0 for speed in speeds):
        raise ValueError(f"speeds must lie between 0.5 and 2: {speeds}")
    return tuple(map(float, speeds))
