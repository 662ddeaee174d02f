"""Files that others made: regular ones only, and of bounded size in memory."""

import errno
import gzip
import io
import stat
import zlib
from pathlib import Path
from typing import IO

# Packed files are unpacked up to this size: a few megabytes can expand to any number of gigabytes.
MOST_UNPACKED_BYTES = 10**8
BLOCK_BYTES = 2**20
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def file_size(path: Path, what: str, cure: str = "correct the path") -> int:
    """The size in bytes of a regular file; pipes, devices and folders are refused.

    Reading those may never end. Files of /proc, too, of which some wait forever, count as empty.
    """
    try:
        state = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if getattr(error, "errno", errno.ENOENT) not in NO_FILE:
            raise
        raise FileNotFoundError(f"no {what} at {path}: {cure}") from error
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(f"{what} {path} is a folder: name a file in it")
    if not stat.S_ISREG(state.st_mode):
        raise OSError(f"{what} {path} is a pipe or a device: save it as a file, and name that")
    return state.st_size


def open_file(path: Path, what: str, cure: str = "correct the path") -> IO[bytes]:
    """A regular file, opened for reading."""
    return path.open("rb") if file_size(path, what, cure) else io.BytesIO()


def read_file(path: Path, what: str, most_bytes: int, cure: str = "correct the path") -> bytes:
    """The content of a regular file of at most so many bytes."""
    size = file_size(path, what, cure)
    if size > most_bytes:
        raise ValueError(f"{what} {path} has {size} bytes: no such file needs over {most_bytes}")
    return path.read_bytes() if size else b""


def unpacked(file: IO[bytes], path: Path) -> IO[bytes]:
    """The content of an opened gzip file, which is closed; refused if it is damaged or huge."""
    content = io.BytesIO()
    with file, gzip.GzipFile(fileobj=file) as packed:
        try:
            while block := packed.read(BLOCK_BYTES):
                content.write(block)
                if content.tell() > MOST_UNPACKED_BYTES:
                    raise ValueError(
                        f"{path} unpacks to more than {MOST_UNPACKED_BYTES // 10**6} MB: unpack it "
                        "yourself (gunzip) if you trust it, and name the result"
                    )
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
    content.seek(0)
    return content
