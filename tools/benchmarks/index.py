"""Searching 1,000 to 1,000,000 enrolled voices: a file, FAISS and Qdrant beside the exact score.

The voices are not people. They are drawn from normal distributions between and within speakers,
fitted to the directions of real embeddings of the built-in model, and get the lengths of real ones
(INDEX_EMBEDDINGS=FILE: one of simple-spk embed, whose IDs begin with the speaker and a slash).
Without a file, directions are uniform and lengths are 1: much easier to confuse, and harder to
index.

Half of the queries are further recordings of enrolled voices, half are of strangers. Recall is the
share of the exact best 1 or 10 that a store finds. A query is one recording: the search with its
calibration, without embedding it; "cpu" is its processor time, which other programs disturb less.
"enroll" is one more voice. INDEX_VOICES="1000 20000" sets the numbers of voices.
"""

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.voice_comparison import MOST_CALIBRATED
from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.inference.voice_stores.faiss_store import FaissStore
from simple_spk.inference.voice_stores.voice import Voice, VoiceStore, usual_measures
from tools.benchmarks.measure import Row, memory

THREADS = 1
NUMBERS_OF_VOICES = (1_000, 100_000, 1_000_000)
QUERIES, TIMED_EACH, SECONDS = 200, 5, 5.0
MOST_FOR_QDRANT = 20_000  # of its search within a process, which is a loop in Python
AT_ONCE = 2**16


class Speakers:
    """Embeddings of people who do not exist."""

    def __init__(self, dimension: int) -> None:
        self.random = np.random.default_rng(0)
        self.mean = np.zeros(dimension)
        self.between = np.eye(dimension) / np.sqrt(dimension)
        self.within = 0.5 * self.between
        self.lengths = np.ones(1)
        if real := os.environ.get("INDEX_EMBEDDINGS"):
            self._fit(Path(real))

    def _fit(self, path: Path) -> None:
        table = read_embeddings(path)
        embeddings = table.matrix.astype(np.float64)
        self.lengths = np.linalg.norm(embeddings, axis=1)
        speakers = [str(one).rpartition("/")[0] for one in table.ids]
        _, owner, count = np.unique(speakers, return_inverse=True, return_counts=True)
        directions = embeddings / self.lengths[:, None]
        means = np.zeros((len(count), embeddings.shape[1]))
        np.add.at(means, owner, directions)
        means /= count[:, None]
        rest = (directions - means[owner])[count[owner] > 1]
        within = rest.T @ rest / max(1, len(rest) - (count > 1).sum())
        self.mean = means.mean(axis=0)
        self.between = _root(np.cov(means.T) - within / count.mean())
        self.within = _root(within)

    def people(self, count: int) -> NDArray[np.float64]:
        """Means (count, dim) of new people."""
        return self.mean + self.random.standard_normal((count, len(self.mean))) @ self.between.T

    def recordings(self, people: NDArray[np.float64]) -> NDArray[np.float32]:
        """An embedding (n, dim) of each."""
        found = people + self.random.standard_normal(people.shape) @ self.within.T
        found *= (self.random.choice(self.lengths, len(found)) / np.linalg.norm(found, axis=1))[
            :, None
        ]
        return found.astype(np.float32)


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(values.clip(0.0))


def voices_of(embeddings: NDArray[np.float32], first: int) -> Iterator[tuple[str, Voice]]:
    """Names and voices of embeddings."""
    ones, seconds = np.ones(len(embeddings), np.int64), np.full(len(embeddings), SECONDS)
    measures = usual_measures(embeddings, ones, seconds)
    for number, row in enumerate(embeddings):
        yield f"voice {first + number}", Voice(row, 1, SECONDS, measures[number])


def run(options: argparse.Namespace) -> list[Row]:
    """Build time, size, memory, time of a query and recall of each store."""
    extractor = Extractor.load()
    dimension = extractor.embed_waveforms(torch.randn(1, 16000)).shape[1]
    numbers = os.environ.get("INDEX_VOICES", "")
    rows: list[Row] = []
    for count in [int(one) for one in numbers.split()] or NUMBERS_OF_VOICES:
        with tempfile.TemporaryDirectory() as name:
            rows += measured(extractor, Speakers(dimension), count, Path(name))
    return rows


def measured(extractor: Extractor, speakers: Speakers, count: int, folder: Path) -> Iterator[Row]:
    """Rows of all stores of so many voices."""
    path = folder / "voices.db"
    exact = open_voices(path, extractor.fingerprint, extractor.comparison.keys, create=True)
    enrolled: list[NDArray[np.float64]] = []
    start = time.perf_counter()
    for first in range(0, count, AT_ONCE):
        people = speakers.people(min(AT_ONCE, count - first))
        enrolled.append(people[: QUERIES // 2] if not enrolled else people[:0])
        exact.extend(voices_of(speakers.recordings(people), first))
    built = time.perf_counter() - start
    tests = speakers.recordings(np.concatenate([*enrolled, speakers.people(QUERIES // 2)]))
    heard = [voice for _, voice in voices_of(tests, 0)]
    with torch.no_grad():
        queries = extractor.model.similarity.lift_queries(torch.from_numpy(tests)).numpy()
    truth = [hits.names for hits in exact.search(queries, 10)]

    def row(kind: str, store: VoiceStore, build: float, size: float) -> Row:
        found = [hits.names for hits in store.search(queries, MOST_CALIBRATED)]
        extractor._voices = store
        gc.collect()
        before = memory("VmRSS")
        searches = [
            partial(extractor.comparison.search, store, [one], top=10)
            for one in heard[::TIMED_EACH]
        ]
        searches[0]()
        started = time.process_time()
        times = [seconds(search) for search in searches]
        used = (time.process_time() - started) / len(searches)
        name = f"{kind} one more"
        new = seconds(lambda: store.add(name, heard[0]))
        store.remove(name)
        return {
            "voices": count,
            "store": kind,
            "build, s": build,
            "on disk, MB": size,
            "memory, MB": before,
            "query, ms": 1000 * float(np.median(times)),
            "cpu, ms": 1000 * used,
            "recall@1": mean(one[0] in some for one, some in zip(truth, found, strict=True)),
            "recall@10": mean(
                len(set(one) & set(some)) / len(one) for one, some in zip(truth, found, strict=True)
            ),
            "enroll, ms": 1000 * new,
        }

    yield row("file", exact, built, megabytes(path) + megabytes(path.with_name("voices.db.keys")))
    for kind in ("pq", "ivf", "ivf-sq8", "flat"):
        try:
            store = open_voices(f"faiss:{path}", extractor.fingerprint, extractor.comparison.keys)
        except ValueError as error:
            print(error)
            break
        assert isinstance(store, FaissStore)
        build = seconds(partial(store.build, kind))
        yield row(f"faiss {kind}", store, build, megabytes(store.index_path))
        del store
    if count <= MOST_FOR_QDRANT:
        try:
            place = f"qdrant:{folder / 'qdrant'}"
            qdrant = open_voices(
                place, extractor.fingerprint, extractor.comparison.keys, create=True
            )
        except ValueError as error:
            print(error)
            return
        build = seconds(lambda: qdrant.extend(exact.each()))
        size = sum(megabytes(file) for file in (folder / "qdrant").rglob("*"))
        yield row("qdrant in this process", qdrant, build, size)


def seconds(task: Callable[[], object]) -> float:
    """How long a task takes."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def mean(values: Iterator[float]) -> float:
    """The mean of numbers."""
    return float(np.mean(list(values)))


def megabytes(path: Path) -> float:
    """What a file takes of the disk."""
    return path.stat().st_blocks * 512 / 1e6
