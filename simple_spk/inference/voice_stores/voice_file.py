"""Enrolled voices in a file that grows by one record per voice: an SQLite database.

The database holds the records, each with a checksum. A change is a transaction: after a crash or a
power cut it is there as a whole, or not at all, and processes take turns at writing. A search needs
all keys. They are in a second file beside it, PATH.keys (``key_matrix``), in the row that the
record names. A key is on the disk before its record is, and in a row that no record has used until
then; so whoever reads the records at any moment finds their keys.
"""

import contextlib
import errno
import itertools
import logging
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.voice_stores.key_matrix import (
    Found,
    KeyMatrix,
    Kind,
    best_rows,
    encoded,
)
from simple_spk.inference.voice_stores.voice import (
    MEASURES,
    TAKEN,
    Hits,
    Lift,
    Voice,
    Voices,
    VoiceStore,
    best_places,
    check_arrays,
    check_name,
    require_dimension,
    templates,
    unknown_name,
    unlifted,
)
from simple_spk.inference.voice_stores.voice_database import State, VoiceDatabase
from simple_spk.io.atomic_file import atomic_write

RECORD = "name, recordings, seconds, measures, embedding, checksum"
COLUMNS = f"place, slot, changed, {RECORD}"
WRITE_RECORD = (
    f"INSERT INTO voices ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (place) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", ")[1:])
)
VOICES_AT_ONCE = 4096  # in memory, and in a transaction
QUERIES_AT_ONCE = 16

logger = logging.getLogger(__name__)


