"""Enrolled voices: mean embeddings by name, in one matrix, and the file that keeps them.

A file belongs to one model, as embeddings of different models cannot be compared.
"""

import contextlib
import json
import reprlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save

from simple_spk.evaluation.calibration import (
    SOUND_MEASURES,
    at_length,
    joined_measures,
    recording_measures,
)
from simple_spk.inference.speech_quality import SPEECH_LIMITS_SECONDS
from simple_spk.io.array_file import open_safetensors
from simple_spk.io.atomic_file import atomic_write, lock_file
from simple_spk.io.input_file import file_size

FORMAT = "simple_spk voices 1"
LARGEST_NAME = 200
LARGEST_NUMBER = 1e9  # of recordings, of seconds, in an embedding: sums and products stay finite
# The types and dimensions of the arrays in a file, which have a row per voice.
KINDS = {
    "embeddings": (np.float32, 2),
    "recordings": (np.int64, 1),
    "seconds": (np.float64, 1),
    "measures": (np.float64, 2),
}
MEASURES = (*SOUND_MEASURES, "length")  # the columns of measures
USUAL_NOISE_DECIBEL = 20.0  # signal to noise of voices that were enrolled before it was kept
SCORES_AT_ONCE = 2**22  # in memory: 32 MB of float64

Arrays = dict[str, NDArray[Any]]
# From embeddings (n, dim) to keys (n, lifted_dim), whose inner products with queries are scores.
Lift = Callable[[NDArray[np.float32]], NDArray[np.float32]]
# From the place of a query and its scores (n,) with all voices to the values (n,) that rank them.
Rank = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]


class Voice(NamedTuple):
    """The mean embedding of a speaker's recordings, with their number and duration."""

    embedding: NDArray[np.float32]  # (dim,), not normalized: long embeddings count more
    recordings: int
    seconds: float
    # MEASURES of the recordings together; their mean length is that of the template.
    measures: NDArray[np.float64] | None = None

    @property
    def known_measures(self) -> NDArray[np.float64]:
        """The measures, or the usual ones."""
        if self.measures is not None:
            return self.measures
        arrays = (self.embedding[None], np.array([self.recordings]), np.array([self.seconds]))
        return usual_measures(*arrays)[0]

    @property
    def template(self) -> NDArray[np.float32]:
        """What is compared (dim,): the mean embedding, as long as the recordings' on average."""
        return templates(self.embedding[None], self.known_measures[None])[0]

    def joined(self, other: "Voice") -> "Voice":
        """The voice of the recordings of both."""
        count = self.recordings + other.recordings
        total = self.recordings * self.embedding.astype(np.float64)
        total += other.recordings * other.embedding.astype(np.float64)
        mean = (total / count).astype(np.float32)
        measures = joined_measures(
            np.stack([self.known_measures, other.known_measures]),
            np.array([self.recordings, other.recordings]),
        )
        return Voice(mean, count, self.seconds + other.seconds, measures)


