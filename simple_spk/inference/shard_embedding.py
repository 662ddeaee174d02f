"""Embeddings of a list by the workers of Ray Data, as the parts of ``simple-spk embed --shard``.

Nothing of Ray is imported here: it calls the class.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.recording_lists import Shard, find_recordings
from simple_spk.inference.embedding_store import EmbeddingStore
from simple_spk.inference.extractor import Extractor
from simple_spk.io.parquet_parts import check_parts, part_name, read_stamp


class ShardEmbedder:
    """Embeds shards of recordings into a folder of Parquet parts, for ``Dataset.map_batches``.

    ``audio`` are files, folders, lists or manifests. All workers must see them, and the folder, at
    the same paths. ``options`` are those of ``Extractor.load``, such as ``device``.
    """

    def __init__(
        self,
        audio: Sequence[str | Path],
        folder: str | Path,
        parts: int,
        model: str | None = None,
        workers: int = 0,
        **options: Any,
    ) -> None:
        self.ids, self.paths, _ = find_recordings([Path(source) for source in audio])
        self.folder, self.parts, self.workers = Path(folder), parts, workers
        check_parts(self.folder, parts)
        self.extractor = Extractor.load(model, **options)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Embed the shards whose numbers, from 1 on, are ``batch["part"]``.

        Of each shard come back its file, and how many recordings are embedded and failed, with the
        errors of the latter as lines. A part that is complete is kept.
        """
        rows = [self._embed(Shard(int(number), self.parts)) for number in batch["part"]]
        names = ("file", "embedded", "failed", "errors")
        columns = zip(*rows, strict=True)
        return {name: np.array(column) for name, column in zip(names, columns, strict=True)}

    def _embed(self, shard: Shard) -> tuple[str, int, int, str]:
        """Embed one shard, unless its part is complete."""
        output = self.folder / part_name(*shard)
        ids, paths = shard.of(self.ids), shard.of(self.paths)
        store = EmbeddingStore.of(self.extractor, output, ids, paths)
        if read_stamp(output) == store.digest():
            return str(output), len(ids), 0, ""
        with store.held():
            store.begin()
            failed = store.fill(self.extractor, store.missing(), self.workers, progress=False)
            done, _ = store.finish(output, failed, self.extractor)
        errors = "\n".join(f"{ids[index]}: {failed[index]}" for index in sorted(failed))
        return str(output), done, len(failed), errors
