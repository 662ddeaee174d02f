"""Embeddings of whole recordings: read ahead, batched by length, padded without effect.

Recordings are read by threads while the model computes. One that is longer than a window is read
and embedded window by window, in the memory of a few windows: its embedding is the mean of theirs,
weighted by their lengths, which is also how SimPLE makes a template of several recordings.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import (
    AudioError,
    Samples,
    array_blocks,
    array_seconds,
    duration_seconds,
    is_silent,
    recording_blocks,
)
from simple_spk.distributed import gather_objects, rank, usable_cores, world_size
from simple_spk.inference.speech_quality import QualityMeter, RecordingQuality

Recording = str | Path | Samples  # a file, or its samples
# From padded waveforms (n, samples) and their lengths (n,) to embeddings (n, dim).
Embed = Callable[[Tensor, Tensor], Tensor]
Waveform = NDArray[np.float32]  # (samples,)
Answer = TypeVar("Answer")
Asked = TypeVar("Asked")

SHORTEST_SECONDS = 0.025  # a frame of most filterbanks: less cannot be embedded at all
# Hardly any utterance of a corpus is longer, so that those are embedded whole; and the full
# ResNet-34 needs a quarter of a gigabyte for so much.
WINDOW_SECONDS = 60.0
BATCH_SECONDS = 120.0
OPENED_AT_ONCE = 16  # files that are looked at together: network disks answer slowly, but many
ASKED_AHEAD = 16 * OPENED_AT_ONCE  # questions that may wait: a list may have millions of files
MOST_READERS = 8  # threads that read, unless the caller wants more


class EmbeddedBatch(NamedTuple):
    """Some of the recordings asked for, by their places: embedded ones, and unusable ones."""

    indexes: list[int]
    embeddings: NDArray[np.float32]  # (n, dim), in the order of the indexes
    qualities: list[RecordingQuality]  # (n), or none if they were not asked for
    errors: dict[int, AudioError | OSError]  # why a recording cannot be used


def embed_recordings(
    recordings: Sequence[Recording],
    embed: Embed,
    sample_rate: int = SAMPLE_RATE,
    batch_seconds: float = BATCH_SECONDS,
    workers: int = 0,
    progress: bool = True,
    durations_seconds: NDArray[np.floating] | None = None,
    source_rate: int | None = None,
    shortest_seconds: float = SHORTEST_SECONDS,
) -> NDArray[np.float32]:
    """Embeddings (n, dim) of n recordings, in the order given; several processes share the work.

    The arguments are those of ``embedded_batches``. Raises the error of an unusable recording.
    """
    if not len(recordings):
        raise ValueError("there are no recordings to embed")
    mine = len(range(rank(), len(recordings), world_size()))
    bar = tqdm(total=mine, unit="rec", desc="embed", disable=not progress or rank() > 0)
    order: list[int] = []
    embeddings: list[NDArray[np.float32]] = []
    errors: dict[int, AudioError | OSError] = {}
    with bar:
        for batch in embedded_batches(
            *(recordings, embed, sample_rate, batch_seconds, workers, progress),
            *(durations_seconds, source_rate),
            shortest_seconds=shortest_seconds,
        ):
            order += batch.indexes
            embeddings.append(batch.embeddings)
            bar.update(len(batch.indexes))
            if batch.errors:  # no other process shall wait for this one
                errors = batch.errors
                break
    parts = gather_objects((order, embeddings, errors))
    for _, _, failed in parts:
        for error in failed.values():
            raise error
    rows = np.concatenate([row for _, arrays, _ in parts for row in arrays])
    result = np.empty_like(rows)
    result[[index for indexes, _, _ in parts for index in indexes]] = rows
    return result


def embedded_batches(
    recordings: Sequence[Recording],
    embed: Embed,
    sample_rate: int = SAMPLE_RATE,
    batch_seconds: float = BATCH_SECONDS,
    workers: int = 0,
    progress: bool = False,
    durations_seconds: NDArray[np.floating] | None = None,
    source_rate: int | None = None,
    with_quality: bool = False,
    shortest_seconds: float = SHORTEST_SECONDS,
) -> Iterator[EmbeddedBatch]:
    """The embeddings of recordings as they are made, longest recordings first.

    Each index comes once, embedded or with its error, on one of the processes.

    Arguments:
        batch_seconds: bound of the padded audio of a batch, except that a recording (or a window
            of a long one) always fits.
        workers: threads that read ahead; 0: as many as there are cores, at most ``MOST_READERS``.
        progress: show a bar if finding the durations takes time.
        durations_seconds: those (n,) of a manifest, so that no file is opened just to learn them.
        source_rate: hertz of recordings that are arrays or tensors; needed for those.
        shortest_seconds: what is shorter cannot be embedded: one frame of the model's front end.
    """
    if workers < 0:
        raise ValueError(f"workers are threads that read, 0 or more, not {workers}")
    sources = [_Source(recording, place, source_rate) for place, recording in enumerate(recordings)]
    mine = np.arange(len(sources))[rank() :: world_size()]
    if durations_seconds is None:
        answers = ask_all(_Source.seconds, [sources[i] for i in mine], "durations", progress)
        durations = np.array([np.nan if isinstance(a, Exception) else a for a in answers])
        errors = {int(i): a for i, a in zip(mine, answers, strict=True) if isinstance(a, Exception)}
        if errors:
            yield EmbeddedBatch([], np.empty((0, 0), np.float32), [], errors)
    else:
        durations = durations_seconds[mine].astype(np.float64)
    readable = np.flatnonzero(~np.isnan(durations))
    batches = length_batches(durations[readable], batch_seconds)
    threads = workers or min(usable_cores(), MOST_READERS)
    pool = ThreadPoolExecutor(threads)

    def open_source(index: int) -> _Opened | AudioError | OSError:
        return sources[index].opened(sample_rate, with_quality, shortest_seconds)

    def embed_some(waveforms: Sequence[Waveform]) -> NDArray[np.float32]:
        lengths = torch.tensor([len(waveform) for waveform in waveforms])
        padded = pad_sequence([torch.from_numpy(w) for w in waveforms], batch_first=True)
        with torch.no_grad():
            return embed(padded, lengths).float().cpu().numpy()

    try:
        places = (mine[readable[batch]].tolist() for batch in batches)
        for indexes, opened in _read_ahead(pool, open_source, places, threads):
            yield from _embedded(indexes, opened, embed_some, batch_seconds, sample_rate, pool)
    finally:
        pool.shutdown(cancel_futures=True)


def length_batches(durations: NDArray[np.float64], batch_seconds: float) -> list[NDArray[np.int64]]:
    """Indexes grouped by similar duration, longest first; a group's padded length is bounded.

    >>> [batch.tolist() for batch in length_batches(np.array([1.0, 9.0, 2.0, 2.0]), 5.0)]
    [[1], [2, 3], [0]]
    """
    order = np.argsort(-durations, kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(durations[order[start]], SHORTEST_SECONDS)  # a header may say zero
        fitting = max(1, int(batch_seconds / longest))
        batches.append(order[start : start + fitting])
        start += fitting
    return batches


def recording_seconds(paths: Sequence[Path], progress: bool = True) -> NDArray[np.float64]:
    """The durations (n,) of n recordings."""
    return np.array(ask_all(duration_seconds, paths, "durations", progress))


def ask_all(
    question: Callable[[Asked], Answer], asked: Sequence[Asked], what: str, progress: bool = True
) -> list[Answer]:
    """The answers about n files, in their order; several files are asked at the same time."""
    quiet = not progress or rank() > 0
    bar = tqdm(asked, what, leave=False, unit="rec", delay=1.0, disable=quiet)
    answers: list[Answer] = []
    waiting: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        for one in bar:
            waiting.append(pool.submit(question, one))
            if len(waiting) == ASKED_AHEAD:
                answers.append(waiting.popleft().result())
        return answers + [future.result() for future in waiting]


class NoSpeechError(AudioError):
    """A recording that is whole, and holds nothing that a voice could be told from."""


def too_short(name: str, seconds: float, shortest_seconds: float) -> NoSpeechError:
    """What to say about a recording of which no embedding can be made."""
    return NoSpeechError(
        f"{name} lasts {seconds * 1000:.1f} ms, less than one frame of "
        f"{shortest_seconds * 1000:.0f} ms: leave it out"
    )


def windows(blocks: Iterable[Waveform], window_samples: int) -> Iterator[Waveform]:
    """A waveform in blocks as windows of a size; what is left at its end makes two equal ones.

    Up to one window's samples stay whole. The result does not depend on the blocks.

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
    """A recording of which reading has begun."""

    name: str
    first: Waveform  # all of it, if there is no rest
    rest: Iterator[Waveform] | None
    meter: QualityMeter | None


