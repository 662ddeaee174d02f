"""The speech of a recording, in windows that are embedded while it is read."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.batch_embedding import Embed, Waveform, embed_padded, next_ahead
from simple_spk.inference.speech_quality import SpeechFrames

WINDOW_SECONDS, SHIFT_SECONDS = 1.5, 0.75
SHORTEST_SPEECH_SECONDS = 0.2  # shorter sounds are coughs and clicks
LONGEST_PAUSE_SECONDS = 0.3  # a longer one may be between two speakers
MARGIN_SECONDS = 0.05  # of speech that detectors leave out at both ends
WINDOWS_AT_ONCE = 64

Spans = NDArray[np.float64]  # (n, 2): start and end in seconds
Blocks = Callable[[], Iterator[Waveform]]  # reads a recording from its start, block by block


def speech_spans(speech: SpeechFrames, seconds: float) -> Spans:
    """Where there is speech: rising, with pauses between them.

    >>> flags = np.repeat([False, True, False, True, False], [50, 40, 10, 50, 50])
    >>> speech_spans(SpeechFrames(flags, 0.02, "energy"), 4.0).tolist()
    [[0.95, 3.05]]
    """
    edges = np.flatnonzero(np.diff(speech.flags.astype(np.int8), prepend=0, append=0))
    spans = edges.reshape(-1, 2) * speech.frame_seconds
    if len(spans):
        is_apart = spans[1:, 0] - spans[:-1, 1] > LONGEST_PAUSE_SECONDS
        starts, ends = np.append(True, is_apart), np.append(is_apart, True)
        spans = np.stack([spans[starts, 0], spans[ends, 1]], axis=1)
    spans = spans[spans[:, 1] - spans[:, 0] >= SHORTEST_SPEECH_SECONDS]
    margins = np.array([-MARGIN_SECONDS, MARGIN_SECONDS])
    return (spans + margins).clip(0.0, seconds)


class Windows(NamedTuple):
    """Windows of speech, rising, none longer than WINDOW_SECONDS."""

    spans: Spans  # (n, 2)
    speech: NDArray[np.int64]  # (n,): the row of the speech that each is in


def windows_of(speech: Spans) -> Windows:
    """Windows that overlap by half and cover all speech; the last ends where the speech does.

    >>> windows_of(np.array([[1.0, 3.0], [4.0, 4.5]])).spans.tolist()
    [[1.0, 2.5], [1.5, 3.0], [4.0, 4.5]]
    """
    spans, rows = [], []
    for row, (start, end) in enumerate(speech.tolist()):
        spare = max(0.0, end - start - WINDOW_SECONDS)
        count = 1 + int(np.ceil(spare / SHIFT_SECONDS - 1e-9))
        starts = start + np.minimum(np.arange(count) * SHIFT_SECONDS, spare)
        spans.append(np.stack([starts, np.minimum(starts + WINDOW_SECONDS, end)], axis=1))
        rows += [row] * count
    return Windows(np.concatenate(spans) if spans else np.empty((0, 2)), np.array(rows, np.int64))


def cut_out(blocks: Iterable[Waveform], spans: Spans, sample_rate: int) -> Iterator[Waveform]:
    """The samples (samples,) of spans with rising starts; only what they need is held."""
    remaining = iter(blocks)
    held, offset = np.empty(0, np.float32), 0
    for start, end in np.rint(spans * sample_rate).astype(np.int64).tolist():
        drop = min(max(0, start - offset), len(held))
        held, offset = held[drop:], offset + drop
        while offset + len(held) < end and (block := next(remaining, None)) is not None:
            held = np.concatenate([held, block])
            drop = min(max(0, start - offset), len(held))
            held, offset = held[drop:], offset + drop
        yield held[: end - offset].copy()


def embed_windows(
    blocks: Blocks,
    spans: Spans,
    sample_rate: int,
    embed: Embed,
    done: Callable[[int], object],
) -> NDArray[np.float32]:
    """Embeddings (n, dim) of the windows (n, 2) of a recording; ``done`` is told of each batch."""
    parts = []
    with ThreadPoolExecutor(1) as pool:
        waveforms = cut_out(blocks(), spans, sample_rate)
        batches = iter(lambda: list(islice(waveforms, WINDOWS_AT_ONCE)), [])
        for batch in next_ahead(pool, next(batches, None), batches):
            parts.append(embed_padded(batch, embed))
            done(len(batch))
    return np.concatenate(parts)
