"""Locks between processes, which the system frees when their holders end, however they end."""

from typing import IO, Any


def lock_file(file: IO[Any], refusal: str | None = None, shared: bool = False) -> None:
    """Lock an open file until it is closed; if others hold it, wait, or refuse with these words.

    Processes that inherit the file hold the lock with this one. A shared lock keeps only those out
    that want it for themselves.
    """
    import fcntl  # here, so that systems without it can do all that locks nothing

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if refusal is None else kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(refusal) from error