class _Source:
    """Where the samples of a recording come from."""

    def __init__(self, recording: Recording, place: int, source_rate: int | None) -> None:
        self.recording = Path(recording) if isinstance(recording, str) else recording
        is_file = isinstance(self.recording, Path)
        self.name = str(recording) if is_file else f"recording {place}"
        if not is_file and source_rate is None:
            raise ValueError(f"{self.name} is an array: say how many samples a second it has")
        self.source_rate = source_rate or 0

    def seconds(self) -> float | AudioError | OSError:
        """How long the recording is said to be, or why nobody knows."""
        try:
            if not isinstance(self.recording, Path):
                return array_seconds(self.recording, self.name, self.source_rate)
            return duration_seconds(self.recording)
        except (AudioError, OSError) as error:
            return error

    def opened(
        self, sample_rate: int, with_quality: bool, shortest_seconds: float
    ) -> _Opened | AudioError | OSError:
        """The recording's first window and the way to the others, or why it cannot be used."""
        if isinstance(self.recording, Path):
            blocks = recording_blocks(self.recording, sample_rate)
        else:
            blocks = array_blocks(self.recording, self.name, self.source_rate, sample_rate)
        meter = QualityMeter(sample_rate) if with_quality else None
        parts = _metered(windows(blocks, round(WINDOW_SECONDS * sample_rate)), meter)
        try:
            first, second = next(parts), next(parts, None)
        except (AudioError, OSError) as error:
            return error
        if second is not None:
            return _Opened(self.name, first, chain([second], parts), meter)
        if len(first) < round(shortest_seconds * sample_rate):
            return too_short(self.name, len(first) / sample_rate, shortest_seconds)
        return _silent(self.name) if is_silent(first) else _Opened(self.name, first, None, meter)


