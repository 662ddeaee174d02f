"""Validation sets in one plain form: NAME.csv, a table of images, and NAME_pairs.txt."""

import re
from pathlib import Path

from tqdm import tqdm

from recipes.Face.lfw_bin import read_validation_bin
from recipes.Face.pair_lists import (
    PairList,
    even_folds,
    make_pair_list,
    read_pair_list,
    write_pair_list,
)
from recipes.Face.training_tables import FaceImage, find_faces, write_face_table
from simple_spk.corpora.trial_lists import plain_id
from simple_spk.io.atomic_file import atomic_write
from simple_spk.vision.image_files import SUFFIXES, decode_image

UNKNOWN = "unknown"  # the person on an image of a .bin file
SUFFIX_OF_HEAD = {b"\xff\xd8": ".jpg", b"\x89P": ".png"}


def write_bin_set(source: str | Path, data_folder: str | Path, progress: bool = True) -> int:
    """Unpack a .bin file (lfw.bin) to DATA/lfw/, lfw.csv and lfw_pairs.txt; how many pairs.

    Every image is decoded once, so that a damaged file is noticed here.
    """
    source, data_folder = Path(source), Path(data_folder)
    name = source.stem
    pairs = read_validation_bin(source)
    faces = []
    for number, image in enumerate(
        tqdm(pairs.images, unit="image", desc=name, disable=not progress)
    ):
        decode_image(image, f"{source}, image {number}")
        image_id = f"{number:06d}"
        suffix = SUFFIX_OF_HEAD.get(image[:2], ".img")
        path = data_folder / name / f"{image_id}{suffix}"
        if not path.is_file() or path.stat().st_size != len(image):  # a stopped run goes on
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
    """Write DATA/NAME.csv and NAME_pairs.txt of aligned images and a published list; how many.

    The images stay where they are; all that the list names must be there.
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
            f"{len(missing)} of {len(names)} images of {pairs_file} are not below {folder} (first: "
            f"{', '.join(missing[:3])}): complete the folder, or name the one that the list means"
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
    """Write tables and lists of pairs of ORL's s1 to s40; how many rows each has.

    s1 to s30 train (train.csv), s31 to s40 test (test.csv, test_pairs.txt). To choose settings
    without looking at the test: s1 to s20 train (search_train.csv), s21 to s30 are valid.csv and
    valid_pairs.txt.
    No folder: what was prepared before will do.
    """
    data_folder = Path(data_folder)
    if folder is None:
        if (data_folder / "test_pairs.txt").is_file():
            return {}
        raise ValueError(
            f"{data_folder} holds no prepared faces: name the folder with s1 to s40 "
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
