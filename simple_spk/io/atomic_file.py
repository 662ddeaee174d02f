"""Files and folders that are whole or absent, also after a power cut, and locks on them."""

import contextlib
import glob
import hashlib
import json
import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

DIGESTS = "files.json"  # sizes and SHA-256 of the files of a folder
LOCK = ".lock"  # in a folder that ``lock_folder`` has held
ORPHANS_END_SECONDS = 10.0  # data workers notice within five that their process was killed


@contextmanager
def atomic_write(path: str | Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it becomes ``path``. Makes the folders.

    If ``durable``, the content reaches the disk before the name does: a power cut leaves no empty
    file. Of several writers the last one wins whole. Files of killed writers are removed.

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
    for name in glob.glob(f"{glob.escape(str(path))}.*.partial") if fcntl is not None else ():
        # Nobody holds the lock of a dead writer any more.
        with contextlib.suppress(OSError), open(name, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)
    held = None
    while held is None:  # another writer may remove the file as a dead one's before it is locked
        partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
        held = _locked(partial)
    with held:
        try:
            yield partial
            if durable:
                sync_file(partial)
            partial.replace(path)
            if durable:
                sync_folder(path.parent)
        except BaseException as error:
            # Errors of writing do not name the file, and nobody knows its temporary name.
            if isinstance(error, OSError) and error.filename in (None, str(partial)):
                error.filename = str(path)
                del error.filename2
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def _locked(path: Path) -> IO[bytes] | None:
    """A new file, locked until it is closed; None if it was removed before it was locked."""
    file = path.open("xb")
    with contextlib.suppress(OSError):  # a file system without locks
        lock_file(file)
    if _has_name(file, path):
        return file
    file.close()
    return None


@contextmanager
def atomic_folder(path: Path, activity: str) -> Iterator[Path]:
    """Yield an empty folder beside ``path``; on success it becomes ``path``, which must not exist.

    Folders that killed processes left are removed.
    """
    for left_over in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}.partial"):
        if (left_over / LOCK).is_file():
            with contextlib.suppress(OSError), lock_folder(left_over, activity):
                shutil.rmtree(left_over)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    with lock_folder(partial, activity):
        try:
            yield partial
            for file in partial.iterdir():
                sync_file(file)
            sync_folder(partial)
            partial.rename(path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        (path / LOCK).unlink(missing_ok=True)
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal_folder(folder: Path) -> None:
    """Write the list of a folder's files, and wait until all of them are on the disk."""
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir()) if path.is_file()}
    for name in digests:
        sync_file(folder / name)
    write_json(folder / DIGESTS, digests)


def damage_of(folder: Path) -> str | None:
    """What is wrong with a sealed folder, in words; None if it is whole.

    Folders without a list (of version 0.1) count as whole if none of their files is empty.
    """
    files = [path for path in folder.iterdir() if path.is_file()]
    if not (folder / DIGESTS).is_file():
        empty = [path.name for path in files if path.stat().st_size == 0]
        return f"{empty[0]} is empty" if empty else None
    try:
        digests = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
        expected = {str(name): (int(size), str(digest)) for name, (size, digest) in digests.items()}
    except (ValueError, TypeError, AttributeError, OSError):
        return f"{DIGESTS} cannot be read"
    for name, (size, digest) in expected.items():
        path = folder / Path(name).name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes instead of {size}"
        if _digest(path)[1] != digest:
            return f"the content of {name} has changed"
    return None


def _digest(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return path.stat().st_size, digest.hexdigest()


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, content: Any) -> None:
    """Write plain data as a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def lock_file(file: IO[Any], refusal: str | None = None, shared: bool = False) -> None:
    """Lock an open file until it is closed; if it is locked, wait, or raise with this message.

    Processes that inherit the file share its lock. A shared lock excludes exclusive ones only. On
    Windows nothing is locked.
    """
    if fcntl is None:
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if refusal is None else kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(refusal) from error


@contextmanager
def lock_folder(folder: str | Path, activity: str) -> Iterator[None]:
    """Hold a folder inside the with statement, or refuse and name the process that holds it.

    The holder may remove the folder. A process that dies in whatever way holds nothing any more,
    once its children have ended, too. Windows has no such locks: there a warning says so, and
    nothing is refused.
    """
    folder = Path(folder)
    path = folder / LOCK
    if fcntl is None:
        logger.warning("%s cannot be locked on this system: let one process use it", folder)
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    until = time.monotonic() + ORPHANS_END_SECONDS
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8", errors="replace") as file:
            try:
                lock_file(file, "held")
            except BlockingIOError:
                file.seek(0)
                holder = file.read(200).strip() or "another process"
                if _has_died(holder) and time.monotonic() < until:
                    time.sleep(0.05)
                    continue
                raise BlockingIOError(
                    f"{holder} is {activity} in {folder}: wait for it, stop it, or name another "
                    "folder"
                ) from None
            if not _has_name(file, path):  # its last holder removed it after it was opened here
                continue
            file.truncate(0)
            file.write(_name_of_process(os.getpid()))
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)
            return


def _name_of_process(number: int | str) -> str:
    return f"process {number} on {socket.gethostname()}"


def _has_died(holder: str) -> bool:
    """Whether a lock names a process of this machine that is not there any more."""
    number = "".join(holder.split()[1:2])
    if holder != _name_of_process(number) or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def _has_name(file: IO[Any], path: Path) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
