"""Faces aligned by five landmarks, as ArcFace and SphereFace expect them."""

import csv
import importlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from simple_spk.corpora.tables import Quarantined, write_quarantine
from simple_spk.io.atomic_file import atomic_write
from simple_spk.vision.image_files import SUFFIXES, read_image, write_jpeg

# Positions of the eyes, the nose and the corners of the mouth (left in the image first) in the
# 112 x 112 crops of ArcFace; x, y in pixels, where integers are the centers of pixels.
ARCFACE_POINTS = (
    (38.2946, 51.6963),
    (73.5318, 51.5014),
    (56.0252, 71.7366),
    (41.5493, 92.3655),
    (70.7299, 92.2041),
)
FULL_SIZE = 112
WIDTHS = (112, 96)  # SphereFace's crops are eight columns narrower on each side
QUEUED_IMAGES = 4096
JPEG_QUALITY = 95
NUMBERS = 10  # x and y of five landmarks
# From an image, uint8 (height, width, 3) as RGB, to the landmarks (5, 2) of its face, or None.
Detector = Callable[[NDArray[np.uint8]], ArrayLike | None]


def align_face(image: Tensor, landmarks: ArrayLike, width: int = 112) -> Tensor:
    """The face of an image, uint8 (3, height, width), as a crop, uint8 (3, 112, width).

    The landmarks (5, 2) are x, y of the eyes, the nose and the corners of the mouth, left in the
    image first. The crop is the similarity transform of the image that brings them closest to
    ArcFace's positions; pixels outside of the image are black.
    """
    back = _inverse(similarity_transform(landmarks, reference_points(width)))
    rows, columns = np.mgrid[:FULL_SIZE, :width]
    places = np.stack([columns, rows, np.ones_like(rows)], axis=-1) @ back.T
    # Not with Pillow, which truncates instead of rounding. Here -1 and 1 are the centers of the
    # first and the last pixel.
    last = np.array([image.shape[2] - 1, image.shape[1] - 1])
    grid = torch.from_numpy(2.0 * places / np.maximum(last, 1) - 1.0)[None]
    crop = functional.grid_sample(image[None].double(), grid, align_corners=True)[0]
    return crop.round().to(torch.uint8)


def reference_points(width: int = 112) -> NDArray[np.float64]:
    """The positions (5, 2) of the landmarks in a crop of 112 x ``width``."""
    if width not in WIDTHS:
        raise ValueError(f"aligned faces are 112 x {' or 112 x '.join(map(str, WIDTHS))}")
    return np.array(ARCFACE_POINTS) - [(FULL_SIZE - width) / 2, 0.0]


def similarity_transform(points: ArrayLike, targets: ArrayLike) -> NDArray[np.float64]:
    """The matrix (2, 3) of the similarity transform from points (n, 2) to targets (n, 2).

    The least-squares solution without reflection (Umeyama, 1991), which in the plane is a complex
    factor and a shift: target = factor * point + shift.
    """
    points, targets = _checked_points(points), _checked_points(targets)
    if points.shape != targets.shape:
        raise ValueError(f"{len(points)} points cannot be aligned to {len(targets)} targets")
    starts, ends = (side @ np.array([1.0, 1.0j]) for side in (points, targets))
    start_mean, end_mean = starts.mean(), ends.mean()
    spread = np.square(np.abs(starts - start_mean)).sum()
    if spread < 1e-12 * max(1.0, abs(start_mean) ** 2):
        raise ValueError("the landmarks are all in one place: they are not those of a face")
    factor = np.vdot(starts - start_mean, ends - end_mean) / spread
    shift = end_mean - factor * start_mean
    return np.array(
        [[factor.real, -factor.imag, shift.real], [factor.imag, factor.real, shift.imag]]
    )


def _checked_points(points: ArrayLike) -> NDArray[np.float64]:
    """At least two points (n, 2) of finite numbers."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(f"landmarks are finite numbers (n, 2), not an array {array.shape}")
    return array


def _inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse (2, 3) of an affine transform (2, 3)."""
    turned_back = np.linalg.inv(matrix[:, :2])
    return np.column_stack([turned_back, -turned_back @ matrix[:, 2]])


