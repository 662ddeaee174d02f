"""Enrolled voices: mean embeddings by name, and the file that keeps them.

A file belongs to one model, as embeddings of different models cannot be compared.
"""

import contextlib
import json
import reprlib
from collections import UserDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save

from simple_spk.io.array_file import open_safetensors
from simple_spk.io.atomic_file import atomic_write, lock_file
from simple_spk.io.input_file import file_size

FORMAT = "simple_spk voices 1"
LARGEST_NAME = 200
LARGEST_NUMBER = 1e9  # of recordings, of seconds, in an embedding: sums and products stay finite
# The types and dimensions of the arrays in a file, which have a row per voice.
KINDS = {"embeddings": (np.float32, 2), "recordings": (np.int64, 1), "seconds": (np.float64, 1)}


class Voice(NamedTuple):
    """The mean embedding of a speaker's recordings, with their number and duration."""

    embedding: NDArray[np.float32]  # (dim,), not normalized: long embeddings count more
    recordings: int
    seconds: float

    def joined(self, other: "Voice") -> "Voice":
        """The voice of the recordings of both."""
        count = self.recordings + other.recordings
        total = self.recordings * self.embedding.astype(np.float64)
        total += other.recordings * other.embedding.astype(np.float64)
        mean = (total / count).astype(np.float32)
        return Voice(mean, count, self.seconds + other.seconds)


class SpeakerStore(UserDict[str, Voice]):
    """Voices by name, in the order of enrollment; fingerprint is that of their model."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__()
        self.fingerprint = fingerprint

    def add(self, name: str, voice: Voice) -> None:
        """Enroll a voice; recordings of an enrolled name are added to it."""
        is_text = isinstance(name, str) and name.encode(errors="replace").decode() == name
        if not (is_text and name.strip() and len(name) <= LARGEST_NAME):
            raise ValueError(
                f"a voice needs a name of 1 to {LARGEST_NAME} letters, not {reprlib.repr(name)}"
            )
        dimension = next((len(other.embedding) for other in self.values()), len(voice.embedding))
        if len(voice.embedding) != dimension:
            raise ValueError(
                f"{name} has an embedding of {len(voice.embedding)} numbers, the voices enrolled "
                f"so far of {dimension}: those are of another model; enroll them again"
            )
        self[name] = self[name].joined(voice) if name in self else voice

    def remove(self, name: str) -> None:
        """Remove a voice."""
        if name not in self:
            known = ", ".join(list(self)[:10]) or "nobody"
            raise ValueError(f"nobody is enrolled as {name!r}; known: {known}")
        del self[name]

    def save(self, path: str | Path) -> None:
        """Write all voices to a safetensors file, atomically."""
        embeddings, recordings, seconds = zip(*self.values(), strict=True) if self else ((), (), ())
        table = np.array(embeddings, np.float32).reshape(len(self), -1 if self else 0)
        arrays: dict[str, NDArray[Any]] = {
            "embeddings": table,
            "recordings": np.array(recordings, np.int64),
            "seconds": np.array(seconds, np.float64),
        }
        metadata = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "names": json.dumps(list(self), ensure_ascii=False),
        }
        with atomic_write(path) as partial:
            partial.write_bytes(save(arrays, metadata))

    @classmethod
    def load(cls, path: str | Path, fingerprint: str) -> "SpeakerStore":
        """The voices of a file of the model with this fingerprint."""
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
        if metadata.get("fingerprint") != fingerprint:
            what = "holds voices that another model enrolled"
            raise ValueError(f"{path} {what}: use that one, or enroll them into another file")
        found = cls(fingerprint)
        rows = zip(*(arrays[name] for name in KINDS), strict=True)
        for name, (embedding, recordings, seconds) in zip(names, rows, strict=True):
            try:
                found.add(name, Voice(embedding, int(recordings), float(seconds)))
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
        return found

    @classmethod
    @contextlib.contextmanager
    def changing(cls, path: str | Path, fingerprint: str) -> Iterator["SpeakerStore"]:
        """The voices of a file, or none if there is no file; saved on leaving without an error.

        Processes that change the file do so one after the other. They lock PATH.lock, which stays:
        saving replaces the file itself.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(path.name + ".lock").open("a") as lock:
            lock_file(lock)
            voices = cls.load(path, fingerprint) if path.exists() else cls(fingerprint)
            yield voices
            voices.save(path)


def _names(metadata: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of the voices in a file; a ValueError says what is wrong with it."""
    if metadata.get("format") != FORMAT:
        raise ValueError(f"expected the format {FORMAT!r}")
    names = json.loads(metadata.get("names", ""))
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) < len(names):
        raise ValueError("its names are no list of different names")
    if set(arrays) != set(KINDS):
        raise ValueError(f"expected the arrays {', '.join(KINDS)}")
    for name, (kind, dimensions) in KINDS.items():
        array = arrays[name]
        if array.dtype != kind or array.ndim != dimensions or len(array) != len(names):
            raise ValueError(f"{name} has the type {array.dtype} and the shape {array.shape}")
        if not (np.abs(array) <= LARGEST_NUMBER).all():
            raise ValueError(f"{name} holds values that are not numbers up to {LARGEST_NUMBER:g}")
    if (arrays["recordings"] < 1).any() or (arrays["seconds"] <= 0).any():
        raise ValueError("a voice without recordings")
    return names
