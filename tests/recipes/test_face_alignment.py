"""Laws of alignment and augmentation: landmarks come to their places, and seeds decide."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recipes.Face.alignment import (
    align_face,
    align_folder,
    named_detector,
    read_landmarks,
    reference_points,
    similarity_transform,
)
from recipes.Face.face_transforms import (
    FaceTestTransform,
    FaceTrainingTransform,
    RandomKeepPart,
    RandomLowResolution,
    UnalignedFaceTransform,
)
from simple_spk.vision.image_files import read_image, write_jpeg
from tools.make_toy_faces import draw_face

moderate = st.floats(-50, 50)


def apply(matrix, points):
    return np.asarray(points) @ matrix[:, :2].T + matrix[:, 2]


@settings(deadline=None, max_examples=50)
@given(st.floats(-math.pi, math.pi), st.floats(0.1, 10), moderate, moderate)
def test_a_turned_scaled_and_moved_face_is_brought_back(angle, scale, x, y):
    turn = scale * np.array(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    )
    points = reference_points() @ turn.T + [x, y]
    assert np.allclose(
        apply(similarity_transform(points, reference_points()), points), reference_points()
    )


def test_no_other_similarity_is_nearer(rng=np.random.default_rng(0)):  # noqa: B008
    points, targets = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    best = similarity_transform(points, targets)

    def error(a, b, x, y):
        return np.square(apply(np.array([[a, -b, x], [b, a, y]]), points) - targets).sum()

    parameters = np.array([best[0, 0], best[1, 0], best[0, 2], best[1, 2]])
    for _ in range(200):
        assert error(*parameters) <= error(*(parameters + 0.05 * rng.normal(size=4)))


def test_a_mirrored_face_is_not_mirrored_back():
    mirrored = reference_points() * [-1, 1]
    matrix = similarity_transform(mirrored, reference_points())
    assert np.linalg.det(matrix[:, :2]) >= 0


def slow_warp(image, matrix, width):
    """Bilinear sampling pixel by pixel, whole numbers being the middles of pixels."""
    inverse = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))
    height, wide = image.shape[1:]
    crop = np.zeros((3, 112, width))
    for row in range(112):
        for column in range(width):
            x, y, _ = inverse @ [column, row, 1]
            if 0 <= x <= wide - 1 and 0 <= y <= height - 1:
                left, top = min(int(x), wide - 2), min(int(y), height - 2)
                right, down = x - left, y - top
                crop[:, row, column] = (1 - down) * (
                    (1 - right) * image[:, top, left] + right * image[:, top, left + 1]
                ) + down * (
                    (1 - right) * image[:, top + 1, left] + right * image[:, top + 1, left + 1]
                )
    return crop


@pytest.mark.parametrize("width", [112, 96])
def test_crops_equal_slow_bilinear_sampling(width):
    image = draw_face(1, 1, size=150)
    landmarks = 1.2 * reference_points() @ np.array([[0.98, 0.2], [-0.2, 0.98]]) + [8, -15]
    crop = align_face(image, landmarks, width)
    assert crop.shape == (3, 112, width) and crop.dtype == torch.uint8
    matrix = similarity_transform(landmarks, reference_points(width))
    expected = slow_warp(image.numpy().astype(float), matrix, width)
    inside = expected.sum(axis=0) > 0
    difference = np.abs(crop.numpy() - expected)[:, inside]
    assert difference.max() <= 0.5 + 1e-6  # but for rounding


def test_the_narrow_crop_is_the_middle_of_the_wide_one():
    image = draw_face(2, 0, size=140)
    landmarks = 1.1 * reference_points() + 5
    wide, narrow = (align_face(image, landmarks, width) for width in (112, 96))
    assert (wide[:, :, 8:-8].int() - narrow.int()).abs().max() <= 1


def test_an_aligned_image_stays_as_it_is():
    image = draw_face(0, 0)
    assert torch.equal(align_face(image, reference_points()), image)


def test_bad_landmarks_are_refused():
    image = draw_face(0, 0)
    for landmarks in (np.ones((5, 2)), np.full((5, 2), np.nan), np.zeros((5, 3))):
        with pytest.raises(ValueError, match="landmarks"):
            align_face(image, landmarks)
    with pytest.raises(ValueError, match="5 targets"):
        align_face(image, np.eye(2) * 9)
    with pytest.raises(ValueError, match="112 x 96"):
        reference_points(100)


# ---- folders ------------------------------------------------------------------------------------


def middle(image):
    """A detector that finds a face in every image, but in dark ones."""
    assert image.dtype == np.uint8 and image.shape[2] == 3
    return None if image.max() < 10 else reference_points() + 14


def test_a_folder_is_aligned_once_and_what_cannot_be_is_named(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("a/1", "a/2", "b/1"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        write_jpeg(source / f"{name}.jpg", draw_face(0, 1, size=140))
    write_jpeg(source / "b/2.jpg", torch.zeros(3, 140, 140, dtype=torch.uint8))
    (source / "b/3.jpg").write_bytes(b"no image")
    done = align_folder(source, target, detector=middle, workers=2, progress=False)
    assert done == {"made": 3, "kept": 0, "left out": 2}
    quarantine = (target / "quarantine.csv").read_text()
    assert "b/2.jpg,no face" in quarantine and "b/3.jpg,unusable" in quarantine
    assert read_image(target / "a/1.jpg").shape == (3, 112, 112)
    again = align_folder(source, target, detector=middle, workers=2, progress=False)
    assert again == {"made": 0, "kept": 3, "left out": 2}

    titles = "NAME_ID," + ",".join(f"P{n}{axis}" for n in range(1, 6) for axis in "XY")
    numbers = ",".join(f"{value:.4f}" for value in (reference_points() + 14).ravel())
    table = tmp_path / "landmarks.csv"
    table.write_text(f"{titles}\n" + "".join(f"{name},{numbers}\n" for name in ("a/1", "b/1.jpg")))
    by_table = tmp_path / "by_table"
    done = align_folder(source, by_table, landmarks=table, progress=False)
    assert done == {"made": 2, "kept": 0, "left out": 3}
    first, second = (read_image(folder / "a/1.jpg").float() for folder in (by_table, target))
    assert (first - second).abs().mean() < 0.5  # the table has fewer digits
    with pytest.raises(ValueError, match="either"):
        align_folder(source, target)


def test_tables_of_landmarks_are_checked(tmp_path):
    table = tmp_path / "landmarks.csv"
    titles = ",".join("abcdefghijk")
    row = "x," + ",".join("1234567890")
    for text in ("", "a,b\n", f"{titles}\n", f"{titles}\nx,1\n", f"{titles}\n{row}\n{row}\n"):
        table.write_text(text)
        with pytest.raises(ValueError, match=r"landmarks\.csv"):
            read_landmarks(table)
    with pytest.raises(ValueError, match="no detector"):
        named_detector("no_such_module:find")
    assert named_detector("math:sqrt") is math.sqrt


# ---- augmentation -------------------------------------------------------------------------------


def test_pixels_become_minus_one_to_one():
    image = draw_face(3, 3)
    image[:, 0, 0], image[:, 0, 1] = 0, 255
    inputs = FaceTestTransform()(image)
    assert inputs.dtype == torch.float32 and inputs.shape == (3, 112, 112)
    assert inputs.min() == -1.0 and inputs.max() == 1.0
    assert torch.allclose(inputs, image.float() / 127.5 - 1.0, atol=1e-6)
    assert FaceTestTransform(64, 48)(image).shape == (3, 64, 48)


def test_a_seed_decides_all_that_is_random():
    image, transform = draw_face(0, 0), FaceTrainingTransform()
    first = [transform(image, seed) for seed in range(30)]
    assert all(torch.equal(transform(image, seed), first[seed]) for seed in range(30))
    assert len({inputs.sum().item() for inputs in first}) > 5
    assert all(inputs.min() >= -1.0 and inputs.max() <= 1.0 for inputs in first)
    plain = FaceTrainingTransform(probability=0.0, flip=0.0)
    assert torch.equal(plain(image, 1), FaceTestTransform()(image))


def test_augmentation_is_as_frequent_as_asked():
    image, plain = draw_face(0, 0), FaceTestTransform()(draw_face(0, 0))
    draws = 400
    share = (
        sum(torch.equal(FaceTrainingTransform()(image, seed), plain) for seed in range(draws))
        / draws
    )
    expected = 0.8**3 * 0.5
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / draws)


def test_steps_do_what_they_say():
    torch.manual_seed(0)
    image = draw_face(1, 0).clamp(min=1)
    for _ in range(20):
        part = RandomKeepPart()(image)
        kept = (part > 0).all(dim=0)
        assert torch.equal(part[:, kept], image[:, kept])
        rows, columns = kept.any(dim=1), kept.any(dim=0)
        assert torch.equal(kept, rows[:, None] & columns[None])  # a rectangle
        assert 0.18 < kept.float().mean() <= 1.0
        coarse = RandomLowResolution()(image)
        assert coarse.shape == image.shape and coarse.dtype == torch.uint8
    detail = (image[:, :, 1:].int() - image[:, :, :-1].int()).abs().float().mean()
    coarse = RandomLowResolution((0.2, 0.2))(image)
    assert (coarse[:, :, 1:].int() - coarse[:, :, :-1].int()).abs().float().mean() < 0.8 * detail
    with pytest.raises(ValueError, match="in the interval"):
        FaceTrainingTransform(probability=1.5)
    with pytest.raises(ValueError, match="increasing numbers in"):
        RandomLowResolution((0.0, 1.0))


def test_unaligned_faces_are_shown_in_part():
    image = draw_face(1, 0)
    transform = UnalignedFaceTransform(56, 48)
    examples = torch.stack([transform(image, seed) for seed in range(20)])
    assert examples.shape == (20, 3, 56, 48)
    assert examples.min() >= -1.0 and examples.max() <= 1.0
    assert torch.equal(transform(image, 3), examples[3])
    assert (examples.std(dim=0) > 0).all()
