"""Which crops make a batch: P speakers times K recordings, all of one length."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from simple_spk import SAMPLE_RATE
from simple_spk.distributed import rank, world_size
from simple_spk.schedules import StepwiseValue

logger = logging.getLogger(__name__)
# With more classes than this per class of a batch, drawing does not look at all classes ...
FEW_CLASSES = 16
# ... unless those that fill a batch can hold more than this share of all weights: drawing with
# replacement would return the same few again and again.
LARGEST_SHARE = 0.5
LONGEST_CROP_SECONDS = 3600.0

Example = TypeVar("Example")


class Words(NamedTuple):
    """How messages to the user call classes and rows."""

    classes: str
    rows: str
    rows_per_class: str


class ClassSampler(Sampler[list[Example]]):
    """Batches of P classes x K rows; subclasses implement ``batch`` with the drawing methods here.

    Classes are drawn without replacement with weight count ** ``count_exponent``; rows of one class
    are distinct if there are enough. With several processes each takes an equal share of the
    classes of the same batch: the content of a batch does not depend on their number.

    Arguments:
        class_of_row: the class (0, 1, ...) of each row.
        batches_per_epoch: how many batches an epoch has (None: as many as cover the rows once).
        minimum_rows: classes with fewer rows are left out.
    """

    words: ClassVar[Words]

    def __init__(
        self,
        class_of_row: NDArray[np.int32],
        classes_per_batch: int,
        rows_per_class: int,
        count_exponent: float,
        minimum_rows: int,
        batches_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        words, wanted = self.words, f"{self.words.classes}_per_batch"
        for name, number in (
            (wanted, classes_per_batch),
            (words.rows_per_class, rows_per_class),
            ("batches_per_epoch", 1 if batches_per_epoch is None else batches_per_epoch),
        ):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        # The rows of a class together, as prepared tables mostly have them.
        is_grouped = (class_of_row[1:] >= class_of_row[:-1]).all()
        self.rows = np.arange(len(class_of_row), dtype=np.int32)
        if not is_grouped:
            self.rows = np.argsort(class_of_row, kind="stable").astype(np.int32)
        counts = np.bincount(class_of_row)
        first_rows = np.cumsum(counts) - counts
        kept = np.flatnonzero(counts >= max(1, minimum_rows))
        if classes_per_batch > len(kept):
            raise ValueError(
                f"{wanted} is {classes_per_batch}, but only {len(kept)} {words.classes} have "
                f"at least {minimum_rows} {words.rows}: lower it or add data"
            )
        if classes_per_batch % world_size():
            raise ValueError(
                f"{wanted} {classes_per_batch} must be a multiple of the {world_size()} processes"
            )
        present = np.count_nonzero(counts)
        if len(kept) < present:
            logger.warning(
                f"{present - len(kept)} of {present} {words.classes} have fewer than "
                f"{minimum_rows} {words.rows} and are left out"
            )
        self.classes, self.number_of_classes = kept, len(counts)
        self.counts, self.first_rows = counts[kept], first_rows[kept]
        self.weights = self.counts.astype(np.float64) ** count_exponent
        self.weights_up_to = np.cumsum(self.weights)
        heaviest = np.sort(self.weights)[-classes_per_batch:].sum()
        self.is_uneven = bool(heaviest > LARGEST_SHARE * self.weights_up_to[-1])
        self.classes_per_batch = classes_per_batch
        self.rows_per_class = rows_per_class
        batch_size = classes_per_batch * rows_per_class
        self.batches_per_epoch = batches_per_epoch or max(1, int(self.counts.sum()) // batch_size)
        self.seed = seed
        self.epoch = 0
        self.first_batch = 0

    def set_epoch(self, epoch: int, first_batch: int = 0) -> None:
        """Let the next iteration be that of ``epoch``, from its batch ``first_batch`` on."""
        self.epoch, self.first_batch = epoch, first_batch

    def __len__(self) -> int:
        return self.batches_per_epoch

    def __iter__(self) -> Iterator[list[Example]]:
        for number in range(self.first_batch, self.batches_per_epoch):
            yield self.batch(number)

    def batch(self, number: int) -> list[Example]:
        """This process's share of batch ``number`` of the epoch, class by class."""
        raise NotImplementedError

    def random_of_batch(self, number: int) -> np.random.Generator:
        """The generator of all randomness in a batch."""
        return np.random.default_rng((self.seed, self.epoch, number))

    def share(self, *columns: Any) -> Iterator[tuple[Any, ...]]:
        """This process's examples of a batch, from columns (P, K), (P,) or a number for all."""
        mine, times = slice(rank(), None, world_size()), self.rows_per_class  # of the classes
        count = self.classes_per_batch // world_size() * times
        values = (
            [one] * count
            if isinstance(one, int)
            else (one[mine].ravel() if one.ndim == 2 else one[mine].repeat(times)).tolist()
            for one in columns
        )
        return zip(*values, strict=True)

    def draw_classes(self, random: np.random.Generator, copies: int = 1) -> NDArray[np.int64]:
        """Distinct places (P,) in ``self.classes``, or copy * classes + place, drawn by weight.

        With few classes, or a few that outweigh all others, the P smallest of exponential
        variables with the weights as rates. Else the first P distinct ones of a draw with
        replacement, whose cost does not grow with the classes. Both have the same distribution.
        """
        wanted, all_copies = self.classes_per_batch, copies * len(self.weights)
        if self.is_uneven or all_copies <= FEW_CLASSES * wanted:
            waits = random.exponential(size=all_copies) / np.tile(self.weights, copies)
            if wanted == all_copies:
                return np.argsort(waits)
            return np.argpartition(waits, wanted)[:wanted]
        drawn = np.empty(0, dtype=np.int64)
        while True:
            points = random.random(2 * wanted) * self.weights_up_to[-1]
            places = np.searchsorted(self.weights_up_to, points, side="right")
            copy_of = random.integers(copies, size=len(points))
            drawn = np.append(drawn, copy_of * len(self.weights) + places)
            distinct, first_places = np.unique(drawn, return_index=True)
            if len(distinct) >= wanted:
                return drawn[np.sort(first_places)[:wanted]]

    def draw_rows(
        self, random: np.random.Generator, places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Rows (P, K), K of each class: every subset equally likely."""
        chosen = draw_subsets(random, self.counts[places], self.rows_per_class)
        return self.rows[self.first_rows[places][:, None] + chosen]


def draw_subsets(
    random: np.random.Generator, counts: NDArray[np.int64], wanted: int
) -> NDArray[np.int64]:
    """Numbers (n, wanted) below counts (n,): every subset equally likely (Floyd's method)."""
    chosen = np.full((len(counts), wanted), -1)
    for number in range(wanted):
        last = counts - wanted + number  # Floyd's bound; negative if there are not enough
        draw = random.integers(0, np.where(last < 0, counts - 1, last), endpoint=True)
        taken = (chosen == draw[:, None]).any(axis=1) & (last >= 0)
        chosen[:, number] = np.where(taken, last, draw)
    return chosen


def draw_seeds(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Seeds of what is done to examples after reading."""
    return random.integers(2**62, size=shape)


class Crop(NamedTuple):
    """One training example to be read, and all that is random about it."""

    row: int  # of the manifest
    label: int  # the speaker; the same voice at another speed is another speaker
    position: float  # where in the recording, 0 to 1
    samples: int
    speed: float = 1.0
    seed: int = 0  # of what is done to the crop after reading


class Sessions(NamedTuple):
    """Where the rows of sessions are, and the sessions of speakers."""

    first_rows: NDArray[np.int64]  # (sessions,) in the sampler's rows
    row_counts: NDArray[np.int64]  # (sessions,)
    session_counts: NDArray[np.int64]  # (kept speakers,)
    first_sessions: NDArray[np.int64]  # (kept speakers,)


class SpeakerSampler(ClassSampler[Crop]):
    """Batches of ``speakers_per_batch`` x ``recordings_per_speaker`` crops of one common length.

    Arguments:
        speaker_of_row: the speaker (0, 1, ...) of each manifest row.
        crop_seconds: shortest and longest crop; one length is drawn for each batch. A mapping
            {epoch: [shortest, longest]} changes them at the start of these epochs (1, 2, ...).
        speeds: each speaker counts as one more speaker at each of these speeds, which must begin
            with 1.0. A mapping {epoch: speeds} changes them, too.
        minimum_recordings: speakers with fewer recordings are left out.
        session_of_row: the session (0, 1, ...) of each row, or None. If given, recordings of a
            speaker in a batch are of different sessions as far as there are any, so that target
            pairs do not share a channel.
        epochs: batches_per_epoch and seed, as ``ClassSampler`` takes them.
    """

    words = Words("speakers", "recordings", "recordings_per_speaker")

    def __init__(
        self,
        speaker_of_row: NDArray[np.int32],
        speakers_per_batch: int,
        recordings_per_speaker: int,
        crop_seconds: Sequence[float] | Mapping[int, Sequence[float]] = (3.0, 8.0),
        sample_rate: int = SAMPLE_RATE,
        count_exponent: float = 0.5,
        minimum_recordings: int = 2,
        speeds: Sequence[float] | Mapping[int, Sequence[float]] = (1.0,),
        session_of_row: NDArray[np.int32] | None = None,
        **epochs: Any,
    ) -> None:
        self.crop_seconds = StepwiseValue("crop_seconds", crop_seconds, crop_limits)
        self.sample_rate = sample_rate
        self.speeds = StepwiseValue("speeds", speeds, _checked_speeds)
        super().__init__(
            speaker_of_row,
            speakers_per_batch,
            recordings_per_speaker,
            count_exponent,
            minimum_recordings,
            **epochs,
        )
        self.sessions: Sessions | None = None
        if session_of_row is not None:
            self._sort_by_session(speaker_of_row, session_of_row)

    def _sort_by_session(
        self, speaker_of_row: NDArray[np.int32], session_of_row: NDArray[np.int32]
    ) -> None:
        """Put the rows of a session together, and note where those of each speaker are."""
        self.rows = np.lexsort((session_of_row, speaker_of_row)).astype(np.int32)
        speakers, sessions = speaker_of_row[self.rows], session_of_row[self.rows]
        begins = np.flatnonzero(np.diff(speakers, prepend=-1) | np.diff(sessions, prepend=-1))
        row_counts = np.diff(begins, append=len(self.rows))
        counts = np.bincount(speakers[begins], minlength=self.number_of_classes)
        first = np.cumsum(counts) - counts
        self.sessions = Sessions(begins, row_counts, counts[self.classes], first[self.classes])

    def draw_rows(
        self, random: np.random.Generator, places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Rows (P, K), K of each speaker, of different sessions if these are known.

        With fewer sessions than K, those of a speaker are drawn like rows of one without sessions.
        """
        rows, known = super().draw_rows(random, places), self.sessions
        if known is None or self.rows_per_class == 1:
            return rows
        chosen = draw_subsets(random, known.session_counts[places], self.rows_per_class)
        sessions = known.first_sessions[places][:, None] + chosen
        across = known.first_rows[sessions] + random.integers(known.row_counts[sessions])
        has_enough = known.session_counts[places] >= self.rows_per_class
        return np.where(has_enough[:, None], self.rows[across], rows)

    def batch(self, number: int) -> list[Crop]:
        """This process's share of batch ``number`` of the epoch, speaker by speaker."""
        random = self.random_of_batch(number)
        shortest, longest = (round(s * self.sample_rate) for s in self.crop_seconds(self.epoch))
        samples = int(random.integers(shortest, longest, endpoint=True))
        speeds = np.array(self.speeds(self.epoch))
        speed_of, speakers = np.divmod(self.draw_classes(random, len(speeds)), len(self.weights))
        labels = self.classes[speakers] + speed_of * self.number_of_classes
        rows = self.draw_rows(random, speakers)
        positions = random.random(rows.shape)
        seeds = draw_seeds(random, rows.shape)
        columns = (rows, labels, positions, samples, speeds[speed_of], seeds)
        return [Crop(*crop) for crop in self.share(*columns)]


def crop_limits(seconds: Sequence[float]) -> tuple[float, float]:
    """The shortest and the longest crop, checked to be in this order."""
    if not isinstance(seconds, Sequence) or len(seconds) != 2 or not 0.0 < seconds[0] <= seconds[1]:
        raise ValueError(f"crop_seconds must be two rising positive numbers, not {seconds}")
    if seconds[1] > LONGEST_CROP_SECONDS:
        raise ValueError(f"crop_seconds are at most {LONGEST_CROP_SECONDS:g}, not {seconds[1]:g}")
    return seconds[0], seconds[1]


def _checked_speeds(speeds: Sequence[float]) -> tuple[float, ...]:
    """Distinct speeds, the first of which is 1."""
    if not speeds or speeds[0] != 1.0 or len(set(speeds)) < len(speeds):
        raise ValueError(f"speeds must begin with 1.0 and differ, as in [1.0, 0.9, 1.1]: {speeds}")
    if not all(0.5 <= speed <= 2.0 for speed in speeds):
        raise ValueError(f"speeds must lie between 0.5 and 2: {speeds}")
    return tuple(map(float, speeds))
