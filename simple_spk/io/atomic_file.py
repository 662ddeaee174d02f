"""Files that are complete or do not exist, and locks on files."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to, renamed to ``path`` if no error occurs; folders are created.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "folder" / "name.txt"
    >>> with atomic_write(path) as partial:
    ...     _ = partial.write_text("text")
    ...     path.exists()
    False
    >>> path.read_text(), partial.exists()
    ('text', False)
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, content: Any) -> None:
    """Write plain data as a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def lock_file(file: IO[Any], refusal: str | None = None, shared: bool = False) -> None:
    """Lock an open file until it is closed; if it is locked, wait, or raise with this message.

    Processes that inherit the file share its lock. A shared lock excludes exclusive ones only.
    """
    import fcntl  # here, as some systems do not have it

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if refusal is None else kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(refusal) from error
