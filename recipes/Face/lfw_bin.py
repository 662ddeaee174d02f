"""Validation sets as InsightFace packs them: lfw.bin, agedb_30.bin, cfp_fp.bin and the like.

Each is a pickle of (encoded images, labels), where images 2 i and 2 i + 1 make pair i. The usual
files hold bytes, from Python 2 or 3; some hold numpy arrays of bytes.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipes.Face.plain_pickle import Call, Name, read_plain_pickle

LARGEST_IMAGE_BYTES = 1 << 24
NUMPY_MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray", "numpy._core.numeric")
BYTE_TYPES = ("u1", "|u1")
BOOL_TYPES = ("b1", "|b1")


class ValidationPairs(NamedTuple):
    """Encoded images (JPEG or PNG), two for each pair, and which pairs (n,) show one person."""

    images: list[bytes]
    is_same: NDArray[np.bool_]


def read_validation_bin(path: str | Path) -> ValidationPairs:
    """The pairs of a .bin file, in its order; nothing of the file is executed."""
    content = read_plain_pickle(path)
    try:
        images, labels = content
        pairs = ValidationPairs(
            [_encoded_image(image) for image in images],
            np.array([_truth(label) for label in labels], dtype=np.bool_),
        )
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


def _encoded_image(value: Any) -> bytes:
    """The bytes of an image file, however they were pickled."""
    if isinstance(value, Call):
        value = _bytes_of_call(value)
    if not isinstance(value, bytes | bytearray):
        raise ValueError(f"an image is a {type(value).__name__} instead of bytes")
    if len(value) > LARGEST_IMAGE_BYTES:
        raise ValueError(f"an image has {len(value)} bytes, which no aligned face has")
    return bytes(value)


def _bytes_of_call(call: Call) -> bytes | bytearray:
    """The bytes that a pickle would make by a call: those of a text, or of a numpy array."""
    function, arguments = call.function, call.arguments
    if function == Name("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
        text, encoding = arguments
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise ValueError("a text that should be bytes is not encoded as latin1")
        return text.encode("latin-1")
    if function.module not in NUMPY_MODULES:
        raise ValueError(f"it would call {function.module}.{function.name}, which no image needs")
    if function.name == "_reconstruct" and isinstance(call.state, tuple):
        _, shape, kind, _, data = call.state
    elif function.name == "_frombuffer":
        data, kind, shape, _ = arguments
    else:
        raise ValueError(f"it would call {function.name} of numpy, which no image needs")
    if isinstance(data, Call):
        data = _bytes_of_call(data)
    if not isinstance(data, bytes | bytearray) or not _is_type(kind, BYTE_TYPES):
        raise ValueError("an array holds other numbers than bytes")
    if shape not in ((len(data),), (len(data), 1), (1, len(data))):
        raise ValueError(
            f"an array has the shape {shape}; expected the {len(data)} bytes of an image file"
        )
    return data


def _is_type(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether a description of a numpy type is one of these."""
    if not isinstance(kind, Call) or kind.function != Name("numpy", "dtype"):
        return False
    name = kind.arguments[0] if kind.arguments else None
    return (name.decode("latin-1") if isinstance(name, bytes) else name) in names


def _truth(value: Any) -> bool:
    """A label as True or False: Python's own, a number, or numpy's."""
    if isinstance(value, Call):
        if value.function.name != "scalar" or value.function.module not in NUMPY_MODULES:
            raise ValueError(f"a label would be made by {value.function.name}")
        kind, data = value.arguments
        if not _is_type(kind, BOOL_TYPES + BYTE_TYPES):
            raise ValueError("a label is neither true nor false")
        data = _bytes_of_call(data) if isinstance(data, Call) else data
        value = {b"\0": False, b"\1": True}.get(bytes(data))
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(f"a label is {value!r:.60} instead of true or false")
    return bool(value)
