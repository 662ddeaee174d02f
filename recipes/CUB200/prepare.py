"""Prepare CUB-200-2011: python recipes/CUB200/prepare.py CUB_200_2011.tgz DATA

The first argument is the original archive (unpacked into DATA), its folder CUB_200_2011, or any
folder with a folder of images per class. The first half of the classes, by name, is for training
(DATA/train.csv), the second half for testing (DATA/test.csv). The training classes are divided into
four folds: DATA/fold0_valid.csv has the first quarter, fold0_train.csv the others, etc.
"""

import argparse
import gzip
import logging
import shutil
import sys
import tarfile
import zlib
from pathlib import Path

from simple_spk.cli.errors import exit_code
from simple_spk.vision.image_files import SUFFIXES
from simple_spk.vision.image_table import write_image_table

logger = logging.getLogger(__name__)

FOLDS = 4
NAME_IN_ARCHIVE = "CUB_200_2011"


def prepare_cub(source: str | Path, data_folder: str | Path) -> dict[str, int]:
    """Write the tables; returns the number of images of each."""
    source, data_folder = Path(source).resolve(), Path(data_folder).resolve()
    if source.is_file():
        source = unpack_archive(source, data_folder)
    images = listed_images(source)
    classes = sorted({class_of(name) for name in images})
    train_classes, test_classes = classes[: len(classes) // 2], classes[len(classes) // 2 :]
    if len(train_classes) < 2 * FOLDS:
        raise ValueError(
            f"{source} has {len(classes)} classes: {FOLDS} folds of at least two classes each, and "
            f"as many for tests, need {4 * FOLDS}"
        )
    tables = {"train": train_classes, "test": test_classes}
    for fold in range(FOLDS):
        edges = [len(train_classes) * number // FOLDS for number in (fold, fold + 1)]
        held_out = train_classes[edges[0] : edges[1]]
        tables[f"fold{fold}_train"] = [name for name in train_classes if name not in held_out]
        tables[f"fold{fold}_valid"] = held_out
    counts = {}
    for name, wanted in tables.items():
        chosen = [image for image in images if class_of(image) in set(wanted)]
        write_image_table(
            data_folder / f"{name}.csv",
            chosen,
            [_as_seen_from(data_folder, images[image]) for image in chosen],
            [class_of(image) for image in chosen],
        )
        counts[name] = len(chosen)
    return counts


def unpack_archive(archive: Path, data_folder: Path) -> Path:
    """The folder of an archive, unpacked into another folder, completely or not at all."""
    target = data_folder / NAME_IN_ARCHIVE
    if target.is_dir():
        logger.info("%s exists and is used as it is", target)
        return target
    if not hasattr(tarfile, "data_filter"):
        raise ValueError(
            f"this Python cannot unpack safely (3.10.12 and 3.11.4 can): unpack {archive} into "
            f"{data_folder} with tar, and run the same command again"
        )
    partial = data_folder / f"{NAME_IN_ARCHIVE}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with tarfile.open(archive) as file:
            file.extractall(partial, filter="data")  # nothing outside of the folder, no devices
        if not (partial / NAME_IN_ARCHIVE).is_dir():
            raise ValueError(f"{archive} holds no folder {NAME_IN_ARCHIVE}: is it another archive?")
        (partial / NAME_IN_ARCHIVE).rename(target)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}): fetch it again") from error
    finally:
        shutil.rmtree(partial)
    return target


def class_of(name: str) -> str:
    """The class of an image CLASS/FILE."""
    return name.partition("/")[0]


def listed_images(source: Path) -> dict[str, Path]:
    """The paths of images by name CLASS/FILE, sorted, of CUB-200-2011 or of a folder of classes.

    A copy of CUB-200-2011 must be complete.
    """
    if not source.is_dir():
        raise FileNotFoundError(f"no folder or archive at {source}: correct the path")
    folder, listed = source / "images", source / "images.txt"
    if not listed.is_file():
        folder = folder if folder.is_dir() else source
        paths = [path for path in folder.glob("*/*") if path.suffix.lower() in SUFFIXES]
        if not paths:
            raise ValueError(f"{folder} has no images in folders of classes: correct the path")
        names = [f"{path.parent.name}/{path.name}" for path in paths]
    else:
        lines = listed.read_text(encoding="utf-8").split("\n")
        names = [line.partition(" ")[2].strip() for line in lines if line.strip()]
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ValueError(
                f"{len(missing)} of the {len(names)} images that {listed} names are not in "
                f"{folder} (first: {missing[0]}): unpack the archive again"
            )
    return {name: folder / name for name in sorted(names)}


def _as_seen_from(folder: Path, path: Path) -> str:
    """A path, relative if it is inside of a folder, so that the folder can be moved."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def main() -> int:
    """Prepare, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="archive or folder")
    parser.add_argument("data_folder", type=Path, metavar="DATA", help="folder of the tables")
    options = parser.parse_args()

    def run() -> None:
        for name, count in prepare_cub(options.source, options.data_folder).items():
            print(f"{options.data_folder / name}.csv: {count} images")

    return exit_code("prepare.py", run)


if __name__ == "__main__":
    sys.exit(main())
