"""Which crops make a batch: P speakers times K recordings, all of one length."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.class_sampler import ClassSampler, Words, draw_seeds
from simple_spk.sample_rate import SAMPLE_RATE
from simple_spk.schedule import Stages


class Crop(NamedTuple):
    """One training example to be read, and all that is random about it."""

    row: int  # of the manifest
    label: int  # the speaker; the same voice at another speed is another speaker
    position: float  # where in the recording, 0 to 1
    samples: int
    speed: float = 1.0
    seed: int = 0  # of what is done to the crop after reading


class SpeakerSampler(ClassSampler[Crop]):
    """Batches of ``speakers_per_batch`` x ``recordings_per_speaker`` crops of one common length.

    Speakers and their recordings are drawn as ``ClassSampler`` says.

    Arguments:
        speaker_of_row: the speaker (0, 1, ...) of each manifest row.
        crop_seconds: shortest and longest crop; one length is drawn for each batch. A mapping
            {epoch: [shortest, longest]} changes them at the start of these epochs (1, 2, ...).
        speeds: each speaker counts as one more speaker at each of these speeds, which must begin
            with 1.0. A mapping {epoch: speeds} changes them, too.
        batches_per_epoch: how many batches an epoch has (None: as many as cover the rows once).
        minimum_recordings: speakers with fewer recordings are left out.
    """

    words = Words("speakers", "recordings", "recordings_per_speaker")

    def __init__(
        self,
        speaker_of_row: NDArray[np.int32],
        speakers_per_batch: int,
        recordings_per_speaker: int,
        crop_seconds: Sequence[float] | Mapping[int, Sequence[float]] = (3.0, 8.0),
        sample_rate: int = SAMPLE_RATE,
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
        super().__init__(
            speaker_of_row,
            speakers_per_batch,
            recordings_per_speaker,
            batches_per_epoch,
            count_exponent,
            minimum_recordings,
            seed,
        )

    def batch(self, number: int) -> list[Crop]:
        """This process's share of batch ``number`` of the epoch, speaker by speaker."""
        random = self.random_of_batch(number)
        shortest, longest = self.crop_samples(self.epoch)
        samples = int(random.integers(shortest, longest, endpoint=True))
        speeds = np.array(self.speeds(self.epoch))
        speed_of, speakers = np.divmod(self.draw_classes(random, len(speeds)), len(self.weights))
        labels = self.classes[speakers] + speed_of * self.number_of_classes
        rows = self.draw_rows(random, speakers)
        positions = random.random(rows.shape)
        seeds = draw_seeds(random, rows.shape)
        share = self.share
        crops = zip(
            rows[share].ravel().tolist(),
            labels[share].repeat(self.rows_per_class).tolist(),
            positions[share].ravel().tolist(),
            [samples] * rows[share].size,
            speeds[speed_of][share].repeat(self.rows_per_class).tolist(),
            seeds[share].ravel().tolist(),
            strict=True,
        )
        return [Crop(*crop) for crop in crops]


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
