"""The SQLite database of enrolled voices: its tables, transactions, and errors in words.

The file is only opened by SQLite: closing it elsewhere would release the locks of this process.
"""

import contextlib
import errno
import functools
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simple_spk.inference.voice_stores.voice import require_fingerprint
from simple_spk.io.input_file import file_size

FORMAT = "simple_spk voices 2"
SCHEMA = (
    # changes: how many there were; slots: rows of the key matrix.
    "CREATE TABLE store (format TEXT, fingerprint TEXT, identity BLOB, dimension INTEGER, "
    "changes INTEGER, slots INTEGER, voices INTEGER)",
    # place: the order of enrollment; changed: the number of the change that wrote the key.
    "CREATE TABLE voices (place INTEGER PRIMARY KEY, name TEXT UNIQUE, slot INTEGER UNIQUE, "
    "changed INTEGER, recordings INTEGER, seconds REAL, measures BLOB, embedding BLOB, "
    "checksum INTEGER)",
    "CREATE INDEX changes ON voices (changed)",
    "CREATE TABLE free_slots (slot INTEGER PRIMARY KEY, is_erased INTEGER)",
)
SETTINGS = ("synchronous=EXTRA", "secure_delete=ON", "trusted_schema=OFF", "cell_size_check=ON")
LONGEST_WAIT_SECONDS = 60  # for other processes


class State(NamedTuple):
    """The store at one moment."""

    fingerprint: str
    identity: bytes  # of this file and its keys
    dimension: int | None
    changes: int
    slots: int
    voices: int


class NotADatabaseError(ValueError):
    """A file that is not an SQLite database."""


class VoiceDatabase:
    """The database in a file; if ``create``, which needs a fingerprint, it may not exist yet."""

    def __init__(self, path: Path, fingerprint: str | None, create: bool) -> None:
        self.path = path
        self._creates = create and fingerprint is not None
        self._expected = fingerprint

    @contextlib.contextmanager
    def transaction(self, write: bool = False) -> Iterator[tuple[sqlite3.Connection, State]]:
        """The database at one moment; with ``write`` changes are kept on leaving without an error.

        There is a connection per transaction: none is shared by threads or inherited by processes.
        """
        if not self.path.exists() and self._creates:
            if not write:
                with contextlib.closing(_tables()) as db:
                    yield db, self._new()
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
        else:
            file_size(self.path, "enrolled voices", "correct the path, or enroll")
        try:
            address = self.path.absolute().as_uri() + f"?mode={'rwc' if self._creates else 'rw'}"
            with contextlib.closing(
                sqlite3.connect(
                    address, uri=True, timeout=LONGEST_WAIT_SECONDS, isolation_level=None
                )
            ) as db:
                for setting in SETTINGS:
                    db.execute(f"PRAGMA {setting}")
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    state = self._state(db, write)
                    if state is None:
                        with contextlib.closing(_tables()) as nothing:
                            yield nothing, self._new()
                    else:
                        yield db, state
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._explained(error) from error

    def _new(self) -> State:
        """The state of a new file."""
        assert self._expected is not None
        return State(self._expected, secrets.token_bytes(16), None, 0, 0, 0)

    def _state(self, db: sqlite3.Connection, write: bool) -> State | None:
        """The state of the store, None before its first voice; raises if it is not a store."""
        what = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        objects = db.execute(what).fetchall()
        if not objects and self._creates:
            if not write:
                return None
            for statement in SCHEMA:
                db.execute(statement)
            fingerprint, identity, *rest = self._new()
            new = (FORMAT, fingerprint, identity, *rest)
            db.execute("INSERT INTO store VALUES (?, ?, ?, ?, ?, ?, ?)", new)
        # A file of others could have anything in the place of a table.
        elif objects != _schema():
            raise ValueError(self._refusal("it has other tables"))
        rows = db.execute("SELECT * FROM store LIMIT 2").fetchall()
        kinds = [tuple(map(type, row)) for row in rows]
        known = [(str, str, bytes, size, int, int, int) for size in (int, type(None))]
        if len(rows) != 1 or kinds[0] not in known or rows[0][0] != FORMAT:
            raise ValueError(self._refusal(f"expected the format {FORMAT!r}"))
        state = State(*rows[0][1:])
        require_fingerprint(self.path, state.fingerprint, self._expected)
        (pages,), (size,) = (
            db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
        )
        # Records are never fewer bytes than the file has; it does not shrink.
        needed = 4 * state.slots * (state.dimension or 0)
        is_sound = 0 <= state.voices <= state.slots and 0 <= state.changes < 2**62
        is_sound = is_sound and len(state.identity) == 16 and needed <= pages * size
        if not is_sound or (state.dimension or 0) < (state.slots > 0):
            raise ValueError(self._refusal(f"its numbers do not fit: {state[2:]}"))
        return state

    def _refusal(self, what: str) -> str:
        return f"{self.path} is not a file of enrolled voices ({what}): enroll them again"

    def _explained(self, error: Exception) -> Exception:
        """The error of the database in words."""
        text = str(error)
        if "not a database" in text:
            return NotADatabaseError(self._refusal(text))
        if "locked" in text:
            return BlockingIOError(
                f"another process has been writing {self.path} for {LONGEST_WAIT_SECONDS} s: "
                "wait for it"
            )
        if "readonly" in text:
            why = "voices cannot be written: is it protected, or the disk full?"
            return PermissionError(errno.EACCES, why, str(self.path))
        if "disk is full" in text:
            return OSError(errno.ENOSPC, "No space left on device", str(self.path))
        if "disk I/O" in text or "unable to open" in text:
            why = f"cannot be read or written ({text}): is the disk full or broken?"
            return OSError(errno.EIO, why, str(self.path))
        return ValueError(f"{self.path} is damaged ({text}): enroll the voices again")


def _tables() -> sqlite3.Connection:
    """A database in memory without voices."""
    db = sqlite3.connect(":memory:")
    for statement in SCHEMA:
        db.execute(statement)
    return db


@functools.cache
def _schema() -> list[tuple[str, str, str | None]]:
    """What a file has."""
    with contextlib.closing(_tables()) as db:
        what = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        return db.execute(what).fetchall()
