"""Enrolled voices in a collection of Qdrant (extra ``qdrant``): one server, or a cluster of them.

A point is a voice: its vector is the key, compared by the dot product; its payload has the name,
the fingerprint of the model and the record. What the index of Qdrant finds is scored again by the
records. A point is written as a whole. Two processes that add recordings to one name at the same
moment may lose those of one of them; voices of other names are not affected.
"""

import atexit
import base64
import contextlib
import functools
import importlib
import itertools
import reprlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.voice_stores.voice import (
    KINDS,
    TAKEN,
    Hits,
    Lift,
    Voice,
    Voices,
    VoiceStore,
    best_places,
    check_arrays,
    check_name,
    empty_arrays,
    require_dimension,
    require_fingerprint,
    unknown_name,
    unlifted,
)

COLLECTION = "voices"  # unless the address names another
NAMES = uuid.UUID("6f9c1e0a-52e4-4b6b-8f3e-5f4f0e3c1d77")  # points are numbered by their names
VOICES_AT_ONCE = 256
QUERIES_AT_ONCE = 16
TIMEOUT_SECONDS = 60


class QdrantStore(VoiceStore):
    """Voices in a collection; each change is written at once. Their order is that of Qdrant.

    The place is http(s)://HOST:PORT[/COLLECTION], or for small collections in this process a folder
    or ``:memory:``.
    """

    def __init__(
        self,
        place: str,
        fingerprint: str | None = None,
        lift: Lift | None = None,
        create: bool = False,
    ) -> None:
        self.address = f"qdrant:{place}"
        self._lift = lift or unlifted
        self._creates = create and fingerprint is not None
        with self._explained():
            self._client, self._collection = _client(place)
            self._models = importlib.import_module("qdrant_client.models")
            exists = self._client.collection_exists(self._collection)
            points = self._client.scroll(self._collection, limit=1)[0] if exists else []
        if not exists and not self._creates:
            raise FileNotFoundError(
                f"no enrolled voices at {self.address}: correct the address, or enroll"
            )
        payload = points[0].payload or {} if points else {}
        self.fingerprint = str(payload.get("fingerprint", fingerprint or ""))
        require_fingerprint(self.address, self.fingerprint, fingerprint)

    def __len__(self) -> int:
        with self._explained():
            if not self._client.collection_exists(self._collection):
                return 0
            return self._client.count(self._collection, exact=True).count

    @property
    def dimension(self) -> int | None:
        """How many numbers an embedding has; None before the first voice."""
        if not len(self):
            return None
        with self._explained():
            points = self._client.scroll(self._collection, limit=1)[0]
        return self._decoded([point.payload for point in points]).dimension if points else None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._retrieved([name]))

    def __getitem__(self, name: str) -> Voice:
        payloads = self._retrieved([name])
        if not payloads:
            raise KeyError(name)
        return self._decoded(payloads).voice(0)

    def each(self) -> Iterator[tuple[str, Voice]]:
        """All names and voices, a few at a time in memory."""
        after: Any = None
        if not len(self):
            return
        while True:
            with self._explained():
                points, after = self._client.scroll(
                    self._collection, limit=VOICES_AT_ONCE, offset=after, with_payload=True
                )
            some = self._decoded([point.payload for point in points])
            yield from ((name, some.voice(row)) for row, name in enumerate(some.names))
            if after is None:
                return

    def add(self, name: str, voice: Voice) -> Voice:
        """Enroll a voice; recordings of an enrolled name are added to it. Returns the result."""
        check_name(name)
        require_dimension(name, voice, self.dimension)
        before = self.get(name)
        if before is not None:
            voice = before.joined(voice)
        self._write([(name, voice)])
        return voice._replace(measures=voice.known_measures)

    def extend(self, voices: Iterable[tuple[str, Voice]]) -> None:
        """Enroll many voices of different names, some hundred in each call."""
        remaining = iter(voices)
        while some := list(itertools.islice(remaining, VOICES_AT_ONCE)):
            names = [name for name, _ in some]
            if len(set(names)) < len(names) or self._retrieved(names):
                super().extend(some)  # one by one
                continue
            dimension = self.dimension
            for name, voice in some:
                check_name(name)
                require_dimension(name, voice, dimension or len(some[0][1].embedding))
            self._write(some)

    def remove(self, *names: str) -> None:
        """Remove voices; all of them, or with an unknown name none."""
        known = {payload["name"] for payload in self._retrieved(names)}
        for name in names:
            if name not in known:
                raise self._unknown(name)
        with self._explained():
            self._client.delete(self._collection, [_number(name) for name in names], wait=True)

    def rename(self, old: str, new: str) -> None:
        """Give a voice a name that nobody has."""
        check_name(new)
        payloads = self._retrieved([old])
        if not payloads:
            raise self._unknown(old)
        if new == old:
            return
        if new in self:
            raise ValueError(TAKEN.format(new))
        self._write([(new, self._decoded(payloads).voice(0))])
        self.remove(old)  # only then: nothing is lost if it does not come to this

    def search(self, queries: NDArray[np.float32], count: int | None = None) -> Iterator[Hits]:
        """The ``count`` voices of the highest scores for each lifted query (m, lifted_dim)."""
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            block = queries[start : start + QUERIES_AT_ONCE]
            total = len(self)
            shown = total if count is None else min(count, total)
            requests = [
                self._models.QueryRequest(
                    query=query.tolist(), limit=max(1, shown), with_payload=True
                )
                for query in block
            ]
            with self._explained():
                answers = self._client.query_batch_points(self._collection, requests)
            for query, answer in zip(block, answers, strict=True):
                voices = self._decoded([point.payload for point in answer.points])
                scores = (voices.keys @ query).astype(np.float64)
                yield voices.hits(best_places(scores, len(voices)), scores, total)

    def _unknown(self, name: str) -> ValueError:
        return unknown_name(name, [one for one, _ in itertools.islice(self.each(), 10)])

    def _retrieved(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The payloads of those of some names that are enrolled."""
        if not len(self):
            return []
        with self._explained():
            numbers = [_number(name) for name in names]
            points = self._client.retrieve(self._collection, numbers, with_payload=True)
        return [point.payload for point in points]

    def _write(self, voices: Sequence[tuple[str, Voice]]) -> None:
        """Write points, into a new collection if there is none."""
        keys = np.concatenate([Voices.alone("", voice, self._lift).keys for _, voice in voices])
        points = []
        for (name, voice), key in zip(voices, keys, strict=True):
            payload = {
                "name": name,
                "fingerprint": self.fingerprint,
                "recordings": int(voice.recordings),
                "seconds": float(voice.seconds),
                "measures": voice.known_measures.tolist(),
                "embedding": base64.b64encode(voice.embedding.astype("<f4").tobytes()).decode(),
            }
            point = self._models.PointStruct(id=_number(name), vector=key.tolist(), payload=payload)
            points.append(point)
        models = self._models
        with self._explained():
            if self._creates and not self._client.collection_exists(self._collection):
                size = models.VectorParams(size=keys.shape[1], distance=models.Distance.DOT)
                self._client.create_collection(self._collection, vectors_config=size)
            self._client.upsert(self._collection, points, wait=True)

    def _decoded(self, payloads: Sequence[dict[str, Any] | None]) -> Voices:
        """The voices of payloads; a damaged one raises."""
        names, parts = [], []
        for payload in payloads:
            known = payload or {}
            require_fingerprint(self.address, str(known.get("fingerprint")), self.fingerprint)
            try:
                embedding = np.frombuffer(
                    base64.b64decode(known["embedding"], validate=True), "<f4"
                )
                measures = np.array(known["measures"], np.float64)
                voice = Voice(
                    embedding, int(known["recordings"]), float(known["seconds"]), measures
                )
                one = Voices.alone(str(known["name"]), voice, unlifted)
                check_name(known["name"])
                check_arrays({kind: getattr(one, kind) for kind in KINDS}, 1)
            except (KeyError, ValueError, TypeError) as error:
                raise ValueError(
                    f"{self.address}: the record of {reprlib.repr(known.get('name'))} is damaged "
                    f"({error}): remove that voice, and enroll it again"
                ) from error
            names.append(known["name"])
            parts.append(one)
        if len({part.dimension for part in parts}) > 1:
            raise ValueError(f"{self.address} holds embeddings of several dimensions: enroll again")
        if not parts:
            return Voices.of([], empty_arrays(), self._lift)
        joined = {kind: np.concatenate([getattr(part, kind) for part in parts]) for kind in KINDS}
        return Voices.of(names, joined, self._lift)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the client into ones that name the address."""
        try:
            yield
        except ImportError as error:
            cure = "pip install -e '.[qdrant]'"
            raise ValueError(f"qdrant: needs the client of Qdrant: {cure}") from error
        except (ValueError, OSError, RuntimeError):
            raise
        except Exception as error:  # of the client and of the library below it
            module = type(error).__module__.partition(".")[0]
            if module not in ("qdrant_client", "httpx", "httpcore", "grpc"):
                raise
            reason = str(error).partition("\n")[0][:200]
            raise OSError(
                f"{self.address} does not answer ({reason}): is Qdrant running there?"
            ) from error


def _number(name: str) -> str:
    """The number of the point of a name."""
    return str(uuid.uuid5(NAMES, name))


@functools.cache
def _local_client(path: str) -> Any:
    """The client of a folder, of which a process may have only one."""
    try:
        client = importlib.import_module("qdrant_client").QdrantClient(path=path)
    except RuntimeError as error:
        raise BlockingIOError(
            f"another process uses the voices in qdrant:{path}: wait for it, or run a server"
        ) from error
    atexit.register(client.close)  # at exit it is too late for its own finalizer
    return client


def _client(place: str) -> tuple[Any, str]:
    """A client of Qdrant for a place, and the collection there."""
    client = importlib.import_module("qdrant_client").QdrantClient
    if place == ":memory:":
        return client(":memory:"), COLLECTION
    if not place.startswith(("http://", "https://")):
        return _local_client(str(Path(place).absolute())), COLLECTION
    scheme, _, rest = place.partition("://")
    host, _, collection = rest.partition("/")
    url = f"{scheme}://{host}"
    options = {"timeout": TIMEOUT_SECONDS, "check_compatibility": False}
    return client(url=url, **options), collection.strip("/") or COLLECTION
