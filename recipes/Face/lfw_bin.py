"""Validation sets in InsightFace's format: lfw.bin, agedb_30.bin, cfp_fp.bin etc.

Each is a pickle of (encoded images, labels), where images 2 i and 2 i + 1 are pair i. The usual
files hold bytes, from Python 2 or 3; some hold numpy arrays of bytes.

Unpickling an untrusted file can execute anything. Here the instructions of a pickle are checked
before it is loaded, and the few functions that it may call are replaced by those of this module.
"""

import mmap
import pickle
import pickletools
import reprlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_IMAGE_BYTES = 1 << 24
MAX_REPETITIONS = 10  # mean number of pairs that an image is in, if the file holds it once
# No dicts and sets, which hash their keys: the hash of nested tuples takes exponential time. No
# classes to instantiate, no buffers from outside.
INSTRUCTIONS = """
    PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4
    FLOAT BINFLOAT BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE EMPTY_LIST LIST
    APPEND APPENDS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE
    BUILD
"""
NUMPY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy._core.numeric")


class ValidationPairs(NamedTuple):
    """Encoded images (JPEG or PNG), two for each pair, and which pairs (n,) show one person."""

    images: list[bytes]
    is_same: NDArray[np.bool_]


def read_validation_bin(path: str | Path) -> ValidationPairs:
    """The pairs of a .bin file, in its order; nothing in the file is executed."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: correct the path")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            size = len(data)
            _check_instructions(data)
            data.seek(0)
            content = _BinUnpickler(data, size).load()
    except Exception as error:  # damaged files raise many kinds of errors
        raise ValueError(
            f"{path} is truncated, damaged, or not a pickle of images ({error}): fetch it again"
        ) from error
    try:
        images, labels = content
        encoded = [_image_bytes(image) for image in images]
        if sum(map(len, encoded)) > MAX_REPETITIONS * size:
            raise ValueError("its images have far more bytes than the file")
        pairs = ValidationPairs(list(map(bytes, encoded)), np.array([*map(_label, labels)], bool))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is not a validation set (encoded images, labels): {error}"
        ) from error
    if not len(pairs.is_same) or len(pairs.images) != 2 * len(pairs.is_same):
        raise ValueError(
            f"{path} holds {len(pairs.images)} images for {len(pairs.is_same)} pairs; expected "
            f"two for each: fetch it again"
        )
    return pairs


def _check_instructions(data: Any) -> None:
    """Raise unless a pickle is complete and has only instructions that images and labels need."""
    allowed = set(INSTRUCTIONS.split())
    for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        if instruction.name not in allowed:
            raise ValueError(f"the instruction {instruction.name} is not allowed")
        # The unpickler's memo is an array that grows to the largest index.
        stores = instruction.name in ("PUT", "BINPUT", "LONG_BINPUT")
        if stores and not 0 <= (argument or 0) <= count:
            raise ValueError(f"the memo index {argument} is not allowed")


class _BinUnpickler(pickle.Unpickler):
    """An unpickler that calls nothing but the functions of this module."""

    def __init__(self, data: Any, size_bytes: int) -> None:
        super().__init__(data, encoding="bytes")  # for the strings of Python 2
        self.bytes_left = size_bytes
        self.functions: dict[tuple[str, str], Any] = {
            ("_codecs", "encode"): self.encode_latin1,
            ("numpy", "dtype"): _Dtype,
            ("numpy", "ndarray"): None,
        }
        for module in NUMPY_MODULES:
            self.functions[module, "_reconstruct"] = _Array
            self.functions[module, "_frombuffer"] = _array_from_buffer
            self.functions[module, "scalar"] = _numpy_label

    def find_class(self, module: str, name: str) -> Any:
        """The function of this module that replaces a function."""
        if (module, name) not in self.functions:
            raise ValueError(f"it calls {module:.60}.{name:.60}, which is not allowed")
        return self.functions[module, name]

    def encode_latin1(self, text: str, encoding: str) -> bytes:
        """Bytes that Python 3 has written for Python 2; all together not more than the file has."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise ValueError("a text that should be bytes is not encoded as latin1")
        self.bytes_left -= len(text)
        if self.bytes_left < 0:
            raise ValueError("it repeats its bytes")
        return text.encode("latin-1")


class _Dtype:
    """The name of a numpy dtype."""

    def __init__(self, name: str | bytes, *options: Any) -> None:
        self.name = name.decode("latin-1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        """Ignore the details, which bytes and booleans do not need."""


class _Array:
    """The bytes of a numpy array, which must be one-dimensional and of dtype uint8."""

    def __init__(self, *arguments: Any) -> None:
        self.data: bytes | bytearray = b""

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, _, data = state
        if not isinstance(data, bytes | bytearray) or dtype.name not in ("u1", "|u1"):
            raise ValueError("an array holds other numbers than bytes")
        if shape not in ((len(data),), (len(data), 1), (1, len(data))):
            raise ValueError(
                f"an array has the shape {reprlib.repr(shape)}; expected the {len(data)} bytes of "
                "an image file"
            )
        self.data = data


def _array_from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    """An array as pickle protocol 5 writes it."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order, data))
    return array


def _numpy_label(dtype: _Dtype, data: Any) -> bool:
    """A label that is a scalar of numpy."""
    if dtype.name not in ("b1", "|b1", "u1", "|u1") or data not in (b"\0", b"\1"):
        raise ValueError("a label is neither true nor false")
    return data == b"\1"


def _image_bytes(value: Any) -> bytes | bytearray:
    """The bytes of an image file."""
    data = value.data if isinstance(value, _Array) else value
    if not isinstance(data, bytes | bytearray):
        raise ValueError(f"an image is a {type(value).__name__} instead of bytes")
    if len(data) > MAX_IMAGE_BYTES:
        raise ValueError(f"an image has {len(data)} bytes, too many for an aligned face")
    return data


def _label(value: Any) -> bool:
    """A label as True or False."""
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(f"a label is {reprlib.repr(value)} instead of true or false")
    return bool(value)
