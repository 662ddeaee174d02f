"""Arrays by name from .npz and safetensors files; sizes are checked before memory is allocated."""

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray
from safetensors import safe_open

from simple_spk.io.input_file import file_size

LARGEST_HEADER_BYTES = 2**24  # of safetensors: of a hundred thousand tensors or names
MOST_UNPACKED_BYTES = 2**30  # of one array; files that are not compressed may be larger


def read_arrays(
    path: Path, names: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name; a damaged file may raise any kind of exception."""
    size = file_size(path, "file")
    found = {}
    if not size:
        raise ValueError("it is empty")
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        for name in (*names, *(one for one in optional if one in members)):
            if name not in members:
                raise ValueError(f"it has no array {name}")
            found[name] = _read_array(archive, members[name], size)
    return found


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> NDArray[Any]:
    """An array of the size that the archive and its own header promise."""
    is_packed = member.compress_type != zipfile.ZIP_STORED
    if member.file_size > (MOST_UNPACKED_BYTES if is_packed else size):
        raise ValueError(
            f"{member.filename} promises {member.file_size} bytes: store large arrays uncompressed"
        )
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(file)
        if math.prod(shape) * max(1, dtype.itemsize) > member.file_size:
            raise ValueError(f"{member.filename} promises the shape {shape} of {dtype}")
    with archive.open(member) as file:
        return npy.read_array(file, allow_pickle=False)


@contextmanager
def open_safetensors(path: Path, what: str, cure: str, framework: str = "numpy") -> Iterator[Any]:
    """A safetensors file of a bounded header; the tensors are read when they are asked for."""
    if file_size(path, what, cure) == 0:
        raise ValueError(f"{path} is empty: {cure}")
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
    if header_bytes > LARGEST_HEADER_BYTES:
        raise ValueError(f"{path} is not a safetensors file, or its header is too large: {cure}")
    with safe_open(path, framework=framework) as tensors:
        yield tensors
