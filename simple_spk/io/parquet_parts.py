"""Named vectors in Parquet: one file, or a folder of parts that several processes wrote.

polars reads and writes them. A list of names is looked up while the files are scanned: only its
rows are kept in memory.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import file_size

SUFFIX = ".parquet"
ID, VECTOR, MODEL = "id", "embedding", "model"
ROWS_OF_GROUP = 1 << 14  # decoded at a time: 16 MB of 256 numbers each
STAMP = "simple_spk"  # the key of a file's stamp in its metadata
MOST_PACKED = 1000  # times the bytes of a file: floats hardly shrink
_PART = re.compile(r"part-(\d{5,})-of-(\d{5,})\.parquet")


def part_name(number: int, parts: int) -> str:
    """The file name of one of several parts, counted from 1.

    >>> part_name(3, 8)
    'part-00003-of-00008.parquet'
    """
    return f"part-{number:05d}-of-{parts:05d}{SUFFIX}"


def check_parts(folder: Path, parts: int) -> None:
    """Raise if a folder holds Parquet files that are not of so many parts."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        match = _PART.fullmatch(path.name)
        if match is None or int(match[2]) != parts:
            raise ValueError(f"{folder} holds {path.name}, not one of {parts} parts: name another")


def parquet_files(path: Path) -> list[Path]:
    """A Parquet file itself, or all files of a folder; raises if parts are missing."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.glob(f"*{SUFFIX}") if file.is_file())
    if not files:
        raise FileNotFoundError(f"{path} holds no {SUFFIX} file: embed into it, or name another")
    matches = [_PART.fullmatch(file.name) for file in files]
    totals = {int(match[2]) for match in matches if match is not None}
    if len(totals) > 1 or (totals and None in matches):
        raise ValueError(
            f"{path} mixes the parts of several runs ({files[0].name}, {files[-1].name}): keep one"
        )
    for total in totals:
        found = {file.name for file in files}
        missing = [name for n in range(1, total + 1) if (name := part_name(n, total)) not in found]
        if missing:
            raise ValueError(
                f"{path} lacks {len(missing)} of {total} parts (first: {missing[0]}): embed them"
            )
    return files


def check_texts(path: Path, texts: Sequence[str]) -> None:
    """Raise if Parquet cannot store some texts, such as names of files that are not UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{path}: {text!r} is not UTF-8: rename it, or write .npz") from error


def write_vectors(
    path: Path,
    ids: Sequence[str],
    vectors: NDArray[np.float32],
    columns: Mapping[str, Sequence[str | float]],
    stamp: str | None = None,
) -> None:
    """Write ids, vectors (n, dim) and further columns (n,) atomically; ``stamp``: of their source.

    Rows keep their order.
    """
    kind = pl.Array(pl.Float32, vectors.shape[1])
    series = [pl.Series(name, values) for name, values in columns.items()]
    frame = pl.DataFrame([pl.Series(ID, ids), pl.Series(VECTOR, vectors, dtype=kind), *series])
    metadata = {} if stamp is None else {STAMP: stamp}
    with atomic_write(path) as partial:
        frame.write_parquet(partial, row_group_size=ROWS_OF_GROUP, metadata=metadata)


def read_stamp(path: Path) -> str | None:
    """The stamp of a file; None if there is no such file, or it has none."""
    if not path.is_file():
        return None
    try:
        return pl.read_parquet_metadata(path).get(STAMP)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None  # it is written anew


def read_vectors(
    path: Path, names: Sequence[str] | None = None
) -> tuple[list[str], NDArray[np.float32], str | None]:
    """Ids, vectors (n, dim) and the model of a file or a folder of parts, of all rows or some.

    With ``names``, rows of other ids are left out while they are read. The model is None if rows
    disagree, or there is no such column.
    """
    frames = [_read_file(file, names) for file in parquet_files(path)]
    widths = {frame[VECTOR].dtype.shape for frame in frames if len(frame)}  # type: ignore[attr-defined]
    if len(widths) > 1:
        raise ValueError(f"{path} has embeddings of several sizes, {sorted(widths)}: make it again")
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    models = {model for frame in frames if MODEL in frame for model in frame[MODEL].unique()}
    is_known = len(models) == 1 and all(MODEL in frame for frame in frames)
    ids = [name for frame in frames for name in frame[ID].to_list()]
    matrix = np.concatenate([frame[VECTOR].to_numpy() for frame in frames])
    return ids, matrix, models.pop() if is_known else None


def _read_file(path: Path, names: Sequence[str] | None) -> pl.DataFrame:
    """The rows of one file: id, embedding as an array of fixed size, and model if it is there."""
    size = file_size(path, "embeddings", "make them with simple-spk embed")
    try:
        frame = _collect(path, names, size)
        vectors = frame[VECTOR]
        if isinstance(vectors.dtype, pl.List):  # as other programs write them
            width = vectors.list.len().max()
            vectors = vectors.list.to_array(int(width) if isinstance(width, int) else 1)
        if vectors.has_nulls() or frame[ID].has_nulls() or vectors.explode().has_nulls():
            raise ValueError("some rows are empty")
        if not isinstance(vectors.dtype, pl.Array) or not vectors.dtype.inner.is_float():
            raise ValueError(f"{VECTOR} is of type {vectors.dtype}, not vectors of floats")
        kind = pl.Array(pl.Float32, vectors.dtype.size)
        return frame.with_columns(vectors.cast(kind), pl.col(ID).cast(pl.String))
    except OSError:  # no damage of the file
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # polars panics on some damages
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ValueError(
            f"{path} is not a Parquet file with the columns {ID} and {VECTOR} ({reason}): make it "
            "again"
        ) from error


def _collect(path: Path, names: Sequence[str] | None, size: int) -> pl.DataFrame:
    """The rows that polars reads, unless the file promises far more than its bytes can hold."""
    scan = pl.scan_parquet(path, glob=False)
    schema = scan.collect_schema()
    rows = int(scan.select(pl.len()).collect().item())
    width = schema[VECTOR].shape[0] if isinstance(schema.get(VECTOR), pl.Array) else 1  # type: ignore[attr-defined]
    if rows * (4 * width + 1) > MOST_PACKED * max(size, 1):
        raise ValueError(f"{size} bytes cannot hold the {rows} rows that it promises")
    if names is not None:
        scan = scan.filter(pl.col(ID).cast(pl.String).is_in(pl.Series(names).implode()))
    wanted = [ID, VECTOR, MODEL] if MODEL in schema else [ID, VECTOR]
    return scan.select(wanted).collect()
