"""Embeddings of whole recordings, in batches of similar length.

Threads read recordings ahead while the model computes. A recording longer than a window is read and
embedded window by window, in the memory of a few windows: its embedding is the mean of theirs,
weighted by their lengths, like a template of several recordings.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, compress, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from simple_spk import LONGEST_SECONDS, SAMPLE_RATE
from simple_spk.data.audio import (
    CANCELING,
    AudioError,
    Samples,
    array_blocks,
    array_seconds,
    channels_cancel,
    is_silent,
    read_header,
    recording_blocks,
)
from simple_spk.data.content import misnamed
from simple_spk.data.decoding import check_length
from simple_spk.distributed import gather_objects, rank, usable_cores, world_size
from simple_spk.inference.speech_quality import QualityMeter, RecordingQuality

Recording = str | Path | Samples  # a file, or its samples
# From padded waveforms (n, samples) and their lengths (n,) to embeddings (n, dim).
Embed = Callable[[Tensor, Tensor], Tensor]
Waveform = NDArray[np.float32]  # (samples,)
Unusable = AudioError | OSError  # why a recording has no embedding
Answer = TypeVar("Answer")
Asked = TypeVar("Asked")

FRAME_SECONDS = 0.025  # of most filterbanks
WINDOW_SECONDS = 60.0  # hardly any utterance of a corpus is longer; ResNet-34 needs 0.25 GB for it
BATCH_SECONDS = 120.0
OPENED_AT_ONCE = 16  # files opened in parallel: network disks are slow, but serve many requests
ASKED_AHEAD = 16 * OPENED_AT_ONCE  # pending requests: a list may have millions of files
MOST_READERS = 8  # reading threads, unless the caller asks for more
# Of the first window, which tell whether one speaker says it all.
LEAST_PART_SECONDS, MOST_PARTS = 3.0, 4
NO_EMBEDDINGS = np.empty((0, 0), np.float32)
SILENT = "is silent, its samples are nearly equal: leave it out"
NOT_FINITE = ": the model makes no finite embedding: leave it out"


@dataclass(frozen=True, eq=False)
class ExtractionOptions:
    """How recordings are read and batched."""

    sample_rate: int = SAMPLE_RATE  # of the model, in hertz: recordings are resampled to it
    source_rate: int | None = None  # of arrays and tensors, which need it
    frame_seconds: float = FRAME_SECONDS  # of the front end; shorter recordings are errors
    longest_seconds: float = LONGEST_SECONDS  # longer recordings are errors
    batch_seconds: float = BATCH_SECONDS  # most padded audio in a batch of several recordings
    workers: int = 0  # threads that read ahead; 0: one per core, at most MOST_READERS
    progress: bool = False
    durations_seconds: NDArray[np.floating] | None = None  # (n,): no file is opened to find them
    with_quality: bool = False
    with_parts: bool = False


DEFAULTS = ExtractionOptions()


class EmbeddedBatch(NamedTuple):
    """Some of the recordings, by their indexes: embedded ones, and errors of unusable ones."""

    indexes: list[int]
    embeddings: NDArray[np.float32]  # (n, dim), in the order of the indexes
    qualities: list[RecordingQuality]  # n, or empty if not asked for
    errors: dict[int, Unusable]
    parts: Sequence[NDArray[np.float32]] = ()  # n (parts, dim), or none if not asked for


class NoSpeechError(AudioError):
    """A recording that can be read, but is silent or too short for an embedding."""


def embed_recordings(
    recordings: Sequence[Recording], embed: Embed, options: ExtractionOptions = DEFAULTS
) -> NDArray[np.float32]:
    """Embeddings (n, dim) of n recordings, in the order given; several processes share the work.

    Raises the error of an unusable recording.
    """
    if not len(recordings):
        raise ValueError("there are no recordings to embed")
    order: list[int] = []
    embeddings: list[NDArray[np.float32]] = []
    errors: dict[int, Unusable] = {}
    with embedding_bar(len(recordings), options.progress) as bar:
        for batch in embedded_batches(recordings, embed, options):
            order += batch.indexes
            embeddings.append(batch.embeddings)
            bar.update(len(batch.indexes))
            if batch.errors:  # stop, but take part in gather_objects: other processes wait there
                errors = batch.errors
                break
    parts = gather_objects((order, embeddings, errors))
    for error in chain.from_iterable(failed.values() for _, _, failed in parts):
        raise error
    rows = np.concatenate([array for _, arrays, _ in parts for array in arrays if len(array)])
    result = np.empty_like(rows)
    result[[index for indexes, _, _ in parts for index in indexes]] = rows
    return result


def embedding_bar(recordings: int, progress: bool = True) -> tqdm:
    """The progress bar of this process's share of recordings; the first process shows it."""
    share = len(range(rank(), recordings, world_size()))
    return tqdm(total=share, unit="rec", desc="embed", disable=not progress or rank() > 0)


