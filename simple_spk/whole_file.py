"""Files that are whole or do not exist."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A path to write to, beside ``path``, which it becomes once all went well; folders are made.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "folder" / "name.txt"
    >>> with whole_file(path) as partial:
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