def without_suffix(name: str) -> str:
    """A name without suffixes such as .jpg, which some tables have and others have not.

    >>> without_suffix("n000002/0001_01.JPG"), without_suffix("dr.no/1")
    ('n000002/0001_01', 'dr.no/1')
    """
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name


def read_landmarks(path: str | Path) -> dict[str, NDArray[np.float32]]:
    """The landmarks (5, 2) of images by name without suffix, from a CSV file such as
    VGGFace2's loose_landmark_train.csv.

    After a header, each line has an image name and x, y in pixels of the eyes, the nose and the
    corners of the mouth, left in the image first.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no table of landmarks at {path}: correct the path")
    landmarks: dict[str, NDArray[np.float32]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            titles = next(lines, [])
            if len(titles) != 1 + NUMBERS:
                raise ValueError(
                    f"line 1 has {len(titles)} columns; expected a name and {NUMBERS} numbers"
                )
            for line in filter(None, lines):
                name, *numbers = line
                values = np.array(numbers, dtype=np.float32)
                if values.shape != (NUMBERS,) or not np.isfinite(values).all():
                    raise ValueError(f"line {lines.line_num} does not hold {NUMBERS} numbers")
                if without_suffix(name) in landmarks:
                    raise ValueError(f"line {lines.line_num}: {name} is there twice")
                landmarks[without_suffix(name)] = values.reshape(5, 2)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is not a table of landmarks: {error}") from error
    if not landmarks:
        raise ValueError(f"{path} holds no landmarks")
    return landmarks


def align_folder(
    source: str | Path,
    target: str | Path,
    landmarks: str | Path | None = None,
    detector: Detector | None = None,
    width: int = 112,
    workers: int = 4,
    progress: bool = True,
) -> dict[str, int]:
    """Write aligned faces, 112 x ``width``, of all images in a folder tree; returns counts.

    Landmarks come from a table or from a detector. Images without a face, and unreadable images,
    are left out and listed in quarantine.csv of the target. Existing faces are kept.
    """
    source, target = Path(source).resolve(), Path(target)
    if not source.is_dir():
        raise FileNotFoundError(f"no folder at {source}: correct the path")
    if (landmarks is None) == (detector is None):
        raise ValueError("give either a table of landmarks or a detector")
    table = None if landmarks is None else read_landmarks(landmarks)

    def align(path: Path) -> Quarantined | bool:
        """Whether a face was written, or why it was left out."""
        name = path.relative_to(source).as_posix()
        copy = (target / name).with_suffix(".jpg")
        if copy.is_file():
            return False
        try:
            image = read_image(path)
            if table is not None:
                points: ArrayLike | None = table.get(without_suffix(name))
            else:
                assert detector is not None
                points = detector(image.permute(1, 2, 0).contiguous().numpy())
            if points is None:
                return Quarantined(name, "no face", "its landmarks are unknown")
            face = align_face(image, points, width)
        except ValueError as error:
            return Quarantined(name, "unusable", str(error))
        with atomic_write(copy) as partial:
            write_jpeg(partial, face, JPEG_QUALITY)
        return True

    made = kept = 0
    left_out: list[Quarantined] = []
    paths = (path for path in _walk(source) if path.suffix.lower() in SUFFIXES)
    bar = tqdm(unit="image", desc="align", disable=not progress)
    with bar, ThreadPoolExecutor(workers) as threads:
        while some := list(itertools.islice(paths, QUEUED_IMAGES)):
            for outcome in threads.map(align, some):
                bar.update()
                if isinstance(outcome, Quarantined):
                    left_out.append(outcome)
                else:
                    made, kept = made + outcome, kept + (not outcome)
    write_quarantine(target / "quarantine.csv", left_out)
    if not made + kept:
        raise ValueError(f"no image below {source} could be aligned: see {target}/quarantine.csv")
    return {"made": made, "kept": kept, "left out": len(left_out)}


def _walk(folder: Path) -> Iterator[Path]:
    """All files of a folder tree in order of name, as an iterator: there may be millions."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def named_detector(name: str) -> Detector:
    """The function that ``module:function`` names on a command line."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"no detector {name} ({error}): write module:function, of a module on PYTHONPATH"
        ) from error
    return found
