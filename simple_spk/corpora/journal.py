"""The journal of a conversion: what has been done, so that a killed run goes on where it was."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from simple_spk.io.atomic_file import atomic_write

SECONDS_BETWEEN_SYNCS = 2.0


class Outcome(NamedTuple):
    """What became of a source: a recording of so many samples, or a kind of fault."""

    name: str  # of the source, relative to the folder of sources
    source_bytes: int
    source_mtime_ns: int  # with the size, tells whether the source is still the same
    target_bytes: int = 0
    samples: int = 0
    fault: str = ""  # empty for a recording
    details: str = ""


class Journal:
    """An append-only text file: the settings, then an outcome per line, each a JSON array.

    Only a process that is killed or a full disk leaves a torn last line; it is cut off when the
    journal is opened. Lines reach the operating system at once, and the disk every few seconds.
    """

    def __init__(self, path: Path, settings: dict[str, str | float]) -> None:
        self.path = path
        self.settings = settings
        self.outcomes: dict[str, Outcome] = {}  # of earlier runs; the last line on a source holds
        self.unreadable_lines = 0
        self._read()
        # Unbuffered, or closing the file would try again to write what a full disk refused.
        self._file = path.open("ab", buffering=0)
        if self._file.tell() == 0:
            self._write(_line(settings))
        self._synced_at = time.monotonic()

    def append(self, outcome: Outcome) -> None:
        """Write an outcome to the file."""
        self._write(_line(outcome))
        if time.monotonic() - self._synced_at > SECONDS_BETWEEN_SYNCS:
            os.fsync(self._file.fileno())
            self._synced_at = time.monotonic()

    def rewrite(self, outcomes: Iterable[Outcome]) -> None:
        """Replace the file by one of these outcomes alone: the same file however the work went."""
        with (
            atomic_write(self.path) as partial,
            partial.open("wb") as file,
        ):
            file.write(_line(self.settings))
            file.writelines(map(_line, outcomes))
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Bring everything to the disk."""
        os.fsync(self._file.fileno())
        self._file.close()

    def _write(self, lines: bytes) -> None:
        """Append whole lines, or raise."""
        try:
            written = self._file.write(lines)
        except OSError as error:
            raise OSError(f"cannot write {self.path} ({error.strerror}): make room") from error
        if written != len(lines):
            raise OSError(f"cannot write {self.path} (the disk is full): make room")

    def _read(self) -> None:
        """Take up the journal of an earlier run, if there is one with the same settings."""
        if not self.path.exists():
            return
        with self.path.open("r+b") as file:
            for number, line in enumerate(file):
                if not line.endswith(b"\n"):
                    file.seek(-len(line), os.SEEK_END)
                    file.truncate()
                elif number == 0:
                    self._check_settings(_parsed(line))
                else:
                    self._take_up(_parsed(line))

    def _check_settings(self, found: object) -> None:
        """Raise if the journal is of another kind of conversion."""
        if found != self.settings:
            raise ValueError(
                f"{self.path} is the journal of a conversion with the settings {found}, not "
                f"{self.settings}: choose another target, or delete this file to convert all again"
            )

    def _take_up(self, values: object) -> None:
        """Remember the outcome that a line holds."""
        if isinstance(values, list) and len(values) == len(Outcome._fields):
            self.outcomes[str(values[0])] = Outcome(*values)
        else:  # a disk that lost power: the source is converted again
            self.unreadable_lines += 1


def _line(value: object) -> bytes:
    """Settings or an outcome as a line of JSON."""
    return json.dumps(value).encode() + b"\n"


def _parsed(line: bytes) -> object:
    """What a line of JSON says; None if it is none."""
    try:
        return json.loads(line)
    except ValueError:
        return None
