"""Tables of training images: folders with a folder per person, and RecordIO files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from simple_spk.vision.image_files import SUFFIXES
from simple_spk.vision.image_table import write_image_table
from simple_spk.vision.record_file import RecordFile, image_records, read_record_index


class FaceImage(NamedTuple):
    """An image below a folder, its name without a suffix, and the person on it."""

    name: str
    path: Path
    person: str


def write_folder_table(folder: str | Path, table: str | Path) -> int:
    """Write the table of all images of a folder with a folder per person; how many there are."""
    return write_face_table(table, list(find_faces(folder)))


def write_face_table(table: str | Path, faces: Sequence[FaceImage]) -> int:
    """Write a table of images that lie anywhere; how many there are."""
    columns = zip(*((face.name, str(face.path), face.person) for face in faces), strict=True)
    write_image_table(table, *columns)
    return len(faces)


def find_faces(folder: str | Path, progress: bool = True) -> Iterator[FaceImage]:
    """The images of a folder with a folder per person, in order of person and name."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder at {folder}: correct the path")
    with os.scandir(folder) as entries:
        persons = sorted(entry.name for entry in entries if entry.is_dir())
    found = 0
    for person in tqdm(persons, unit="person", desc="find", disable=not progress):
        for name in sorted(os.listdir(folder / person)):
            stem, suffix = os.path.splitext(name)
            if suffix.lower() in SUFFIXES:
                found += 1
                yield FaceImage(f"{person}/{stem}", folder / person / name, person)
    if not found:
        raise ValueError(f"{folder} holds no images: it must hold one folder per person")


def write_record_table(records: str | Path, table: str | Path, progress: bool = True) -> int:
    """Write the table of the images in a .rec file with its .idx; they are not unpacked.

    The head of every record is read, and named if it is damaged.
    """
    file = RecordFile(Path(records).resolve())
    index = image_records(file, read_record_index(file.path.with_suffix(".idx")))
    labels = np.empty(len(index.keys), dtype=np.int64)
    for row, offset in enumerate(
        tqdm(index.offsets, unit="record", desc=file.path.name, disable=not progress)
    ):
        label = file.read_labels(int(offset))[0]
        if label < 0 or label != int(label):
            raise ValueError(f"{file.path}, byte {offset}: the label {label} names no person")
        labels[row] = label
    # As many digits for all, so that persons in alphabetical order are in the order of labels.
    digits = len(str(labels.max()))
    write_image_table(
        table,
        [str(key) for key in index.keys],
        [f"{file.path}@{offset}" for offset in index.offsets],
        [f"{label:0{digits}d}" for label in labels],
    )
    return len(labels)
