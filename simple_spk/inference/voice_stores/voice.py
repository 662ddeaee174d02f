"""Enrolled voices: mean embeddings by name, and what every store of them offers.

A store belongs to one model, as embeddings of different models cannot be compared.
"""

import reprlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.quality_measures import (
    SOUND_MEASURES,
    at_length,
    joined_measures,
    recording_measures,
)
from simple_spk.inference.speech_quality import SPEECH_LIMITS_SECONDS

LARGEST_NAME = 200
LARGEST_NUMBER = 1e9  # of recordings, of seconds, in an embedding: sums and products stay finite
# The types and dimensions of the arrays, which have a row per voice.
KINDS = {
    "embeddings": (np.float32, 2),
    "recordings": (np.int64, 1),
    "seconds": (np.float64, 1),
    "measures": (np.float64, 2),
}
MEASURES = (*SOUND_MEASURES, "length")  # the columns of measures
USUAL_NOISE_DECIBEL = 20.0  # signal to noise of voices that were enrolled before it was kept
SCORES_AT_ONCE = 2**22  # in memory: 32 MB of float64
TAKEN = "{!r} is enrolled, too: choose another name, or remove one"

Arrays = dict[str, NDArray[Any]]
# From embeddings (n, dim) to keys (n, lifted_dim), whose inner products with queries are scores.
Lift = Callable[[NDArray[np.float32]], NDArray[np.float32]]


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

    def plain(self) -> dict[str, float]:
        """What is known of a voice as plain data, for JSON, without its embedding."""
        return {"recordings": self.recordings, "seconds": self.seconds}

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
        return _quality(self.seconds, self.measures)

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

    @property
    def dimension(self) -> int:
        """How many numbers an embedding has."""
        return self.embeddings.shape[1]

    def __len__(self) -> int:
        return len(self.names)

    def voice(self, row: int) -> Voice:
        """One of the voices."""
        embedding, recordings, seconds, measures = (getattr(self, kind)[row] for kind in KINDS)
        return Voice(embedding.copy(), int(recordings), float(seconds), measures.copy())

    def search(self, queries: NDArray[np.float32], count: int | None = None) -> Iterator["Hits"]:
        """The ``count`` voices (default: all) of the highest scores for each lifted query
        (m, lifted_dim); equal ones stay in the order of enrollment."""
        shown = len(self) if count is None else min(count, len(self))
        at_once = max(1, SCORES_AT_ONCE // max(1, len(self)))
        for start in range(0, len(queries), at_once):
            for scores in (queries[start : start + at_once] @ self.keys.T).astype(np.float64):
                yield self.hits(best_places(scores, shown), scores, len(self))

    def hits(self, rows: NDArray[np.integer], scores: NDArray[np.float64], total: int) -> "Hits":
        """Some of the voices, with their places among the scores (n,) of all of these."""
        names = [self.names[row] for row in rows]
        measures = self.measures[rows]
        quality = _quality(self.seconds[rows], measures)
        return Hits(names, scores[rows], quality, templates(self.embeddings[rows], measures), total)


def _quality(
    seconds: NDArray[np.float64], measures: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    columns = dict(zip(MEASURES, measures.T, strict=True))
    return recording_measures(seconds, None, columns)


class Hits(NamedTuple):
    """The voices that score highest for a query, best first, of so many voices in all."""

    names: list[str]
    scores: NDArray[np.float64]  # (k,)
    quality: dict[str, NDArray[np.float64]]  # measures (k,) by name
    templates: NDArray[np.float32]  # (k, dim)
    total: int


class VoiceStore(Mapping[str, Voice]):
    """Voices by name; fingerprint is that of their model.

    Threads may use one store at once. An answer is about the voices at one moment.
    """

    fingerprint: str

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """How many numbers an embedding has; None before the first voice."""

    @abstractmethod
    def add(self, name: str, voice: Voice) -> Voice:
        """Enroll a voice; recordings of an enrolled name are added to it. Returns the result."""

    @abstractmethod
    def remove(self, *names: str) -> None:
        """Remove voices; all of them, or with an unknown name none."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Give a voice a name that nobody has."""

    @abstractmethod
    def search(self, queries: NDArray[np.float32], count: int | None = None) -> Iterator[Hits]:
        """The ``count`` voices of the highest scores for each lifted query (m, lifted_dim)."""

    @abstractmethod
    def each(self) -> Iterator[tuple[str, Voice]]:
        """All names and voices, a few at a time in memory."""

    def extend(self, voices: Iterable[tuple[str, Voice]]) -> None:
        """Enroll many voices."""
        for name, voice in voices:
            self.add(name, voice)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.each())


def unlifted(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings as they are, for what does not search."""
    return embeddings


def require_dimension(name: str, voice: Voice, dimension: int | None) -> None:
    """Raise if the embedding of a voice has not the dimension of the others, if that is known."""
    if dimension not in (None, len(voice.embedding)):
        raise ValueError(
            f"{name} has an embedding of {len(voice.embedding)} numbers, the voices "
            f"enrolled so far of {dimension}: those are of another model; enroll them again"
        )


def require_fingerprint(place: object, made_by: str, fingerprint: str | None) -> None:
    """Raise if voices at a place are not of the model with this fingerprint."""
    if fingerprint not in (None, made_by):
        what = "holds voices that another model enrolled"
        raise ValueError(f"{place} {what}: use that one, or enroll them into another file")


def unknown_name(name: str, some: list[str]) -> ValueError:
    """The error for a name that nobody has; some have others."""
    return ValueError(f"nobody is enrolled as {name!r}; known: {', '.join(some) or 'nobody'}")


def check_name(name: object) -> None:
    """Raise unless this can be a name."""
    is_text = isinstance(name, str) and name.encode(errors="replace").decode() == name
    if not (isinstance(name, str) and is_text and name.strip() and len(name) <= LARGEST_NAME):
        raise ValueError(
            f"a voice needs a name of 1 to {LARGEST_NAME} letters, not {reprlib.repr(name)}"
        )


def check_arrays(arrays: Arrays, count: int) -> None:
    """Raise a ValueError that says what is wrong with the arrays of so many voices."""
    for name, array in arrays.items():
        kind, dimensions = KINDS[name]
        if array.dtype != kind or array.ndim != dimensions or len(array) != count:
            raise ValueError(f"{name} has the type {array.dtype} and the shape {array.shape}")
        if not (np.abs(array) <= LARGEST_NUMBER).all():
            raise ValueError(f"{name} holds values that are not numbers up to {LARGEST_NUMBER:g}")
    if (arrays["recordings"] < 1).any() or (arrays["seconds"] <= 0).any():
        raise ValueError("a voice without recordings")
    measures = arrays.get("measures")
    if count and measures is not None and measures.shape[1] != len(MEASURES):
        raise ValueError(f"measures has the shape {measures.shape}")


def empty_arrays() -> Arrays:
    """The arrays of no voices."""
    return {name: np.empty((0, 0)[:axes], kind) for name, (kind, axes) in KINDS.items()}


def best_places(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The places (count,) of the largest of values (n,), largest first, equal ones in order."""
    places = np.arange(len(values))
    if count < len(values):
        places = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return places[np.argsort(-values[places], kind="stable")][:count]
