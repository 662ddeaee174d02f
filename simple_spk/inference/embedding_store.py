"""Embeddings of many recordings that survive an interruption.

While recordings are embedded, finished ones are kept in parts in the folder FILE.parts. The same
call resumes from them. A recording that has changed since is embedded again.
"""

import contextlib
import hashlib
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.tar_store import file_of
from simple_spk.distributed import gather_objects, rank
from simple_spk.evaluation.embedding_files import Embeddings, read_embeddings, write_embeddings
from simple_spk.inference.batch_embedding import embedding_bar
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.trial_evaluation import LocatedRecordings
from simple_spk.io.array_file import read_arrays
from simple_spk.io.atomic_file import LOCK, atomic_write, lock_folder, write_text

PLAN = "plan.txt"
SECONDS_BETWEEN_PARTS = 30.0


class EmbeddingStore:
    """The embeddings of a list of recordings by their index, in parts beside an output file.

    ``made_by`` names the model. A part stores which recordings (id and path) it is of, so that
    parts of another list are used as far as the lists agree.
    """

    def __init__(
        self, output: Path, made_by: str, ids: Sequence[str], paths: Sequence[Path]
    ) -> None:
        self.folder = output.with_name(output.name + ".parts")
        self.ids, self.paths = ids, paths
        self.plan = f"model {made_by}\n"
        names = (f"{name}\n{path}" for name, path in zip(ids, paths, strict=True))
        hashes = (hashlib.sha256(name.encode(errors="surrogateescape")) for name in names)
        self.keys = [one.digest() for one in hashes]

    @classmethod
    def of(
        cls, extractor: Extractor, output: Path, ids: Sequence[str], paths: Sequence[Path]
    ) -> "EmbeddingStore":
        """The store of what an extractor makes in its precision."""
        return cls(output, f"{extractor.fingerprint} in {extractor.precision}", ids, paths)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let no other run write to the folder; processes that share the work are one run."""
        if rank() > 0:
            yield
            return
        if not (self.folder / PLAN).is_file() and self._parts_of_plan():
            what = "where parts are kept, holds something else"
            raise ValueError(f"{self.folder}, {what}: move it away, or name another output")
        with lock_folder(self.folder, "embedding"):
            try:
                yield
            finally:
                if self.folder.is_dir() and not (self.folder / PLAN).is_file():
                    self.remove()  # a refusal leaves nothing

    def begin(self, discard: bool = True) -> bool:
        """Make the folder ready, which is held; False if it has parts of another model.

        Those are deleted, or with ``discard=False`` left alone.
        """
        plan = self.folder / PLAN
        has_plan = plan.is_file()
        if has_plan and plan.read_text(encoding="utf-8") == self.plan:
            return True
        if has_plan and not discard:
            return False
        for path in self._parts_of_plan():
            path.unlink()
        write_text(plan, self.plan)
        return not has_plan

    def _parts_of_plan(self) -> list[Path]:
        """What the folder holds beside the plan, the lock and files of killed writers."""
        if not self.folder.is_dir():
            return []
        ours = (PLAN, LOCK)
        return [p for p in self.folder.iterdir() if p.suffix != ".partial" and p.name not in ours]

    def read(self) -> dict[int, NDArray[np.float32]]:
        """The embeddings (dim,) that exist already, by the index of their recording."""
        index_of = {key: index for index, key in enumerate(self.keys)}
        found: dict[int, NDArray[np.float32]] = {}
        for path in sorted(self.folder.glob("*.npz")):
            try:
                part = read_arrays(path, ("keys", "stamps", "embeddings"))
                for key, stamp, row in zip(*part.values(), strict=True):
                    index = index_of.get(key.tobytes())
                    if index is not None and tuple(stamp.tolist()) == self._stamp(index):
                        found[index] = row
            except OSError:  # no damage of the part
                raise
            except Exception as error:  # numpy raises many kinds of errors on damaged bytes
                raise ValueError(f"{path} is damaged ({error}): delete it") from error
        return found

    def write(self, embeddings: dict[int, NDArray[np.float32]]) -> None:
        """Add a part with the embeddings (dim,) of recordings by index."""
        path = self.folder / f"{min(embeddings)}-{uuid.uuid4().hex}.npz"
        keys = b"".join(self.keys[index] for index in embeddings)
        with atomic_write(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                keys=np.frombuffer(keys, np.uint8).reshape(len(embeddings), -1),
                stamps=np.array([self._stamp(index) for index in embeddings], np.int64),
                embeddings=np.stack(list(embeddings.values())),
            )

    def missing(self) -> list[int]:
        """The indexes without an embedding; called by all processes, before any of them fills."""
        done = self.read()
        gather_objects(None)  # nobody writes before all have read
        return [index for index in range(len(self.paths)) if index not in done]

    def fill(
        self,
        extractor: Extractor,
        missing: Sequence[int],
        workers: int = 0,
        durations: NDArray[np.floating] | None = None,
        progress: bool = True,
    ) -> dict[int, str]:
        """Embed the missing recordings, shared by all processes; why some failed, by index."""
        made: dict[int, NDArray[np.float32]] = {}
        errors: dict[int, str] = {}
        last = time.monotonic()
        paths = [self.paths[index] for index in missing]
        options: dict[str, Any] = {"workers": workers, "progress": progress}
        options["durations_seconds"] = None if durations is None else durations[missing]
        try:
            with embedding_bar(len(missing), progress) as bar:
                for batch in extractor.embed_each(paths, **options):
                    rows = zip(batch.indexes, batch.embeddings, strict=True)
                    made |= {missing[place]: row for place, row in rows}
                    errors |= {missing[place]: str(e) for place, e in batch.errors.items()}
                    bar.update(len(batch.indexes) + len(batch.errors))
                    if made and time.monotonic() - last > SECONDS_BETWEEN_PARTS:
                        self.write(made)
                        made, last = {}, time.monotonic()
        finally:  # also after Ctrl-C
            if made:
                self.write(made)
        return {index: text for some in gather_objects(errors) for index, text in some.items()}

    def collect(self, failed: dict[int, str]) -> dict[int, NDArray[np.float32]]:
        """All embeddings, by rising index; ``failed`` gets the recordings that changed."""
        made = self.read()
        for index in set(range(len(self.paths))) - set(made) - set(failed):
            failed[index] = "it changed while the others were embedded"
        return dict(sorted(made.items()))

    def finish(self, output: Path, failed: dict[int, str], extractor: Extractor) -> tuple[int, int]:
        """Write all embeddings to the output; their number, 0 if there are none, and dimension.

        The parts are kept if some recordings failed, so that only those are tried again.
        """
        done = self.collect(failed)
        if not done:
            self.remove()
            return 0, 0
        matrix = np.stack(list(done.values()))
        ids, files = [self.ids[i] for i in done], [str(self.paths[i]) for i in done]
        stamp = None if failed else self.digest()  # of a complete file only
        write_embeddings(output, ids, matrix, extractor.fingerprint, files, stamp)
        if not failed:
            self.remove()
        count, dimension = matrix.shape
        return count, dimension

    def digest(self) -> str:
        """A hash of the model and of all recordings as they are now."""
        stamps = np.array([self._stamp(index) for index in range(len(self.paths))], np.int64)
        content = b"".join([self.plan.encode(), *self.keys, stamps.tobytes()])
        return hashlib.sha256(content).hexdigest()

    def remove(self) -> None:
        """Delete all parts; the plan last, so that a run killed meanwhile knows them as its own."""
        for path in [*self._parts_of_plan(), *self.folder.glob("*.partial")]:
            path.unlink()
        for name in (PLAN, LOCK):
            (self.folder / name).unlink(missing_ok=True)
        self.folder.rmdir()

    def _stamp(self, index: int) -> tuple[int, int]:
        """Size and time of a recording, which tell whether it has changed."""
        try:
            state = file_of(self.paths[index]).stat()
        except OSError:
            return (-1, -1)
        return state.st_size, state.st_mtime_ns


def embed_into_file(
    file: Path, extractor: Extractor, recordings: LocatedRecordings, origin: str, workers: int = 0
) -> Embeddings:
    """The embeddings of recordings: those that ``file`` holds, and the others, added to it.

    ``origin`` names the model and where the recordings lie; a file of another origin is refused.
    """
    with EmbeddingStore(file, origin, [], []).held():  # before the file is read
        return _embed_into_held_file(file, extractor, recordings, origin, workers)


def _embed_into_held_file(
    file: Path, extractor: Extractor, recordings: LocatedRecordings, origin: str, workers: int
) -> Embeddings:
    """``embed_into_file`` while no other run changes the file."""
    ids, paths, durations = recordings
    if file.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"{file} cannot store which model it is of: name an .npz or .safetensors")
    kept = read_embeddings(file) if file.exists() else None
    rows = [row for row, name in enumerate(ids) if kept is None or name not in kept.row_of_id]
    new_ids = [ids[row] for row in rows]
    store = EmbeddingStore(file, origin, new_ids, [paths[row] for row in rows])
    is_ours = kept is None or kept.origin == origin
    # All processes know the answer of the first before they read or write.
    if not all(gather_objects(rank() > 0 or (is_ours and store.begin(discard=False)))):
        raise ValueError(
            f"{file} was not made of these recordings by this model as it is now, or not in "
            f"{extractor.precision}: remove it (and {store.folder.name}), or name another file"
        )
    durations = None if durations is None else durations[rows]
    failed = store.fill(extractor, store.missing(), workers, durations)
    made = store.collect(failed)
    gather_objects(None)  # nobody removes the parts before all have read them
    if failed:
        first, count = min(failed), f"{len(failed)} of {len(ids)}"
        why = f"{new_ids[first]}: {failed[first]}"
        raise ValueError(f"{count} recordings could not be embedded; the first: {why}")
    matrices = [np.stack(list(made.values()))] if made else []
    if kept is not None:
        new_ids, matrices = [*kept.ids, *new_ids], [kept.matrix, *matrices]
    embeddings = Embeddings(new_ids, np.concatenate(matrices), file, origin)
    if rank() == 0:
        if made:
            write_embeddings(file, embeddings.ids, embeddings.matrix, origin)
        store.remove()
    return embeddings
