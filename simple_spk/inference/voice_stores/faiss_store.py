"""A file of voices whose candidates come from an index of FAISS (extra ``index``).

The voices are those of ``voice_file``; any of them can be opened with or without an index. The
index, PATH.faiss, holds the keys of one moment. Voices that changed since are compared one by one,
so enrolling does not touch it, and it is never wrong, only slower, until it is built anew. What it
finds is scored again by the records.
"""

import hashlib
import importlib
import logging
import math
import sqlite3
import struct
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.voice_stores.key_matrix import Found, Kind, best_rows, decoded
from simple_spk.inference.voice_stores.voice import Lift
from simple_spk.inference.voice_stores.voice_database import State
from simple_spk.inference.voice_stores.voice_file import VoiceFile
from simple_spk.io.atomic_file import atomic_write

MAGIC = b"simple_spk index"
# Magic, identity of the records, digest of the lift, width, changes until then, digest of the rest.
HEADER = struct.Struct("<16s16s16sIq32s")
INDEX_KINDS = ("pq", "flat", "ivf", "ivf-sq8")
LISTS_PER_ROOT = 2  # lists of an inverted file for each unit of the root of the number of voices
TRAINED_PER_LIST = 40
PROBED_SHARE, FEWEST_PROBED = 0.2, 8  # of the lists, which a search reads
TRAINED_BY_PQ = 20_000  # keys
FEWEST_FOR_PQ = 39 * 16  # FAISS wants 39 keys for each of the 16 codes
KEYS_AT_ONCE = 2**16
MUCH_NEW = 0.1  # a share of voices that are not in the index, from which on a search says so

logger = logging.getLogger(__name__)


class LoadedIndex(NamedTuple):
    """An index of FAISS and what it holds."""

    version: tuple[int, int, int]  # of the file
    kind: Kind
    through: int  # the number of the last change it knows
    index: Any