class VoiceFile(VoiceStore):
    """The voices in a file, in the order of enrollment; each change is written at once.

    A file that does not exist is created by the first voice if ``create``, which needs a
    fingerprint.
    """

    def __init__(
        self,
        path: str | Path,
        fingerprint: str | None = None,
        lift: Lift | None = None,
        create: bool = False,
    ) -> None:
        self.path = Path(path)
        self._lift = lift or unlifted
        self._database = VoiceDatabase(self.path, fingerprint, create)
        self._held: tuple[State, NDArray[np.int8]] | None = None  # keys, if not in a file
        self._matrix = KeyMatrix(self.path.with_name(self.path.name + ".keys"))
        with self._database.transaction() as (_, state):
            self.fingerprint = state.fingerprint

    @classmethod
    def write(cls, path: str | Path, fingerprint: str, voices: Iterable[tuple[str, Voice]]) -> None:
        """Write a file of these voices, atomically; it replaces a file of that name."""
        path = Path(path)
        if path.exists():  # a transaction that was interrupted must not be undone in the new file
            with contextlib.suppress(ValueError), cls(path)._database.transaction():
                pass
        with atomic_write(path) as partial:
            new = cls(partial, fingerprint, create=True)
            with new._database.transaction(write=True):  # makes the tables
                pass
            new.extend(voices)
        KeyMatrix(path.with_name(path.name + ".keys")).remove()

    def __len__(self) -> int:
        with self._database.transaction() as (_, state):
            return state.voices

    @property
    def dimension(self) -> int | None:
        """How many numbers an embedding has; None before the first voice."""
        with self._database.transaction() as (_, state):
            return state.dimension

    def __contains__(self, name: object) -> bool:
        with self._database.transaction() as (db, _):
            return self._slot(db, name) is not None

    def __getitem__(self, name: str) -> Voice:
        with self._database.transaction() as (db, state):
            found = self._known(db, state, name)
        if found is None:
            raise KeyError(name)
        return found

    def each(self) -> Iterator[tuple[str, Voice]]:
        """All names and voices in the order of enrollment, those of a moment at a time."""
        after = -1
        while True:
            with self._database.transaction() as (db, state):
                what = f"SELECT place, {RECORD} FROM voices WHERE place > ? ORDER BY place LIMIT ?"
                rows = db.execute(what, (after, VOICES_AT_ONCE)).fetchall()
                some = self._decoded(state, [row[1:] for row in rows])
            if not rows:
                return
            after = rows[-1][0]
            yield from ((name, some.voice(row)) for row, name in enumerate(some.names))

    def add(self, name: str, voice: Voice) -> Voice:
        """Enroll a voice; recordings of an enrolled name are added to it. Returns the result."""
        (added,) = self._put([(name, voice)])
        return added

    def extend(self, voices: Iterable[tuple[str, Voice]]) -> None:
        """Enroll many voices, some thousand in each transaction."""
        remaining = iter(voices)
        while some := list(itertools.islice(remaining, VOICES_AT_ONCE)):
            self._put(some)

    def remove(self, *names: str) -> None:
        """Remove voices; all of them, or with an unknown name none."""
        with self._database.transaction(write=True) as (db, state):
            slots = [self._require(db, name) for name in dict.fromkeys(names)]
            db.executemany("DELETE FROM voices WHERE slot = ?", [(slot,) for slot in slots])
            db.executemany("INSERT INTO free_slots VALUES (?, 0)", [(slot,) for slot in slots])
            count = ("changes = changes + 1", "voices = voices - ?")
            db.execute(f"UPDATE store SET {', '.join(count)}", (len(slots),))
        # Searches see no such record any more.
        with self._database.transaction(write=True) as (db, state):
            self._erase(db, state)

    def rename(self, old: str, new: str) -> None:
        """Give a voice a name that nobody has."""
        check_name(new)
        with self._database.transaction(write=True) as (db, state):
            slot = self._require(db, old)
            if new != old and self._slot(db, new) is not None:
                raise ValueError(TAKEN.format(new))
            voice = self._known(db, state, old)
            assert voice is not None
            _, *_, checksum = _record(new, voice)
            what = "UPDATE voices SET name = ?, checksum = ? WHERE slot = ?"
            db.execute(what, (new, checksum, slot))

    def search(self, queries: NDArray[np.float32], count: int | None = None) -> Iterator[Hits]:
        """The ``count`` voices of the highest scores for each lifted query (m, lifted_dim)."""
        for attempt in range(3):
            if attempt:
                self._make_keys()
            with self._database.transaction() as (db, state):
                keys = self._keys(state)
                if keys is None:  # they are missing, or another process replaced them
                    continue
                shown = state.voices if count is None else min(count, state.voices)
                for start in range(0, len(queries), QUERIES_AT_ONCE):
                    block = queries[start : start + QUERIES_AT_ONCE]
                    candidates = self._candidates(db, state, block, keys, shown)
                    ranked = self._ranked(db, state, block, candidates, shown)
                    if ranked is None:
                        break
                    yield from ranked
                else:
                    return
            if start or attempt == 2:  # a search that has given answers cannot begin anew
                raise ValueError(f"{self._matrix.path} does not fit {self.path}: delete it")
            logger.warning("%s does not fit the voices: it is made again", self._matrix.path)
            self._matrix.remove()
        raise OSError(f"{self._matrix.path} is replaced over and over: let one process write it")

    def _candidates(
        self,
        db: sqlite3.Connection,
        state: State,
        queries: NDArray[np.float32],
        keys: NDArray[np.int8],
        count: int,
    ) -> list[Found]:
        """The slots of the ``count`` voices that score highest for each query, or more."""
        # Removed voices may still have their keys.
        (more,) = db.execute("SELECT COUNT(*) FROM free_slots WHERE NOT is_erased").fetchone()
        return best_rows(queries, keys, count + more)

    def _ranked(
        self,
        db: sqlite3.Connection,
        state: State,
        queries: NDArray[np.float32],
        candidates: Sequence[Found],
        count: int,
    ) -> list[Hits] | None:
        """The ``count`` best of the candidates by the score of their records; None if the key
        matrix is not that of the records."""
        wanted = np.unique(np.concatenate([found.rows for found in candidates]))
        rows: list[tuple[Any, ...]] = []
        for some in np.array_split(wanted, len(wanted) // 1000 + 1):
            what = f"SELECT slot, place, {RECORD} FROM voices WHERE slot IN "
            rows += db.execute(what + f"({','.join(map(str, some.tolist()))})").fetchall()
        rows.sort(key=lambda row: row[1])
        voices = self._decoded(state, [row[2:] for row in rows])
        row_of = {row[0]: number for number, row in enumerate(rows)}
        found = []
        for query, (slots, products, errors) in zip(queries, candidates, strict=True):
            live = np.array([slot in row_of for slot in slots.tolist()], bool)
            own = np.array([row_of[slot] for slot in slots[live].tolist()], np.int64)
            scores = (voices.keys[own] @ query).astype(np.float64)
            is_fit = np.abs(scores - products[live]) <= errors[live]
            if not is_fit.all() or (len(own) < count and np.isfinite(errors).all()):
                return None
            order = np.argsort(own)  # that of enrollment
            best = best_places(scores[order], min(count, len(own)))
            everyone = np.full(len(voices), -np.inf)
            everyone[own] = scores
            found.append(voices.hits(own[order][best], everyone, state.voices))
        return found

    def _put(self, voices: Sequence[tuple[str, Voice]]) -> list[Voice]:
        """Enroll voices in one transaction; returns what their names have then."""
        for name, _ in voices:
            check_name(name)
        with self._database.transaction(write=True) as (db, state):
            self._erase(db, state)
            free = db.execute("SELECT slot FROM free_slots LIMIT ?", (len(voices),)).fetchall()
            slots = itertools.chain((slot for (slot,) in free), itertools.count(state.slots))
            (last,) = db.execute("SELECT max(place) FROM voices").fetchone()
            places = itertools.count(0 if last is None else last + 1)
            known = state.voices
            dimension = state.dimension or len(voices[0][1].embedding)
            written: dict[int, Voice] = {}
            put = []
            for name, voice in voices:
                require_dimension(name, voice, dimension)
                before = self._known(db, state._replace(dimension=dimension), name)
                slot = next(slots)
                db.execute("DELETE FROM free_slots WHERE slot = ?", (slot,))
                if before is None:
                    place, known = next(places), known + 1
                else:
                    voice = before.joined(voice)
                    which = "SELECT place, slot FROM voices WHERE name = ?"
                    place, old = db.execute(which, (name,)).fetchone()
                    db.execute("INSERT INTO free_slots VALUES (?, 0)", (old,))
                voice = voice._replace(measures=voice.known_measures)
                record = _record(name, voice)
                db.execute(WRITE_RECORD, (place, slot, state.changes + 1, *record))
                written[slot] = voice
                put.append(voice)
            new = (dimension, state.changes + 1, max(state.slots, 1 + max(written)), known)
            db.execute("UPDATE store SET dimension = ?, changes = ?, slots = ?, voices = ?", new)
            self._write_keys(state, dimension, written)
        return put

    def _write_keys(self, state: State, dimension: int, written: dict[int, Voice]) -> None:
        """Write the keys of new records."""
        kind = Kind.of(state.identity, self._lift, dimension)
        slots = np.array(sorted(written))
        voices = [written[slot] for slot in slots.tolist()]
        rows = templates(
            np.stack([voice.embedding for voice in voices]),
            np.stack([voice.known_measures for voice in voices]),
        )
        if self._lift is unlifted:
            self._matrix.remove()  # whoever searches makes it again
        elif self._matrix.kind() == kind:
            self._matrix.write(kind.width, slots, self._lift(rows))
        elif state.slots == 0:
            self._matrix.create(kind, [self._lift(rows)])
        else:
            self._matrix.remove()

    def _erase(self, db: sqlite3.Connection, state: State) -> None:
        """Erase the keys of removed voices, which are in the file until then."""
        erased = db.execute("SELECT slot FROM free_slots WHERE NOT is_erased").fetchall()
        kind = self._matrix.kind()
        if erased and kind is not None and kind.identity == state.identity:
            slots = np.array(sorted(erased))[:, 0]
            nobody = np.full((len(slots), kind.width), np.nan, np.float32)
            self._matrix.write(kind.width, slots, nobody)
        if erased:
            db.execute("UPDATE free_slots SET is_erased = 1")

    def _keys(self, state: State) -> NDArray[np.int8] | None:
        """The encoded keys of all slots; None if they have to be made."""
        if state.dimension is None:
            return np.empty((0, 0), np.int8)
        kind = Kind.of(state.identity, self._lift, state.dimension)
        mapped = self._matrix.rows(kind, state.slots)
        if mapped is None and self._held is not None and self._held[0] == state:
            return self._held[1]
        return mapped

    def _make_keys(self) -> None:
        """Write the key matrix if it is missing or of other voices."""
        with self._database.transaction() as (_, state):
            if self._keys(state) is not None:
                return
        try:
            with self._database.transaction(write=True) as (db, state):
                if self._keys(state) is None and state.dimension is not None:
                    kind = Kind.of(state.identity, self._lift, state.dimension)
                    self._matrix.create(kind, self._all_keys(db, state, kind.width))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            # Where nothing may be written: in memory.
            with self._database.transaction() as (db, state):
                assert state.dimension is not None
                width = Kind.of(state.identity, self._lift, state.dimension).width
                blocks = self._all_keys(db, state, width)
                self._held = state, np.concatenate([encoded(block) for block in blocks])

    def _all_keys(
        self, db: sqlite3.Connection, state: State, width: int
    ) -> Iterator[NDArray[np.float32]]:
        """The keys of all slots in blocks; those of nobody are not numbers."""
        what = f"SELECT slot, {RECORD} FROM voices WHERE slot >= ? AND slot < ? ORDER BY slot"
        for start in range(0, state.slots, VOICES_AT_ONCE):
            stop = min(state.slots, start + VOICES_AT_ONCE)
            rows = db.execute(what, (start, stop)).fetchall()
            keys = np.full((stop - start, width), np.nan, np.float32)
            if rows:
                slots = np.array([row[0] for row in rows])
                keys[slots - start] = self._decoded(state, [row[1:] for row in rows]).keys
            yield keys

    def _slot(self, db: sqlite3.Connection, name: object) -> int | None:
        """The slot of a name; None if nobody has it."""
        if not isinstance(name, str):
            return None
        found = db.execute("SELECT slot FROM voices WHERE name = ?", (name,)).fetchone()
        return None if found is None else found[0]

    def _require(self, db: sqlite3.Connection, name: str) -> int:
        """The slot of a name; raises if nobody has it."""
        slot = self._slot(db, name)
        if slot is None:
            some = db.execute("SELECT name FROM voices ORDER BY place LIMIT 10").fetchall()
            raise unknown_name(name, [str(one) for (one,) in some])
        return slot

    def _known(self, db: sqlite3.Connection, state: State, name: object) -> Voice | None:
        """The voice of a name; None if nobody has it."""
        if not isinstance(name, str):
            return None
        rows = db.execute(f"SELECT {RECORD} FROM voices WHERE name = ?", (name,)).fetchall()
        return self._decoded(state, rows).voice(0) if rows else None

    def _decoded(self, state: State, rows: Sequence[tuple[Any, ...]]) -> Voices:
        """The voices of records; a damaged one raises."""
        size = (4 * (state.dimension or 0), 8 * len(MEASURES))
        for name, recordings, seconds, measures, embedding, checksum in rows:
            kinds = (type(recordings), type(seconds), type(measures), type(embedding))
            is_whole = isinstance(name, str) and kinds == (int, float, bytes, bytes)
            is_whole = is_whole and (len(embedding), len(measures)) == size
            if not is_whole or checksum != _checksum(
                name, recordings, seconds, measures, embedding
            ):
                raise ValueError(
                    f"{self.path}: the record of {name!r} is damaged: remove that voice, and "
                    "enroll it again"
                )
        names, recordings, seconds, measures, embeddings, _ = (
            zip(*rows, strict=True) if rows else [()] * 6
        )
        shape = (len(rows), state.dimension or 0)
        arrays = {
            "embeddings": np.frombuffer(b"".join(embeddings), "<f4").reshape(shape),
            "recordings": np.array(recordings, np.int64),
            "seconds": np.array(seconds, np.float64),
            "measures": np.frombuffer(b"".join(measures), "<f8").reshape(-1, len(MEASURES)),
        }
        try:
            check_arrays(arrays, len(rows))
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}: enroll the voices again") from error
        return Voices.of(list(names), arrays, self._lift)


def _record(name: str, voice: Voice) -> tuple[str, int, float, bytes, bytes, int]:
    """What is kept of a voice, with its checksum."""
    measures = voice.known_measures.astype("<f8").tobytes()
    embedding = voice.embedding.astype("<f4").tobytes()
    record = (name, int(voice.recordings), float(voice.seconds), measures, embedding)
    return (*record, _checksum(*record))


def _checksum(name: str, recordings: int, seconds: float, measures: bytes, embedding: bytes) -> int:
    """The CRC-32 of a record."""
    return zlib.crc32(repr((name, recordings, seconds)).encode() + measures + embedding)
