"""Embeddings of whole recordings, in batches of similar length.

Threads read recordings ahead while the model computes. A recording longer than a window is read and
embedded window by window, in the memory of a few windows: its embedding is the mean of theirs,
weighted by their lengths, like a template of several recordings.
"""

import itertools
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

SHORTEST_SECONDS = 0.025  # one frame of most filterbanks
WINDOW_SECONDS = 60.0  # hardly any utterance of a corpus is longer; ResNet-34 needs 0.25 GB for it
BATCH_SECONDS = 120.0
OPENED_AT_ONCE = 16  # files opened in parallel: network disks are slow, but serve many requests
ASKED_AHEAD = 16 * OPENED_AT_ONCE  # pending requests: a list may have millions of files
MOST_READERS = 8  # reading threads, unless the caller asks for more


class EmbeddedBatch(NamedTuple):
    """Some of the recordings, by their indexes: embedded ones, and errors of unusable ones."""

    indexes: list[int]
    embeddings: NDArray[np.float32]  # (n, dim), in the order of the indexes
    qualities: list[RecordingQuality]  # n, or empty if not asked for
    errors: dict[int, AudioError | OSError]


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
            recordings,
            embed,
            sample_rate,
            batch_seconds,
            workers,
            progress,
            durations_seconds,
            source_rate,
            shortest_seconds=shortest_seconds,
        ):
            order += batch.indexes
            embeddings.append(batch.embeddings)
            bar.update(len(batch.indexes))
            if batch.errors:  # stop, but take part in gather_objects: other processes wait there
                errors = batch.errors
                break
    parts = gather_objects((order, embeddings, errors))
    for _, _, failed in parts:
        for error in failed.values():
            raise error
    rows = np.concatenate([array for _, arrays, _ in parts for array in arrays if len(array)])
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
    """The embeddings of recordings as they are computed, longest recordings first.

    Each index comes once, embedded or with its error, on one of the processes.

    Arguments:
        batch_seconds: upper bound of the padded audio in a batch of more than one recording.
        workers: threads that read ahead; 0: one per core, at most ``MOST_READERS``.
        progress: show a bar if finding the durations takes time.
        durations_seconds: those (n,) of a manifest, so that no file is opened to find them.
        source_rate: sample rate in hertz of arrays and tensors, which need it.
        shortest_seconds: one frame of the model's front end; shorter recordings are errors.
    """
    if workers < 0:
        raise ValueError(f"workers is the number of reading threads, 0 or more, not {workers}")
    sources = [_Source(recording, place, source_rate) for place, recording in enumerate(recordings)]
    mine = np.arange(len(sources))[rank() :: world_size()]
    if durations_seconds is None:
        answers = ask_all(_Source.seconds, [sources[i] for i in mine], "durations", progress)
        durations = np.array([np.nan if isinstance(a, Exception) else a for a in answers])
        errors = {int(i): a for i, a in zip(mine, answers, strict=True) if isinstance(a, Exception)}
        if errors:
            yield _failed(errors)
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
    """Indexes grouped by similar duration, longest first; padded groups last batch_seconds at most.

    >>> [batch.tolist() for batch in length_batches(np.array([1.0, 9.0, 2.0, 2.0]), 5.0)]
    [[1], [2, 3], [0]]
    """
    order = np.argsort(-durations, kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(durations[order[start]], SHORTEST_SECONDS)  # it may be zero in a header
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
    """The answers for n files, in their order, computed by several threads."""
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
    """A recording that can be read, but is silent or too short for an embedding."""


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

    name: str
    first: Waveform  # the whole recording, if there is no rest
    rest: Iterator[Waveform] | None
    meter: QualityMeter | None


class _Source:
    """A file or an array to be embedded."""

    def __init__(self, recording: Recording, place: int, source_rate: int | None) -> None:
        self.recording = Path(recording) if isinstance(recording, str) else recording
        is_file = isinstance(self.recording, Path)
        self.name = str(recording) if is_file else f"recording {place}"
        if not is_file and source_rate is None:
            raise ValueError(
                f"{self.name} is an array: give its sample rate, how many samples a second it has"
            )
        self.source_rate = source_rate or 0

    def seconds(self) -> float | AudioError | OSError:
        """The duration, as the file's header has it, or the error."""
        try:
            if not isinstance(self.recording, Path):
                return array_seconds(self.recording, self.name, self.source_rate)
            return duration_seconds(self.recording)
        except (AudioError, OSError) as error:
            return error

    def opened(
        self, sample_rate: int, with_quality: bool, shortest_seconds: float
    ) -> _Opened | AudioError | OSError:
        """The first window and an iterator of the others, or the error."""
        if isinstance(self.recording, Path):
            blocks = recording_blocks(self.recording, sample_rate)
        else:
            blocks = array_blocks(self.recording, self.name, self.source_rate, sample_rate)
        meter = QualityMeter(sample_rate) if with_quality else None
        parts = windows(blocks, round(WINDOW_SECONDS * sample_rate))
        if meter is not None:
            parts = map(meter.add, parts)
        try:
            first, second = next(parts), next(parts, None)
        except (AudioError, OSError) as error:
            return error
        if second is not None:
            return _Opened(self.name, first, chain([second], parts), meter)
        if len(first) < round(shortest_seconds * sample_rate):
            return NoSpeechError(
                f"{self.name} lasts {len(first) / sample_rate * 1000:.1f} ms, less than one frame "
                f"of {shortest_seconds * 1000:.0f} ms: leave it out"
            )
        return _silent(self.name) if is_silent(first) else _Opened(self.name, first, None, meter)


def _read_ahead(
    pool: ThreadPoolExecutor,
    open_source: Callable[[int], _Opened | AudioError | OSError],
    batches: Iterable[list[int]],
    threads: int,
) -> Iterator[tuple[list[int], list[_Opened | AudioError | OSError]]]:
    """Batches of indexes with their opened sources, while threads open the next ones."""
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

    The others are batched again, as the durations of headers and manifests may be wrong.
    """
    errors = {i: o for i, o in zip(indexes, opened, strict=True) if not isinstance(o, _Opened)}
    usable = {i: o for i, o in zip(indexes, opened, strict=True) if isinstance(o, _Opened)}
    if errors:
        yield _failed(errors)
    for index, recording in usable.items():
        if recording.rest is None:
            continue
        try:
            embedding = _embed_long(recording, embed, batch_seconds, pool)
        except (AudioError, OSError) as error:
            yield _failed({index: error})
        else:
            yield _finished({index: recording}, embedding[None])
    whole = [index for index, recording in usable.items() if recording.rest is None]
    durations = np.array([len(usable[index].first) / sample_rate for index in whole])
    for batch in length_batches(durations, batch_seconds):
        chosen = {whole[place]: usable[whole[place]] for place in batch}
        yield _finished(chosen, embed([recording.first for recording in chosen.values()]))


def _embed_long(
    recording: _Opened,
    embed: Callable[[Sequence[Waveform]], NDArray[np.float32]],
    batch_seconds: float,
    pool: ThreadPoolExecutor,
) -> NDArray[np.float32]:
    """The embedding (dim,) of a recording of several windows; silent ones do not count."""
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
    """All windows; each is read while the one before it is embedded."""
    window: Waveform | None = first
    while window is not None:
        following = pool.submit(next, rest, None)
        yield window
        window = following.result()


def _finished(recordings: dict[int, _Opened], embeddings: NDArray[np.float32]) -> EmbeddedBatch:
    """The batch of n recordings by index with embeddings (n, dim), some maybe not finite."""
    is_finite = [bool(np.isfinite(row).all()) for row in embeddings]
    finite = list(itertools.compress(recordings, is_finite))
    errors: dict[int, AudioError | OSError] = {
        i: AudioError(f"{recordings[i].name}: the model makes no finite embedding: leave it out")
        for i in recordings.keys() - set(finite)
    }
    embeddings = embeddings[is_finite]
    lengths = np.linalg.norm(embeddings, axis=1).tolist()
    qualities = [
        meter.quality()._replace(embedding_length=length)
        for meter, length in zip((recordings[i].meter for i in finite), lengths, strict=True)
        if meter is not None
    ]
    return EmbeddedBatch(finite, embeddings, qualities, errors)


def _failed(errors: dict[int, AudioError | OSError]) -> EmbeddedBatch:
    """A batch of errors only."""
    return EmbeddedBatch([], np.empty((0, 0), np.float32), [], errors)


def _silent(name: str) -> NoSpeechError:
    """What to say about a recording in which nothing is to be heard."""
    return NoSpeechError(f"{name} is silent, its samples are nearly equal: leave it out")
