"""Enrolled voices in memory, in one matrix; files of versions before 0.2 are read into it."""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from simple_spk.inference.voice_stores.voice import (
    KINDS,
    TAKEN,
    Arrays,
    Hits,
    Lift,
    Voice,
    Voices,
    VoiceStore,
    check_arrays,
    check_name,
    empty_arrays,
    require_dimension,
    require_fingerprint,
    unknown_name,
    unlifted,
    usual_measures,
)
from simple_spk.inference.voice_stores.voice_file import VoiceFile
from simple_spk.io.array_file import open_safetensors
from simple_spk.io.input_file import file_size

FORMAT = "simple_spk voices 1"  # of safetensors files, which are read but no longer written


class SpeakerStore(VoiceStore):
    """Voices in memory, in the order of enrollment.

    What takes several reads works on a ``snapshot``.
    """

    def __init__(self, fingerprint: str, lift: Lift | None = None) -> None:
        self.fingerprint = fingerprint
        self._lift = lift or unlifted
        self._lock = threading.RLock()
        self._names: list[str] = []
        self._row_of: dict[str, int] = {}
        # Rows that a snapshot may show never change: a new voice goes to a spare row after them,
        # any other change to copies.
        self._arrays = Voices.of([], empty_arrays(), self._lift).arrays

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    def __getitem__(self, name: str) -> Voice:
        with self._lock:
            return self.snapshot().voice(self._row_of[name])

    @property
    def dimension(self) -> int | None:
        """How many numbers an embedding has; None before the first voice."""
        return self._arrays["embeddings"].shape[1] if len(self) else None

    def each(self) -> Iterator[tuple[str, Voice]]:
        """All names and voices as they are now."""
        now = self.snapshot()
        return ((name, now.voice(row)) for row, name in enumerate(now.names))

    def search(self, queries: NDArray[np.float32], count: int | None = None) -> Iterator[Hits]:
        """The ``count`` voices of the highest scores for each lifted query (m, lifted_dim)."""
        return self.snapshot().search(queries, count)

    def snapshot(self) -> Voices:
        """All voices as they are now."""
        with self._lock:
            count = len(self)
            return Voices(self._names[:], **{n: a[:count] for n, a in self._arrays.items()})

    def add(self, name: str, voice: Voice) -> Voice:
        """Enroll a voice; recordings of an enrolled name are added to it. Returns the result."""
        check_name(name)
        with self._lock:
            count, row = len(self), self._row_of.get(name, len(self))
            require_dimension(name, voice, self.dimension)
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
        check_name(new)
        with self._lock:
            self._require(old)
            if new in self and new != old:
                raise ValueError(TAKEN.format(new))
            row = self._row_of.pop(old)
            self._names[row], self._row_of[new] = new, row

    def _require(self, name: str) -> bool:
        """True for a name that is enrolled; raises for any other."""
        if name not in self:
            raise unknown_name(name, self._names[:10])
        return True

    def save(self, path: str | Path) -> None:
        """Write all voices to a file, atomically; it replaces a file of that name."""
        VoiceFile.write(path, self.fingerprint, self.each())

    @classmethod
    def load(
        cls, path: str | Path, fingerprint: str | None = None, lift: Lift | None = None
    ) -> "SpeakerStore":
        """The voices of a safetensors file of the model with this fingerprint, or of any model.

        Versions before 0.2 wrote such files.
        """
        path = Path(path)
        file_size(path, "enrolled voices", "correct the path, or enroll")
        try:
            with open_safetensors(path, "enrolled voices", "enroll them again") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            names = _names(metadata, arrays)
        # TypeError, AttributeError: number types that numpy does not have
        except (SafetensorError, ValueError, RecursionError, TypeError, AttributeError) as error:
            why = str(error).removeprefix(f"{path} ").removesuffix(": enroll them again")
            what = f"is not a file of enrolled voices ({why})"
            raise ValueError(f"{path} {what}: correct the path, or enroll them again") from error
        made_by = metadata.get("fingerprint", "")
        require_fingerprint(path, made_by, fingerprint)
        found = cls(made_by, lift)
        found._arrays = Voices.of(names, arrays, found._lift).arrays
        found._names = names
        found._row_of = {name: row for row, name in enumerate(names)}
        return found


def _copied(rows: NDArray[Any], capacity: int, like: NDArray[Any]) -> NDArray[Any]:
    """A copy of rows (n, ...) with room for more, which are like others (1, ...)."""
    copy = np.empty((capacity, *like.shape[1:]), like.dtype)
    if len(rows):  # without any, their dimension is not known yet
        copy[: len(rows)] = rows
    return copy


def _names(metadata: Mapping[str, str], arrays: Arrays) -> list[str]:
    """The names of the voices in a file; a ValueError says what is wrong with it.

    Measures are added to arrays without them.
    """
    if metadata.get("format") != FORMAT:
        raise ValueError(f"expected the format {FORMAT!r}")
    names = json.loads(metadata.get("names", ""))
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) < len(names):
        raise ValueError("its names are not a list of distinct names")
    for name in names:
        check_name(name)
    if set(arrays) not in ({*KINDS}, {*KINDS} - {"measures"}):
        raise ValueError(f"expected the arrays {', '.join(KINDS)}")
    check_arrays(arrays, len(names))
    if "measures" not in arrays:  # in files of 0.1.0
        arrays["measures"] = usual_measures(
            arrays["embeddings"], arrays["recordings"], arrays["seconds"]
        )
    return names
