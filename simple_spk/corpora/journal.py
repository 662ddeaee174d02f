"""The journal of work on many files, so that a killed run continues where it stopped."""

import errno
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from simple_spk.io.atomic_file import atomic_write

SECONDS_BETWEEN_SYNCS = 2.0
Row = TypeVar("Row", bound=NamedTuple)  # of plain values, the first of which is a name


class Outcome(NamedTuple):
    """What became of a source: a recording of so many samples, or a kind of fault."""

    name: str  # of the source, relative to the folder of sources
    source_bytes: int
    source_mtime_ns: int  # with the size, tells whether the source is still the same
    target_bytes: int = 0
    samples: int = 0
    fault: str = ""  # empty for a recording
    details: str = ""


class Journal(Generic[Row]):
    """An append-only text file: the settings, then a row per line, each a JSON array.

    Only a killed process or a full disk leaves a torn last line; it is cut off when the journal is
    opened. Lines reach the operating system at once, and the disk every few seconds.
    """

    def __init__(self, path: Path, settings: Mapping[str, str | float], kind: type[Row]) -> None:
        self.path = path
        self.settings = dict(settings)
        self.rows: dict[str, Row] = {}  # of earlier runs, by name; the last line on a name holds
        self.unreadable_lines = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read(kind)
        # Unbuffered, or closing the file would try again to write what a full disk refused.
        self._file = path.open("ab", buffering=0)
        if self._file.tell() == 0:
            self._write(self.settings)
        self._synced_at = time.monotonic()

    def append(self, row: Row) -> None:
        """Write a row to the file."""
        self._write(row)
        if time.monotonic() - self._synced_at > SECONDS_BETWEEN_SYNCS:
            os.fsync(self._file.fileno())
            self._synced_at = time.monotonic()

    def rewrite(self, rows: Iterable[Row]) -> None:
        """Replace the file by one of these rows alone: the same file however the work went."""
        with atomic_write(self.path) as partial, partial.open("wb") as file:
            file.write(_line(self.settings))
            file.writelines(map(_line, rows))

    def close(self) -> None:
        """Bring everything to the disk."""
        os.fsync(self._file.fileno())
        self._file.close()

    def _write(self, value: object) -> None:
        """Append a whole line, or raise."""
        line = _line(value)
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, "the disk is full")
        except OSError as error:
            raise OSError(f"cannot write {self.path} ({error.strerror}): make room") from error

    def _read(self, kind: type[Row]) -> None:
        """Take up the journal of an earlier run; more settings, as older versions had, are fine."""
        with self.path.open("r+b") as file:
            for number, line in enumerate(file):
                if not line.endswith(b"\n"):
                    file.seek(-len(line), os.SEEK_END)
                    file.truncate()
                    return
                try:
                    values = json.loads(line)
                except ValueError:
                    values = None
                if number > 0 and isinstance(values, list) and len(values) == len(kind._fields):
                    self.rows[str(values[0])] = kind(*values)
                elif number > 0:  # a disk that lost power: the file is looked at again
                    self.unreadable_lines += 1
                elif not isinstance(values, dict) or not self.settings.items() <= values.items():
                    raise ValueError(
                        f"{self.path} is a journal with the settings {values}, not {self.settings}:"
                        " choose another target, or delete this file to look at all files again"
                    )


def _line(value: object) -> bytes:
    """Settings or a row as a line of JSON."""
    return json.dumps(value).encode() + b"\n"