def usual_measures(
    embeddings: NDArray[np.float32], recordings: NDArray[np.int64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What MEASURES (n, k) of voices are taken to be where noise and bandwidth are not known."""
    lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1)
    speech = np.log(seconds.clip(*SPEECH_LIMITS_SECONDS))
    noise, narrow = np.full(len(seconds), USUAL_NOISE_DECIBEL), np.zeros(len(seconds))
    return np.stack([speech, np.log(recordings), noise, narrow, lengths], 1)


def templates(
    embeddings: NDArray[np.float32], measures: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Mean embeddings (n, dim) of voices with measures (n, k), brought to their lengths."""
    return at_length(embeddings, measures[:, -1]).astype(np.float32)


class Hits(NamedTuple):
    """The k best voices for each of m queries, best first."""

    rows: NDArray[np.int64]  # (m, k), of the voices
    scores: NDArray[np.float64]  # (m, k)
    values: NDArray[np.float64]  # (m, k), by which they are ranked
    log_totals: NDArray[np.float64]  # (m,), of exp(value) summed over all voices


@dataclass(frozen=True, eq=False)
class Voices:
    """All voices at one moment, in the order of enrollment; later changes do not show."""

    names: list[str]
    embeddings: NDArray[np.float32]  # (n, dim)
    keys: NDArray[np.float32]  # (n, lifted_dim)
    recordings: NDArray[np.int64]  # (n,)
    seconds: NDArray[np.float64]  # (n,)
    measures: NDArray[np.float64]  # (n, MEASURES)

    @classmethod
    def of(cls, names: list[str], arrays: Arrays, lift: Lift) -> "Voices":
        """The voices of names and arrays, as a file has them."""
        embeddings = arrays["embeddings"]
        keys = embeddings
        if len(embeddings):
            keys = lift(templates(embeddings, arrays["measures"]))
        return cls(names, keys=keys, **arrays)

    def quality(self) -> dict[str, NDArray[np.float64]]:
        """The measures (n,) that calibrations may need, by name."""
        columns = dict(zip(MEASURES, self.measures.T, strict=True))
        return recording_measures(self.seconds, None, columns)

    @classmethod
    def alone(cls, name: str, voice: Voice, lift: Lift) -> "Voices":
        """A single voice."""
        known = voice._replace(measures=voice.known_measures)
        kinds = zip(KINDS.items(), known, strict=True)
        arrays = {array: np.array([value], kind) for (array, (kind, _)), value in kinds}
        return cls.of([name], arrays, lift)

    @property
    def arrays(self) -> Arrays:
        """The arrays, which have a row per voice."""
        return {name: value for name, value in vars(self).items() if name != "names"}

    def __len__(self) -> int:
        return len(self.names)

    def search(
        self, queries: NDArray[np.float32], top: int | None = None, rank: Rank | None = None
    ) -> Hits:
        """The ``top`` voices (default: all) for lifted queries (m, lifted_dim).

        They are ranked by score, or by the values that ``rank`` makes of the scores; equal ones
        stay in the order of enrollment.
        """
        count = len(self)
        shown = count if top is None else min(top, count)
        at_once = max(1, SCORES_AT_ONCE // count)
        found = []
        for start in range(0, len(queries), at_once):
            block = (queries[start : start + at_once] @ self.keys.T).astype(np.float64)
            for place, scores in enumerate(block, start):
                values = scores if rank is None else rank(place, scores)
                rows = _best(values, shown)
                highest = values[rows[0]]
                total = highest + np.log(np.exp(values - highest).sum())
                found.append((rows, scores[rows], values[rows], total))
        return Hits(*map(np.array, zip(*found, strict=True)))


class SpeakerStore(Mapping[str, Voice]):
    """Voices by name, in the order of enrollment; fingerprint is that of their model.

    Threads may use one store at once. What takes several reads works on a ``snapshot``.
    """

    def __init__(self, fingerprint: str, lift: Lift | None = None) -> None:
        self.fingerprint = fingerprint
        self._lift = lift or _unlifted
        self._lock = threading.RLock()
        self._names: list[str] = []
        self._row_of: dict[str, int] = {}
        # Rows that a snapshot may show never change: a new voice goes to a spare row after them,
        # any other change to copies.
        empty = {name: np.empty((0, 0)[:axes], kind) for name, (kind, axes) in KINDS.items()}
        self._arrays = Voices.of([], empty, self._lift).arrays

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot().names)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    def __getitem__(self, name: str) -> Voice:
        with self._lock:
            row = self._row_of[name]
            embedding, recordings, seconds, measures = (self._arrays[kind][row] for kind in KINDS)
        return Voice(embedding.copy(), int(recordings), float(seconds), measures.copy())

    def snapshot(self) -> Voices:
        """All voices as they are now."""
        with self._lock:
            count = len(self)
            return Voices(self._names[:], **{n: a[:count] for n, a in self._arrays.items()})

    def add(self, name: str, voice: Voice) -> Voice:
        """Enroll a voice; recordings of an enrolled name are added to it. Returns the result."""
        _check_name(name)
        with self._lock:
            count, row = len(self), self._row_of.get(name, len(self))
            dimension = self._arrays["embeddings"].shape[1] if count else len(voice.embedding)
            if len(voice.embedding) != dimension:
                raise ValueError(
                    f"{name} has an embedding of {len(voice.embedding)} numbers, the voices "
                    f"enrolled so far of {dimension}: those are of another model; enroll them again"
                )
            if row < count:
                voice = self[name].joined(voice)
            new = Voices.alone(name, voice, self._lift).arrays
            capacity = len(self._arrays["embeddings"])
            if row < count or count == capacity:
                capacity = max(capacity, 2 * row, 8)
                self._arrays = {
                    n: _copied(a[:count], capacity, new[n]) for n, a in self._arrays.items()
                }
            for kind, array in self._arrays.items():
                array[row] = new[kind][0]
            if row == count:
                self._names.append(name)
                self._row_of[name] = row
            return voice

    def remove(self, *names: str) -> None:
        """Remove voices; all of them, or with an unknown name none."""
        with self._lock:
            gone = {self._row_of[name] for name in names if self._require(name)}
            kept = np.setdiff1d(np.arange(len(self)), list(gone))
            self._arrays = {kind: array[kept] for kind, array in self._arrays.items()}
            self._names = [self._names[row] for row in kept]
            self._row_of = {name: row for row, name in enumerate(self._names)}

    def rename(self, old: str, new: str) -> None:
        """Give a voice a name that nobody has."""
        _check_name(new)
        with self._lock:
            self._require(old)
            if new in self and new != old:
                raise ValueError(f"{new!r} is enrolled, too: choose another name, or remove one")
            row = self._row_of.pop(old)
            self._names[row], self._row_of[new] = new, row

    def _require(self, name: str) -> bool:
        """True for a name that is enrolled; raises for any other."""
        if name not in self:
            known = ", ".join(self._names[:10]) or "nobody"
            raise ValueError(f"nobody is enrolled as {name!r}; known: {known}")
        return True

    def save(self, path: str | Path) -> None:
        """Write all voices to a safetensors file, atomically."""
        voices = self.snapshot()
        arrays = {kind: np.ascontiguousarray(getattr(voices, kind)) for kind in KINDS}
        metadata = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "names": json.dumps(voices.names, ensure_ascii=False),
        }
        with atomic_write(path) as partial:
            partial.write_bytes(save(arrays, metadata))

    @classmethod
    def load(
        cls, path: str | Path, fingerprint: str | None = None, lift: Lift | None = None
    ) -> "SpeakerStore":
        """The voices of a file of the model with this fingerprint, or of any model."""
        path = Path(path)
        file_size(path, "enrolled voices", "correct the path, or enroll")
        try:
            with open_safetensors(path, "enrolled voices", "enroll them again") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            names = _names(metadata, arrays)
        # TypeError, AttributeError: number types that numpy does not have
        except (SafetensorError, ValueError, RecursionError, TypeError, AttributeError) as error:
            what = f"is not a file of enrolled voices ({error})"
            raise ValueError(f"{path} {what}: enroll them again") from error
        made_by = metadata.get("fingerprint", "")
        if fingerprint not in (None, made_by):
            what = "holds voices that another model enrolled"
            raise ValueError(f"{path} {what}: use that one, or enroll them into another file")
        found = cls(made_by, lift)
        found._arrays = Voices.of(names, arrays, found._lift).arrays
        found._names = names
        found._row_of = {name: row for row, name in enumerate(names)}
        return found

    @classmethod
    @contextlib.contextmanager
    def changing(cls, path: str | Path, fingerprint: str | None = None) -> Iterator["SpeakerStore"]:
        """The voices of a file; saved on leaving without an error.

        Given the fingerprint of a model, a file that does not exist is created.

        Processes that change the file do so one after the other. They lock PATH.lock, which stays:
        saving replaces the file itself.
        """
        path = Path(path)
        if fingerprint is None and not path.exists():
            cls.load(path)  # raises
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(path.name + ".lock").open("a") as lock:
            lock_file(lock)
            is_new = fingerprint is not None and not path.exists()
            voices = cls(fingerprint or "") if is_new else cls.load(path, fingerprint)
            yield voices
            voices.save(path)


def _unlifted(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings as they are, for what does not search."""
    return embeddings


def _check_name(name: object) -> None:
    """Raise for what is no name."""
    is_text = isinstance(name, str) and name.encode(errors="replace").decode() == name
    if not (isinstance(name, str) and is_text and name.strip() and len(name) <= LARGEST_NAME):
        raise ValueError(
            f"a voice needs a name of 1 to {LARGEST_NAME} letters, not {reprlib.repr(name)}"
        )


def _copied(rows: NDArray[Any], capacity: int, like: NDArray[Any]) -> NDArray[Any]:
    """A copy of rows (n, ...) with room for more, which are like others (1, ...)."""
    copy = np.empty((capacity, *like.shape[1:]), like.dtype)
    if len(rows):  # without any, their dimension is not known yet
        copy[: len(rows)] = rows
    return copy


def _best(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The places (count,) of the largest of values (n,), largest first, equal ones in order."""
    places = np.arange(len(values))
    if count < len(values):
        places = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return places[np.argsort(-values[places], kind="stable")][:count]


def _names(metadata: Mapping[str, str], arrays: Arrays) -> list[str]:
    """The names of the voices in a file; a ValueError says what is wrong with it.

    Measures are added to arrays without them.
    """
    if metadata.get("format") != FORMAT:
        raise ValueError(f"expected the format {FORMAT!r}")
    names = json.loads(metadata.get("names", ""))
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) < len(names):
        raise ValueError("its names are no list of different names")
    for name in names:
        _check_name(name)
    if set(arrays) not in ({*KINDS}, {*KINDS} - {"measures"}):
        raise ValueError(f"expected the arrays {', '.join(KINDS)}")
    for name, array in arrays.items():
        kind, dimensions = KINDS[name]
        if array.dtype != kind or array.ndim != dimensions or len(array) != len(names):
            raise ValueError(f"{name} has the type {array.dtype} and the shape {array.shape}")
        if not (np.abs(array) <= LARGEST_NUMBER).all():
            raise ValueError(f"{name} holds values that are not numbers up to {LARGEST_NUMBER:g}")
    if (arrays["recordings"] < 1).any() or (arrays["seconds"] <= 0).any():
        raise ValueError("a voice without recordings")
    if "measures" not in arrays:  # in files of 0.1.0
        arrays["measures"] = usual_measures(
            arrays["embeddings"], arrays["recordings"], arrays["seconds"]
        )
    if names and arrays["measures"].shape[1] != len(MEASURES):
        raise ValueError(f"measures has the shape {arrays['measures'].shape}")
    return names
