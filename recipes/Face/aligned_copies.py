"""Aligned copies of a folder of images, made by several threads; a stopped run goes on."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from recipes.Face.alignment import align_face
from recipes.Face.landmarks import read_landmarks
from simple_spk.corpora.tables import Quarantined, write_quarantine
from simple_spk.io.atomic_file import atomic_write
from simple_spk.vision.image_files import SUFFIXES, read_image, write_jpeg

# From an image, uint8 (height, width, 3) as RGB, to the landmarks (5, 2) of its face, or None.
Detector = Callable[[NDArray[np.uint8]], ArrayLike | None]
AT_ONCE = 4096  # images in the queue of the threads
QUALITY = 95


def align_folder(
    source: str | Path,
    target: str | Path,
    landmarks: str | Path | None = None,
    detector: Detector | None = None,
    width: int = 112,
    workers: int = 4,
    progress: bool = True,
) -> dict[str, int]:
    """Write aligned faces, 112 x ``width``, of all images below a folder; how many of each fate.

    Landmarks come from a table or from a detector. Images without a face, or that cannot be read,
    are left out and named in quarantine.csv of the target. Those that are there are not made again.
    """
    source, target = Path(source).resolve(), Path(target)
    if not source.is_dir():
        raise FileNotFoundError(f"no folder at {source}: correct the path")
    if (landmarks is None) == (detector is None):
        raise ValueError("give either a table of landmarks or a detector")
    table = None if landmarks is None else read_landmarks(landmarks)

    def align(path: Path) -> Quarantined | bool:
        """Whether a copy was made, or why it was not."""
        name = path.relative_to(source).as_posix()
        copy = (target / name).with_suffix(".jpg")
        if copy.is_file():
            return False
        try:
            image = read_image(path)
            if table is not None:
                points: ArrayLike | None = table.of(name)
            else:
                assert detector is not None
                points = detector(image.permute(1, 2, 0).contiguous().numpy())
            if points is None:
                return Quarantined(name, "no face", "its landmarks are unknown")
            face = align_face(image, points, width)
        except ValueError as error:
            return Quarantined(name, "unusable", str(error))
        with atomic_write(copy) as partial:
            write_jpeg(partial, face, QUALITY)
        return True

    made = kept = 0
    left_out: list[Quarantined] = []
    paths = (path for path in _walk(source) if path.suffix.lower() in SUFFIXES)
    bar = tqdm(unit="image", desc="align", disable=not progress)
    with bar, ThreadPoolExecutor(workers) as threads:
        while some := list(itertools.islice(paths, AT_ONCE)):
            for fate in threads.map(align, some):
                bar.update()
                if isinstance(fate, Quarantined):
                    left_out.append(fate)
                else:
                    made, kept = made + fate, kept + (not fate)
    write_quarantine(target / "quarantine.csv", left_out)
    if not made + kept:
        raise ValueError(f"no image below {source} could be aligned: see {target}/quarantine.csv")
    return {"made": made, "kept": kept, "left out": len(left_out)}


def _walk(folder: Path) -> Iterator[Path]:
    """All files below a folder, in order of name, without a list of all of them."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def named_detector(name: str) -> Detector:
    """The function that ``module:function`` names, as people write it on a command line."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"no detector {name} ({error}): write module:function, of a module on PYTHONPATH"
        ) from error
    return found