class FaissStore(VoiceFile):
    """The voices in a file, searched by an index beside it, if there is one."""

    def __init__(
        self,
        path: str | Path,
        fingerprint: str | None = None,
        lift: Lift | None = None,
        create: bool = False,
    ) -> None:
        self._faiss = _import_faiss()
        super().__init__(path, fingerprint, lift, create)
        self.index_path = self.path.with_name(self.path.name + ".faiss")
        self._loaded: LoadedIndex | None = None

    def build(self, kind: str = "pq") -> int:
        """Index all voices as they are now; returns their number.

        flat compares all keys, pq all in 4 bits for two numbers (of few voices as flat does); ivf
        compares those of the nearest lists, ivf-sq8 in a byte for each number.
        """
        if kind not in INDEX_KINDS:
            raise ValueError(f"an index is one of {', '.join(INDEX_KINDS)}, not {kind!r}")
        self._make_keys()
        with self._database.transaction() as (_, state):
            keys = self._keys(state)
        if keys is None or state.dimension is None or not state.voices:
            raise ValueError(f"{self.path} has no voices to index: enroll some first")
        # A row that changes meanwhile belongs to a later change, and is not looked up in the index.
        what = Kind.of(state.identity, self._lift, state.dimension)
        live = np.flatnonzero(~np.isnan(decoded(keys, 1)[:, 0]))  # by their last numbers
        index = self._trained(kind, keys, live, what.width)
        for start in range(0, len(live), KEYS_AT_ONCE):
            some = live[start : start + KEYS_AT_ONCE]
            index.add_with_ids(_padded(decoded(keys[some], what.width), index.d), some)
        with atomic_write(self.index_path) as partial:
            self._faiss.write_index(index, str(partial))
            digest = _digest(partial, partial.stat().st_size)
            with partial.open("ab") as file:
                file.write(HEADER.pack(MAGIC, *what, state.changes, digest))
        return len(live)

    def _trained(
        self, kind: str, keys: NDArray[np.int8], live: NDArray[np.int64], width: int
    ) -> Any:
        """An index without keys, whose lists fit a sample of these."""
        faiss = self._faiss

        def sample(count: int) -> NDArray[np.float32]:
            random = np.random.default_rng(0).permutation(live)
            return _padded(decoded(keys[np.sort(random[:count])], width), size)

        if kind == "pq" and len(live) < FEWEST_FOR_PQ:
            kind = "flat"
        # For pq an even number of numbers, for the others a multiple of FAISS's fast functions.
        size = width + -width % (2 if kind == "pq" else 16)
        if kind == "flat":
            return faiss.IndexIDMap2(faiss.IndexFlatIP(size))
        metric = faiss.METRIC_INNER_PRODUCT
        if kind == "pq":
            index = faiss.IndexPQFastScan(size, size // 2, 4, metric)
            index.train(sample(TRAINED_BY_PQ))
            return faiss.IndexIDMap2(index)
        lists = int(min(LISTS_PER_ROOT * math.sqrt(len(live)), len(live) / TRAINED_PER_LIST))
        lists = max(1, lists)
        quantizer = faiss.IndexFlatIP(size)
        if kind == "ivf":
            index = faiss.IndexIVFFlat(quantizer, size, lists, metric)
        else:
            index = faiss.IndexIVFScalarQuantizer(
                quantizer, size, lists, faiss.ScalarQuantizer.QT_8bit, metric
            )
        index.cp.max_points_per_centroid = TRAINED_PER_LIST
        index.cp.min_points_per_centroid = 1
        index.train(sample(TRAINED_PER_LIST * lists))
        index.nprobe = min(lists, max(FEWEST_PROBED, math.ceil(PROBED_SHARE * lists)))
        return index

    def _index(self, state: State) -> LoadedIndex | None:
        """The index of these voices; None if there is none."""
        try:
            size = self.index_path.stat()
        except FileNotFoundError:
            return None
        version = (size.st_ino, size.st_size, size.st_mtime_ns)
        if self._loaded is None or self._loaded.version != version:
            self._loaded = self._read(version)
        assert state.dimension is not None
        if self._loaded.kind != Kind.of(state.identity, self._lift, state.dimension):
            return None
        return self._loaded

    def _read(self, version: tuple[int, int, int]) -> LoadedIndex:
        """The index in the file, which must be as it was written."""
        cure = "build it again (simple-spk voices index)"
        size = version[1] - HEADER.size
        with self.index_path.open("rb") as file:
            file.seek(max(0, size))
            head = file.read(HEADER.size)
        if len(head) < HEADER.size or not head.startswith(MAGIC):
            raise ValueError(f"{self.index_path} is not an index: {cure}")
        _, *kind, through, digest = HEADER.unpack(head)
        if digest != _digest(self.index_path, size):
            raise ValueError(f"{self.index_path} is damaged: {cure}")
        index = self._faiss.read_index(str(self.index_path))
        return LoadedIndex(version, Kind(*kind), through, index)

    def _candidates(
        self,
        db: sqlite3.Connection,
        state: State,
        queries: NDArray[np.float32],
        keys: NDArray[np.int8],
        count: int,
    ) -> list[Found]:
        """The slots that the index finds, and those of the best voices that it does not have."""
        loaded = self._index(state) if state.voices else None
        if loaded is None:
            cure = "simple-spk voices index makes one"
            logger.warning("%s has no index: all voices are compared; %s", self.path, cure)
            return super()._candidates(db, state, queries, keys, count)
        _, found = loaded.index.search(_padded(queries, loaded.index.d), max(1, count))
        what = "SELECT slot FROM voices WHERE changed > ?"
        new = np.array([slot for (slot,) in db.execute(what, (loaded.through,))], np.int64)
        if len(new) > MUCH_NEW * state.voices:
            logger.warning("%d voices are newer than the index of %s", len(new), self.path)
        candidates = []
        for slots, best in zip(found, best_rows(queries, keys[new], count), strict=True):
            both = np.unique(np.concatenate([slots[slots >= 0], new[best.rows]]))
            nothing = np.zeros(len(both), np.float32)  # is known of the scores
            candidates.append(Found(both, nothing, nothing + np.inf))
        return candidates


def _padded(rows: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Rows (n, width) with zeros to (n, size)."""
    return np.pad(rows, ((0, 0), (0, size - rows.shape[1])))


def _digest(path: Path, size: int) -> bytes:
    """A digest of the first bytes of a file."""
    found = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while size and (block := file.read(min(size, 2**20))):
            found.update(block)
            size -= len(block)
    return found.digest()


def _import_faiss() -> ModuleType:
    """FAISS, or an error that says how to install it."""
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise ValueError("faiss: needs FAISS: pip install -e '.[index]'") from error
