"""Faces brought to one place and size by five landmarks, as ArcFace and SphereFace expect them."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

# Where eyes, nose and corners of the mouth (left in the picture first) lie in ArcFace's crops of
# 112 x 112; x, y in pixels, whole numbers being the middles of pixels.
ARCFACE_POINTS = (
    (38.2946, 51.6963),
    (73.5318, 51.5014),
    (56.0252, 71.7366),
    (41.5493, 92.3655),
    (70.7299, 92.2041),
)
FULL_SIZE = 112
WIDTHS = (112, 96)  # SphereFace's crops lack eight columns on either side


def align_face(image: Tensor, landmarks: ArrayLike, width: int = 112) -> Tensor:
    """The face of an image, uint8 (3, height, width), as a crop, uint8 (3, 112, width).

    The landmarks (5, 2) are x, y of the eyes, the nose and the corners of the mouth, left in the
    picture first. The image is turned, scaled and moved, nothing else, so that they come as near as
    possible to their places; what lies outside of it is black.
    """
    back = _inverse(similarity_transform(landmarks, reference_points(width)))
    rows, columns = np.mgrid[:FULL_SIZE, :width]
    places = np.stack([columns, rows, np.ones_like(rows)], axis=-1) @ back.T
    # Not by Pillow, which cuts fractions off instead of rounding. Here -1 and 1 are the middles of
    # the first and the last pixel.
    last = np.array([image.shape[2] - 1, image.shape[1] - 1])
    grid = torch.from_numpy(2.0 * places / np.maximum(last, 1) - 1.0)[None]
    crop = functional.grid_sample(image[None].double(), grid, align_corners=True)[0]
    return crop.round().to(torch.uint8)


def reference_points(width: int = 112) -> NDArray[np.float64]:
    """Where landmarks (5, 2) belong in a crop of 112 x ``width``."""
    if width not in WIDTHS:
        raise ValueError(f"aligned faces are 112 x {' or 112 x '.join(map(str, WIDTHS))}")
    return np.array(ARCFACE_POINTS) - [(FULL_SIZE - width) / 2, 0.0]


def similarity_transform(points: ArrayLike, targets: ArrayLike) -> NDArray[np.float64]:
    """The matrix (2, 3) that turns, scales and moves points (n, 2) nearest to targets (n, 2).

    The least squares solution without mirroring (Umeyama, 1991), which in the plane is one complex
    factor and a shift: target = factor * point + shift.
    """
    points, targets = _checked_points(points), _checked_points(targets)
    if points.shape != targets.shape:
        raise ValueError(f"{len(points)} points cannot come to lie on {len(targets)} targets")
    starts, ends = (side @ np.array([1.0, 1.0j]) for side in (points, targets))
    start_mean, end_mean = starts.mean(), ends.mean()
    spread = np.square(np.abs(starts - start_mean)).sum()
    if spread < 1e-12 * max(1.0, abs(start_mean) ** 2):
        raise ValueError("the landmarks lie in one place: these are not those of a face")
    factor = np.vdot(starts - start_mean, ends - end_mean) / spread
    shift = end_mean - factor * start_mean
    return np.array(
        [[factor.real, -factor.imag, shift.real], [factor.imag, factor.real, shift.imag]]
    )


def _checked_points(points: ArrayLike) -> NDArray[np.float64]:
    """Points (n, 2) that are numbers, at least two of them."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(f"landmarks are finite numbers (n, 2), not an array {array.shape}")
    return array


def _inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix (2, 3) that undoes another."""
    turned_back = np.linalg.inv(matrix[:, :2])
    return np.column_stack([turned_back, -turned_back @ matrix[:, 2]])