def embedded_batches(
    recordings: Sequence[Recording], embed: Embed, options: ExtractionOptions = DEFAULTS
) -> Iterator[EmbeddedBatch]:
    """The embeddings of recordings as they are computed, longest recordings first.

    Each index comes once, embedded or with its error, on one of the processes.
    """
    if options.workers < 0:
        raise ValueError(f"workers, the reading threads, are 0 or more, not {options.workers}")
    sources = [Source(recording, place, options) for place, recording in enumerate(recordings)]
    mine = np.arange(len(sources))[rank() :: world_size()]
    if options.durations_seconds is None:
        own = [sources[i] for i in mine]
        answers = ask_all(Source.seconds, own, "durations", options.progress)
        durations = np.array([np.nan if isinstance(a, Exception) else a for a in answers])
        errors = {int(i): a for i, a in zip(mine, answers, strict=True) if isinstance(a, Exception)}
        if errors:
            yield EmbeddedBatch([], NO_EMBEDDINGS, [], errors)
    else:
        durations = options.durations_seconds[mine].astype(np.float64)
    for index, seconds in zip(mine, durations.tolist(), strict=True):
        sources[index].stated_seconds = seconds
    readable = np.flatnonzero(~np.isnan(durations))
    batches = length_batches(durations[readable], options.batch_seconds)
    threads = options.workers or min(usable_cores(), MOST_READERS)
    pool = ThreadPoolExecutor(threads)
    try:
        places = (mine[readable[batch]].tolist() for batch in batches)
        for futures in _read_ahead(pool, sources, places, 2 * threads):
            opened = {index: future.result() for index, future in futures.items()}
            yield from _embedded(opened, embed, options, pool)
    finally:
        pool.shutdown(cancel_futures=True)


