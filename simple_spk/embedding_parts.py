"""Embeddings that were made before a run was interrupted, kept so that the next one goes on.

They lie in a folder beside the file that they are for, written a part at a time, each whole. They
are used again only for the same list, the same model and files that have not changed since.
"""

import hashlib
import io
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.whole_file import whole_file, write_text

PLAN = "plan.txt"


class EmbeddingParts:
    """The parts (index, embedding) of the embeddings of a list of recordings."""

    def __init__(
        self, output: Path, fingerprint: str, ids: Sequence[str], paths: Sequence[Path]
    ) -> None:
        self.folder = output.with_name(output.name + ".parts")
        self.paths = paths
        names = (f"{name}\n{path}" for name, path in zip(ids, paths, strict=True))
        listed = hashlib.sha256("\n".join(names).encode(errors="surrogateescape"))
        self.plan = f"model {fingerprint}\nrecordings {listed.hexdigest()}\n"

    def begin(self) -> bool:
        """Make the folder ready; False if it held parts of something else, which are gone now."""
        plan = self.folder / PLAN
        is_ours = plan.is_file() and plan.read_text(encoding="utf-8") == self.plan
        was_other = self.folder.exists() and not is_ours
        if was_other:
            if not plan.is_file() and any(p.suffix != ".partial" for p in self.folder.iterdir()):
                raise ValueError(
                    f"{self.folder}, where parts are kept, holds something else: move it away, or "
                    "name another output"
                )
            shutil.rmtree(self.folder)
        if not is_ours:
            write_text(plan, self.plan)
        return not was_other

    def read(self) -> dict[int, NDArray[np.float32]]:
        """The embeddings (dim,) that are there already, by the places of their recordings."""
        found: dict[int, NDArray[np.float32]] = {}
        for path in sorted(self.folder.glob("*.npz")):
            content = path.read_bytes()  # that nobody may read it is not its fault
            try:
                with np.load(io.BytesIO(content), allow_pickle=False) as part:
                    indexes, stamps, rows = (part[k] for k in ("indexes", "stamps", "embeddings"))
                    for index, stamp, row in zip(indexes.tolist(), stamps, rows, strict=True):
                        if tuple(stamp.tolist()) == self._stamp(index):
                            found[index] = row
            except Exception as error:  # numpy raises whatever damaged bytes lead to
                raise ValueError(f"{path} is damaged ({error}): delete it") from error
        return found

    def write(self, embeddings: dict[int, NDArray[np.float32]]) -> None:
        """Keep some more embeddings, in a part of their own: no index is in two that are valid."""
        indexes = list(embeddings)
        path = self.folder / f"{min(indexes)}-{uuid.uuid4().hex}.npz"
        with whole_file(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                indexes=np.array(indexes, np.int64),
                stamps=np.array([self._stamp(index) for index in indexes], np.int64),
                embeddings=np.stack(list(embeddings.values())),
            )

    def remove(self) -> None:
        """Forget all parts."""
        shutil.rmtree(self.folder)

    def _stamp(self, index: int) -> tuple[int, int]:
        """What tells whether a recording has changed: its size and its time."""
        try:
            state = self.paths[index].stat()
        except OSError:
            return (-1, -1)
        return state.st_size, state.st_mtime_ns
