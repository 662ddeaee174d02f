"""RecordIO files in the format of MXNet and InsightFace, for tests of the reader."""

import struct
from collections.abc import Sequence
from pathlib import Path

from recipes.Face.recordio import (
    FIRST,
    IMAGE_HEADER,
    LAST,
    LENGTH_BITS,
    MAGIC,
    MIDDLE,
    WHOLE,
)


def record(labels: Sequence[float], content: bytes) -> bytes:
    """The bytes of a record; several labels follow the header."""
    if len(labels) == 1:
        return IMAGE_HEADER.pack(0, labels[0], 0, 0) + content
    return (
        IMAGE_HEADER.pack(len(labels), 0.0, 0, 0)
        + struct.pack(f"<{len(labels)}f", *labels)
        + content
    )


def face_records(images: Sequence[tuple[float, bytes]]) -> list[bytes]:
    """Records of (label, image) in InsightFace's order: images from key 1, then persons' ranges."""
    labels = [label for label, _ in images]
    ranges = [
        (1 + labels.index(label), 1 + len(labels) - labels[::-1].index(label))
        for label in sorted(set(labels))
    ]
    end = len(images) + 1
    return [
        record((end, end + len(ranges)), b""),
        *(record((label,), content) for label, content in images),
        *(record(one, b"") for one in ranges),
    ]


def write_records(path: Path, records: Sequence[bytes]) -> Path:
    """Write a .rec file and its .idx; records that contain the magic number are divided."""
    lines = []
    with path.open("wb") as file:
        for key, data in enumerate(records):
            lines.append(f"{key}\t{file.tell()}\n")
            cuts = [at for at in range(0, len(data) - 3, 4) if data[at : at + 4] == MAGIC]
            starts, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(data)]
            flags = [FIRST, *[MIDDLE] * (len(cuts) - 1), LAST] if cuts else [WHOLE]
            for flag, start, end in zip(flags, starts, ends, strict=True):
                size = end - start
                file.write(MAGIC + struct.pack("<I", flag << LENGTH_BITS | size))
                file.write(data[start:end] + bytes(-size % 4))
    path.with_suffix(".idx").write_text("".join(lines))
    return path
