"""API keys: a file of their SHA-256, with the endpoints that each may use.

A key is 32 random bytes, which nobody can guess from its hash; so a fast hash suffices.
"""

import hashlib
import json
import logging
import secrets
import threading
from pathlib import Path
from typing import Any

from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import read_file

SCOPES = ("verify", "embed", "enroll", "identify", "diarize", "voices", "metrics")
PREFIX = "spk_"  # so that searches for leaked secrets find keys
LARGEST_BYTES = 2**20

logger = logging.getLogger(__name__)


class KeyFile:
    """The keys of a file, read again when the file changes: a removed key is refused at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._state: tuple[int, ...] = ()
        self._keys: dict[str, tuple[str, frozenset[str]]] = {}
        read_keys(path)

    def find(self, key: str) -> tuple[str, frozenset[str]] | None:
        """The name and the scopes of a key; None if it is unknown."""
        with self._lock:
            try:
                found = self.path.stat()
                state = (found.st_mtime_ns, found.st_size, found.st_ino)
                if state != self._state:
                    self._keys = {
                        one["sha256"]: (name, frozenset(one["scopes"]))
                        for name, one in read_keys(self.path).items()
                    }
                    self._state = state
            except (OSError, ValueError) as error:  # nobody, until it is mended
                logger.error("%s", error)
                return None
            return self._keys.get(_hash(key))


def read_keys(path: Path) -> dict[str, dict[str, Any]]:
    """The hash and the scopes of each key by its name."""
    content = read_file(path, "file of API keys", LARGEST_BYTES, "make it with --add-key")
    try:
        keys = json.loads(content.decode())["keys"]
        for one in keys.values():
            if not (isinstance(one["sha256"], str) and set(one["scopes"]) <= set(SCOPES)):
                raise ValueError("a key without a hash, or with unknown scopes")
        return dict(keys)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"is not a file of API keys ({type(error).__name__}: {error})"
        raise ValueError(f"{path} {what}: make it again with --add-key") from error


def add_key(path: Path, name: str, scopes: list[str]) -> str:
    """Add a key to a file, and return it: it is nowhere else, the file has its hash."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise ValueError(f"scopes are some of {', '.join(SCOPES)}, not {', '.join(unknown)}")
    keys = read_keys(path) if path.exists() else {}
    if name in keys:
        raise ValueError(f"{path} has a key named {name!r}: remove it first (--remove-key)")
    key = PREFIX + secrets.token_urlsafe(32)
    _write(path, {**keys, name: {"sha256": _hash(key), "scopes": sorted(set(scopes))}})
    return key


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file; a server that runs refuses it from then on."""
    keys = read_keys(path)
    if name not in keys:
        raise ValueError(f"{path} has no key named {name!r}; it has {', '.join(keys) or 'none'}")
    _write(path, {other: one for other, one in keys.items() if other != name})


def _write(path: Path, keys: dict[str, dict[str, Any]]) -> None:
    with atomic_write(path) as partial:
        partial.chmod(0o600)
        partial.write_text(json.dumps({"keys": keys}, indent=2) + "\n", encoding="utf-8")


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
