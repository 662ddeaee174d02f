"""Stores of voices by their addresses: PATH, faiss:PATH or qdrant:URL."""

import logging
from pathlib import Path

from simple_spk.inference.voice_stores.faiss_store import FaissStore
from simple_spk.inference.voice_stores.qdrant_store import QdrantStore
from simple_spk.inference.voice_stores.speaker_store import SpeakerStore
from simple_spk.inference.voice_stores.voice import Lift, VoiceStore
from simple_spk.inference.voice_stores.voice_database import NotADatabaseError
from simple_spk.inference.voice_stores.voice_file import VoiceFile
from simple_spk.io.atomic_file import lock_file

logger = logging.getLogger(__name__)


def _parts(address: str | Path) -> tuple[str, str]:
    """The kind of a store (faiss, qdrant, or none for a plain file), and its place."""
    kind, _, place = str(address).partition(":")
    return (kind, place) if place and kind in ("faiss", "qdrant") else ("", str(address))


def voices_file(address: str | Path) -> Path | None:
    """The file of a store; None for that of Qdrant."""
    kind, place = _parts(address)
    return None if kind == "qdrant" else Path(place)


def open_voices(
    address: str | Path,
    fingerprint: str | None = None,
    lift: Lift | None = None,
    create: bool = False,
    change: bool = False,
) -> VoiceStore:
    """The store at an address, of the model with this fingerprint or of any model.

    With ``create``, it need not exist. A file of versions before 0.2 is read into memory, or
    converted if it is to change.
    """
    kind, place = _parts(address)
    if kind == "qdrant":
        return QdrantStore(place, fingerprint, lift, create)
    path = Path(place)
    store = FaissStore if kind == "faiss" else VoiceFile
    try:
        return store(path, fingerprint, lift, create)
    except NotADatabaseError:
        old = SpeakerStore.load(path, fingerprint, lift)
    if not (create or change):
        return old
    with path.with_name(path.name + ".lock").open("a") as lock:
        lock_file(lock)
        try:
            return store(path, fingerprint, lift)  # another process converted it meanwhile
        except NotADatabaseError:
            SpeakerStore.load(path, fingerprint, lift).save(path)
    logger.warning("%s was of an earlier version, and is converted", path)
    return store(path, fingerprint, lift)
