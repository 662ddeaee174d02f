"""Tensors by name from PyTorch's own files, of which nothing is executed."""

import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from simple_spk.io.input_file import file_size

LEGACY_PICKLES = 5  # at the start of a file of PyTorch before 1.6
# What leaves something on the stack that a pickle may use again. The hash of a tuple of tuples that
# are used again takes exponential time.
REUSABLE = (
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD"),
    *("BINPERSID", "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS"),
)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that torch.save wrote; any other content is a ValueError."""
    size = file_size(path, "file")
    try:
        if not size:
            raise ValueError("it is empty")
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _check_members(archive, size)
        else:
            with path.open("rb") as file:
                for _ in range(LEGACY_PICKLES):
                    _check_instructions(file)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise nearly anything
        # torch hides the reason behind the advice to load the file without any check.
        reason = str(error.__context__ or error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"{path} is damaged, or has more than weights ({reason}): take another"
        ) from error
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        raise ValueError(f"{path} has something else than tensors by name: take another")
    # Names may share weights, but a few bytes must not be many gigabytes of them.
    if sum(tensor.numel() * tensor.element_size() for tensor in content.values()) > 2 * size:
        raise ValueError(f"{path} repeats its weights: its tensors have far more bytes than it")
    return dict(content)


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raise if an archive of PyTorch is packed, or its pickle takes exponential time."""
    members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("its content is packed")
    if sum(member.file_size for member in members) > size:
        raise ValueError("its parts are larger than the file")
    for member in members:
        if member.filename.endswith(".pkl"):
            with archive.open(member) as file:
                _check_instructions(file)


def _check_instructions(file: IO[bytes]) -> None:
    """Raise if a pickle uses a tuple again."""
    made_by: dict[Any, str] = {}  # what left the value of a memo index on the stack
    before = ""
    for instruction, argument, _ in pickletools.genops(file):
        name = instruction.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            made_by[len(made_by) if name == "MEMOIZE" else argument] = before
            continue  # the value stays on the stack
        is_reused = name in ("GET", "BINGET", "LONG_BINGET")
        if name == "DUP" or (is_reused and made_by.get(argument) not in REUSABLE):
            raise ValueError("its pickle repeats values other than names, lists and tensors")
        before = made_by[argument] if is_reused else name
