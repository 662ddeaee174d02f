"""Tables of training images, and validation sets: NAME.csv with NAME_pairs.txt."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from recipes.Face.lfw_bin import read_validation_bin
from recipes.Face.pairs import (
    PairList,
    even_folds,
    make_pair_list,
    read_pair_list,
    write_pair_list,
)
from recipes.Face.recordio import RecordFile, image_records, read_record_index
from simple_spk.corpora.trial_lists import plain_id
from simple_spk.io.atomic_file import atomic_write
from simple_spk.vision.image_files import SUFFIXES, decode_image
from simple_spk.vision.image_table import write_image_table

UNKNOWN = "unknown"  # the person on an image of a .bin file
SUFFIX_OF_HEAD = {b"\xff\xd8": ".jpg", b"\x89P": ".png"}


class FaceImage(NamedTuple):
    """An image: its name without suffix, its path, and the person."""

    name: str
    path: Path
    person: str


def write_folder_table(folder: str | Path, table: str | Path) -> int:
    """Write the table of a folder with a folder per person; returns the number of images."""
    return write_face_table(table, list(find_faces(folder)))


def write_face_table(table: str | Path, faces: Sequence[FaceImage]) -> int:
    """Write a table of images; returns their number."""
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
    """Write the table of the images in a .rec file with its .idx; returns their number.

    The images are not unpacked. The header of every record is read and checked.
    """
    file = RecordFile(Path(records).resolve())
    index = image_records(file, read_record_index(file.path.with_suffix(".idx")))
    labels = np.empty(len(index.keys), dtype=np.int64)
    for row, offset in enumerate(
        tqdm(index.offsets, unit="record", desc=file.path.name, disable=not progress)
    ):
        label = file.read_labels(int(offset))[0]
        if label < 0 or label != int(label):
            raise ValueError(
                f"{file.path}, byte {offset}: the label {label} is not a number of a person"
            )
        labels[row] = label
    # Equally many digits for all, so that the alphabetical order is the order of the labels.
    digits = len(str(labels.max()))
    write_image_table(
        table,
        [str(key) for key in index.keys],
        [f"{file.path}@{offset}" for offset in index.offsets],
        [f"{label:0{digits}d}" for label in labels],
    )
    return len(labels)


def write_bin_set(source: str | Path, data_folder: str | Path, progress: bool = True) -> int:
    """Unpack lfw.bin to DATA/lfw/, lfw.csv and lfw_pairs.txt; returns the number of pairs.

    Every image is decoded once, to detect damaged files.
    """
    source, data_folder = Path(source), Path(data_folder)
    name = source.stem
    pairs = read_validation_bin(source)
    faces = []
    bar = tqdm(pairs.images, unit="image", desc=name, disable=not progress)
    for number, image in enumerate(bar):
        decode_image(image, f"{source}, image {number}")
        image_id = f"{number:06d}"
        suffix = SUFFIX_OF_HEAD.get(image[:2], ".img")
        path = data_folder / name / f"{image_id}{suffix}"
        if not path.is_file() or path.stat().st_size != len(image):  # resumes a stopped run
            with atomic_write(path) as partial:
                partial.write_bytes(image)
        faces.append(FaceImage(image_id, Path(name, path.name), UNKNOWN))
    names = [face.name for face in faces]
    folds = even_folds(pairs.is_same)
    write_face_table(data_folder / f"{name}.csv", faces)
    listed = PairList(names[::2], names[1::2], pairs.is_same, folds)
    write_pair_list(data_folder / f"{name}_pairs.txt", listed)
    return len(folds)


def write_folder_set(
    folder: str | Path, pairs_file: str | Path, data_folder: str | Path, name: str
) -> int:
    """Write DATA/NAME.csv and NAME_pairs.txt of aligned images and a published list of pairs.

    Returns the number of pairs. The images are not copied; all images of the list must exist.
    """
    folder, data_folder = Path(folder).resolve(), Path(data_folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder at {folder}: correct the path")
    pairs = read_pair_list(pairs_file)
    path_of_name = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in SUFFIXES
    }
    names = list(dict.fromkeys([*pairs.first, *pairs.second]))
    missing = [one for one in names if one not in path_of_name]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(names)} images of {pairs_file} are not in {folder} (first: "
            f"{', '.join(missing[:3])}): complete the folder, or use that of the list"
        )
    faces = [
        FaceImage(plain_id(one), path_of_name[one], Path(one).parent.as_posix() or UNKNOWN)
        for one in names
    ]
    write_face_table(data_folder / f"{name}.csv", faces)
    write_pair_list(data_folder / f"{name}_pairs.txt", pairs)
    return len(pairs.folds)


def prepare_orl(
    folder: str | Path | None, data_folder: str | Path, seed: int = 0
) -> dict[str, int]:
    """Write tables and lists of pairs of ORL's s1 to s40; returns the number of rows of each.

    s1 to s30 are for training (train.csv), s31 to s40 for testing (test.csv, test_pairs.txt). For
    choosing settings without the test set, s1 to s20 are search_train.csv, and s21 to s30 are
    valid.csv and valid_pairs.txt. Without a folder, previously prepared tables are used.
    """
    data_folder = Path(data_folder)
    if folder is None:
        if (data_folder / "test_pairs.txt").is_file():
            return {}
        raise ValueError(
            f"{data_folder} holds no prepared faces: set the folder with s1 to s40 "
            f"(--image_folder=FOLDER)"
        )
    faces = list(find_faces(folder, progress=False))
    number_of = {face.person: _person_number(face.person, folder) for face in faces}
    parts = {
        "train": range(1, 31),
        "search_train": range(1, 21),
        "valid": range(21, 31),
        "test": range(31, 41),
    }
    counts = {}
    for part, persons in parts.items():
        chosen = [face for face in faces if number_of[face.person] in persons]
        if len({face.person for face in chosen}) != len(persons):
            raise ValueError(f"{folder} lacks some of s{persons[0]} to s{persons[-1]}")
        counts[part] = write_face_table(data_folder / f"{part}.csv", chosen)
        if not part.endswith("train"):
            ids, people = [face.name for face in chosen], [face.person for face in chosen]
            pairs = make_pair_list(ids, people, seed=seed)
            write_pair_list(data_folder / f"{part}_pairs.txt", pairs)
            counts[f"{part} pairs"] = len(pairs.folds)
    return counts


def _person_number(name: str, folder: str | Path) -> int:
    """The number of an ORL folder."""
    match = re.fullmatch(r"s(\d+)", name)
    if match is None:
        raise ValueError(f"{folder} holds the folder {name!r}; ORL's are s1 to s40")
    return int(match[1])