def length_batches(durations: NDArray[np.float64], batch_seconds: float) -> list[NDArray[np.int64]]:
    """Indexes grouped by similar duration, longest first; padded groups last batch_seconds at most.

    >>> [batch.tolist() for batch in length_batches(np.array([1.0, 9.0, 2.0, 2.0]), 5.0)]
    [[1], [2, 3], [0]]
    """
    order = np.argsort(-durations, kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(durations[order[start]], FRAME_SECONDS)  # it may be zero in a header
        fitting = max(1, int(batch_seconds / longest))
        batches.append(order[start : start + fitting])
        start += fitting
    return batches


def ask_all(
    question: Callable[[Asked], Answer], asked: Sequence[Asked], what: str, progress: bool = True
) -> list[Answer]:
    """The answers for n files, in their order, computed by several threads."""
    quiet = not progress or rank() > 0
    answers: list[Answer] = []
    waiting: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        for one in tqdm(asked, what, leave=False, unit="rec", delay=1.0, disable=quiet):
            waiting.append(pool.submit(question, one))
            if len(waiting) == ASKED_AHEAD:
                answers.append(waiting.popleft().result())
        return answers + [future.result() for future in waiting]


def windows(blocks: Iterable[Waveform], window_samples: int) -> Iterator[Waveform]:
    """The windows of a waveform that comes in blocks; the last two have equal lengths.

    A waveform of up to one window stays whole. The result does not depend on the blocks.

    >>> [len(window) for window in windows([np.zeros(7), np.zeros(18)], 10)]
    [10, 8, 7]
    """
    held = np.empty(0, np.float32)
    for block in blocks:
        held = np.concatenate([held, block]) if len(held) else block
        while len(held) > 2 * window_samples:
            yield held[:window_samples]
            held = held[window_samples:]
    middle = (len(held) + 1) // 2 if len(held) > window_samples else len(held)
    yield held[:middle]
    if middle < len(held):
        yield held[middle:]


class _Opened(NamedTuple):
    """A recording that is being read."""

    source: "Source"
    first: Waveform  # the whole recording, if there is no rest
    rest: Iterator[Waveform] | None
    meter: QualityMeter | None


class Source:
    """A file or an array to be embedded."""

    def __init__(self, recording: Recording, place: int, options: ExtractionOptions) -> None:
        self.recording = Path(recording) if isinstance(recording, str) else recording
        is_file = isinstance(self.recording, Path)
        self.name = str(recording) if is_file else f"recording {place}"
        if not is_file and options.source_rate is None:
            raise ValueError(f"{self.name} is an array: give how many samples a second it has")
        self.source_rate, self.options = options.source_rate or 0, options
        self.stated_seconds = float("nan")  # by the header or the manifest
        self.channels = 1  # by the header, as what follows
        self.misnamed: str | None = None
        self.is_canceled = False  # known after opened, if qualities are wanted

    def seconds(self) -> float | Unusable:
        """The duration, as the file's header has it, or the error."""
        try:
            if not isinstance(self.recording, Path):
                seconds = array_seconds(self.recording, self.name, self.source_rate)
                self.channels = len(self.recording) if self.recording.ndim == 2 else 1
                return seconds
            header = read_header(self.recording, self.options.longest_seconds)
            check_length(self.name, header.seconds, self.options.longest_seconds)
            self.source_rate, self.channels = header.sample_rate, header.channels
            self.misnamed = misnamed(self.recording, header.audio_format)
            return header.seconds
        except (AudioError, OSError) as error:
            return error

    def blocks(self) -> Iterator[Waveform]:
        """The recording from its start, block by block."""
        rate = self.options.sample_rate
        if isinstance(self.recording, Path):
            return recording_blocks(self.recording, rate, self.options.longest_seconds)
        return array_blocks(self.recording, self.name, self.source_rate, rate)

    def opened(self) -> _Opened | Unusable:
        """The first window and an iterator of the others, or the error."""
        rate, least_seconds = self.options.sample_rate, self.options.frame_seconds
        blocks = self.blocks()
        meter = QualityMeter(rate) if self.options.with_quality else None
        parts = windows(blocks, round(WINDOW_SECONDS * rate))
        if meter is not None:
            parts = map(meter.add, parts)
        try:
            first, second = next(parts), next(parts, None)
            if meter is not None and self.channels > 1:
                self.is_canceled = channels_cancel(self.recording)
        except (AudioError, OSError) as error:
            return error
        if second is not None:
            return _Opened(self, first, chain([second], parts), meter)
        if len(first) < round(least_seconds * rate):
            return NoSpeechError(
                f"{self.name} lasts {len(first) / rate * 1000:.1f} ms, less than one frame of "
                f"{least_seconds * 1000:.0f} ms: leave it out"
            )
        if is_silent(first):
            return self.silence()
        return _Opened(self, first, None, meter)

    def silence(self) -> NoSpeechError:
        """The error of a recording that is silent, or that its channels make silent."""
        reason = CANCELING if channels_cancel(self.recording) else SILENT
        return NoSpeechError(f"{self.name} {reason}")


def _read_ahead(
    pool: ThreadPoolExecutor, sources: Sequence[Source], batches: Iterable[list[int]], ahead: int
) -> Iterator[dict[int, Future[_Opened | Unusable]]]:
    """The sources of each batch of indexes, while threads open at least ``ahead`` of the next."""
    pending: deque[dict[int, Future[_Opened | Unusable]]] = deque()
    for batch in batches:
        pending.append({index: pool.submit(sources[index].opened) for index in batch})
        while sum(map(len, islice(pending, 1, None))) >= ahead:
            yield pending.popleft()
    yield from pending


def _embedded(
    opened: dict[int, _Opened | Unusable],
    embed: Embed,
    options: ExtractionOptions,
    pool: ThreadPoolExecutor,
) -> Iterator[EmbeddedBatch]:
    """The embeddings of some recordings: the long ones first, by windows, then the others.

    The others are batched again, as the durations of headers and manifests may be wrong.
    """
    errors = {i: one for i, one in opened.items() if not isinstance(one, _Opened)}
    usable = {i: one for i, one in opened.items() if isinstance(one, _Opened)}
    if errors:
        yield EmbeddedBatch([], NO_EMBEDDINGS, [], errors)
    at_once = max(1, int(options.batch_seconds / WINDOW_SECONDS))
    for index, recording in usable.items():
        if recording.rest is None:
            continue
        parts = next_ahead(pool, recording.first, recording.rest)
        seconds = recording.source.stated_seconds
        bar = tqdm(
            parts,
            "long recording",
            total=None if np.isnan(seconds) else round(seconds / WINDOW_SECONDS),
            leave=False,
            unit="min",  # a window is a minute
            delay=1.0,
            disable=not options.progress or rank() > 0,
        )
        try:
            embedding = _embed_long(recording.source, iter(bar), embed, at_once)
        except (AudioError, OSError) as error:
            yield EmbeddedBatch([], NO_EMBEDDINGS, [], {index: error})
        else:
            yield _finished({index: recording}, embedding[None], embed, options)
    whole = [index for index, recording in usable.items() if recording.rest is None]
    durations = np.array([len(usable[i].first) / options.sample_rate for i in whole])
    for batch in length_batches(durations, options.batch_seconds):
        chosen = {whole[place]: usable[whole[place]] for place in batch}
        waveforms = [recording.first for recording in chosen.values()]
        yield _finished(chosen, embed_padded(waveforms, embed), embed, options)


def embed_padded(waveforms: Sequence[Waveform], embed: Embed) -> NDArray[np.float32]:
    """Embeddings (n, dim) of n waveforms in one batch."""
    lengths = torch.tensor([len(waveform) for waveform in waveforms])
    padded = pad_sequence([torch.from_numpy(w) for w in waveforms], batch_first=True)
    with torch.no_grad():
        return embed(padded, lengths).float().cpu().numpy()


def next_ahead(
    pool: ThreadPoolExecutor, first: Answer | None, rest: Iterator[Answer]
) -> Iterator[Answer]:
    """The first of all and the rest; each is read while the one before it is embedded."""
    while first is not None:
        following = pool.submit(next, rest, None)
        yield first
        first = following.result()


def _embed_long(
    source: Source, parts: Iterator[Waveform], embed: Embed, at_once: int
) -> NDArray[np.float32]:
    """The embedding (dim,) of a recording of several windows; silent ones do not count."""
    total: NDArray[np.float64] = np.zeros(())
    samples = 0
    while some := list(islice(parts, at_once)):
        heard = [window for window in some if not is_silent(window)]
        if heard:
            lengths = np.array([len(window) for window in heard])
            total = total + lengths @ embed_padded(heard, embed).astype(np.float64)
            samples += lengths.sum()
    if not samples:
        raise source.silence()
    return (total / samples).astype(np.float32)


def _parts(waveform: Waveform, embed: Embed, options: ExtractionOptions) -> NDArray[np.float32]:
    """Embeddings (parts, dim) of consecutive parts of equal length; of too short ones none."""
    least = round(LEAST_PART_SECONDS * options.sample_rate)
    count = min(MOST_PARTS, len(waveform) // least)
    if count < 2:
        return NO_EMBEDDINGS
    heard = [part for part in np.array_split(waveform, count) if not is_silent(part)]
    embeddings = embed_padded(heard, embed) if heard else NO_EMBEDDINGS
    return embeddings[np.isfinite(embeddings).all(axis=1)]


def _finished(
    recordings: dict[int, _Opened],
    embeddings: NDArray[np.float32],
    embed: Embed,
    options: ExtractionOptions,
) -> EmbeddedBatch:
    """The batch of n recordings by index with embeddings (n, dim), some maybe not finite."""
    is_finite = [bool(np.isfinite(row).all()) for row in embeddings]
    finite = list(compress(recordings, is_finite))
    errors: dict[int, Unusable] = {
        i: AudioError(f"{recordings[i].source.name}{NOT_FINITE}")
        for i in recordings.keys() - set(finite)
    }
    embeddings = embeddings[is_finite]
    lengths = np.linalg.norm(embeddings, axis=1).tolist()
    qualities = []
    for index, length in zip(finite, lengths, strict=True):
        source, meter = recordings[index].source, recordings[index].meter
        if meter is not None:
            rate = source.source_rate or None  # unknown where no header was read
            known = meter.quality()._replace(
                embedding_length=length,
                sample_rate=rate,
                misnamed=source.misnamed,
                channels_cancel=source.is_canceled,
            )
            qualities.append(known)
    parts = [_parts(recordings[i].first, embed, options) for i in finite if options.with_parts]
    return EmbeddedBatch(finite, embeddings, qualities, errors, parts)
