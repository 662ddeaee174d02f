"""The size of face images, which an encoder with a linear layer over all places depends on."""

from torch import Tensor


def size_after_strides(size: int, strides: int) -> int:
    """What is left of a side after so many convolutions of stride 2.

    >>> size_after_strides(112, 4), size_after_strides(96, 4)
    (7, 6)
    """
    for _ in range(strides):
        size = -(-size // 2)
    return size


def check_face_size(faces: Tensor, height: int, width: int) -> None:
    """Raise unless faces are a batch (n, 3, height, width)."""
    if faces.ndim != 4 or tuple(faces.shape[1:]) != (3, height, width):
        raise ValueError(
            f"the encoder takes faces of shape (n, 3, {height}, {width}), not "
            f"{tuple(faces.shape)}: align the images to that size, or set it in the encoder"
        )