def _read_ahead(
    pool: ThreadPoolExecutor,
    open_source: Callable[[int], _Opened | AudioError | OSError],
    batches: Iterable[list[int]],
    threads: int,
) -> Iterator[tuple[list[int], list[_Opened | AudioError | OSError]]]:
    """Batches of indexes with what they open to, while the threads are kept busy with the next."""
    pending: deque[tuple[list[int], list[Future]]] = deque()
    for batch in batches:
        pending.append((batch, [pool.submit(open_source, index) for index in batch]))
        while sum(len(indexes) for indexes, _ in islice(pending, 1, None)) >= 2 * threads:
            indexes, futures = pending.popleft()
            yield indexes, [future.result() for future in futures]
    for indexes, futures in pending:
        yield indexes, [future.result() for future in futures]


def _embedded(
    indexes: list[int],
    opened: list[_Opened | AudioError | OSError],
    embed: Callable[[Sequence[Waveform]], NDArray[np.float32]],
    batch_seconds: float,
    sample_rate: int,
    pool: ThreadPoolExecutor,
) -> Iterator[EmbeddedBatch]:
    """The embeddings of some recordings: the long ones first, by windows, then the others.

    They are batched again, as nobody knows how true the durations were.
    """
    errors = {i: o for i, o in zip(indexes, opened, strict=True) if not isinstance(o, _Opened)}
    usable = [(i, o) for i, o in zip(indexes, opened, strict=True) if isinstance(o, _Opened)]
    if errors:
        yield EmbeddedBatch([], np.empty((0, 0), np.float32), [], errors)
    for index, recording in usable:
        if recording.rest is None:
            continue
        try:
            embedding = _embed_long(recording, embed, batch_seconds, pool)
        except (AudioError, OSError) as error:
            yield EmbeddedBatch([], np.empty((0, 0), np.float32), [], {index: error})
        else:
            qualities = _qualities([recording], embedding[None])
            yield EmbeddedBatch([index], embedding[None], qualities, {})
    whole = [(index, recording) for index, recording in usable if recording.rest is None]
    durations = np.array([len(recording.first) / sample_rate for _, recording in whole])
    for batch in length_batches(durations, batch_seconds):
        chosen = [whole[place] for place in batch]
        embeddings = embed([recording.first for _, recording in chosen])
        qualities = _qualities([recording for _, recording in chosen], embeddings)
        yield EmbeddedBatch([index for index, _ in chosen], embeddings, qualities, {})


def _embed_long(
    recording: _Opened,
    embed: Callable[[Sequence[Waveform]], NDArray[np.float32]],
    batch_seconds: float,
    pool: ThreadPoolExecutor,
) -> NDArray[np.float32]:
    """The embedding (dim,) of a recording of several windows; silent ones say nothing."""
    assert recording.rest is not None
    parts = _next_ahead(pool, recording.first, recording.rest)
    at_once = max(1, int(batch_seconds / WINDOW_SECONDS))
    total: NDArray[np.float64] = np.zeros(())
    samples = 0
    while some := list(islice(parts, at_once)):
        heard = [window for window in some if not is_silent(window)]
        if heard:
            lengths = np.array([len(window) for window in heard])
            total = total + lengths @ embed(heard).astype(np.float64)
            samples += lengths.sum()
    if not samples:
        raise _silent(recording.name)
    return (total / samples).astype(np.float32)


def _next_ahead(
    pool: ThreadPoolExecutor, first: Waveform, rest: Iterator[Waveform]
) -> Iterator[Waveform]:
    """Windows, of which the next is read while one is worked on."""
    window: Waveform | None = first
    while window is not None:
        following = pool.submit(next, rest, None)
        yield window
        window = following.result()


def _metered(parts: Iterable[Waveform], meter: QualityMeter | None) -> Iterator[Waveform]:
    """The same windows, measured as they pass."""
    for window in parts:
        if meter is not None:
            meter.add(window)
        yield window


def _qualities(
    recordings: Sequence[_Opened], embeddings: NDArray[np.float32]
) -> list[RecordingQuality]:
    """The qualities of n recordings that are read and embedded (n, dim), if measured."""
    lengths = np.linalg.norm(embeddings, axis=1).tolist()
    return [
        recording.meter.quality()._replace(embedding_length=length)
        for recording, length in zip(recordings, lengths, strict=True)
        if recording.meter is not None
    ]


def _silent(name: str) -> NoSpeechError:
    """What to say about a recording in which nothing is to be heard."""
    return NoSpeechError(f"{name} is silent, its samples are nearly equal: leave it out")
