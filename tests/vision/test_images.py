"""Images from files to batches and embeddings: what is read, drawn and made again."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("torchvision")
from PIL import Image
from torchvision.transforms.v2 import (
    CenterCrop,
    ColorJitter,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)

from simple_spk.vision.batches import ImageSampler, class_image_loader
from simple_spk.vision.embedding import EmbeddingOptions, embed_images
from simple_spk.vision.image_files import read_image
from simple_spk.vision.image_table import count_classes, read_image_table, write_image_table
from simple_spk.vision.transforms import ImageTransform, Normalize


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 4 classes with 2, 3, 4 and 5 images of their own color and size."""
    random = np.random.default_rng(0)
    ids, files, classes = [], [], []
    for number in range(4):
        for take in range(2 + number):
            name = f"c{number}/{take}.png"
            pixels = random.integers(0, 40, (20 + take, 30, 3)) + 50 * number
            (tmp_path / name).parent.mkdir(exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name)
            ids.append(name)
            files.append(name)
            classes.append(f"c{number}")
    write_image_table(tmp_path / "images.csv", ids, files, classes)
    return tmp_path / "images.csv"


def transform(*steps) -> ImageTransform:
    return ImageTransform([*steps, Normalize()])


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK", "1"])
def test_all_usual_kinds_of_images_become_rgb(tmp_path: Path, mode: str) -> None:
    gray = np.full((5, 7, 3), 255, dtype=np.uint8)
    suffix = "tif" if mode == "CMYK" else "png"
    Image.fromarray(gray).convert(mode).save(tmp_path / f"a.{suffix}")
    image = read_image(tmp_path / f"a.{suffix}")
    assert image.dtype == torch.uint8 and image.shape == (3, 5, 7)
    assert (image == 255).all()


def test_channels_and_axes_stay_where_they_are(tmp_path: Path) -> None:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png").permute(1, 2, 0).numpy(), pixels)


def test_unusable_files_are_named_with_a_cure(tmp_path: Path, monkeypatch) -> None:
    random = np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8)
    whole = tmp_path / "whole.jpg"
    Image.fromarray(random).save(whole)
    (tmp_path / "cut.jpg").write_bytes(whole.read_bytes()[:800])
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    Image.fromarray(random[..., 0].astype(np.uint16)).save(tmp_path / "deep.png")
    for name, words in (
        ("cut.jpg", "truncated"),
        ("text.jpg", "not an image of a known format"),
        ("empty.jpg", "is empty"),
        ("deep.png", "8 bits"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*{words}"):
            read_image(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_image(tmp_path / "nowhere.jpg")
    monkeypatch.setattr("simple_spk.vision.image_files.MAX_PIXELS", 3599)
    with pytest.raises(ValueError, match=r"whole.jpg.*60 x 60 pixels"):
        read_image(whole)


def test_a_table_says_what_was_written(table: Path) -> None:
    images = read_image_table(table)
    assert images.classes == ("c0", "c1", "c2", "c3") and count_classes(table) == 4
    assert np.bincount(images.class_of_row).tolist() == [2, 3, 4, 5]
    assert images.ids is not None and images.ids[3] == "c1/1.png"
    assert images.read(3).shape == (3, 21, 30)


def test_mistakes_in_a_table_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("ID,image,class\na,a.png,x\nb,,x\n")
    with pytest.raises(ValueError, match="line 3: image is empty"):
        read_image_table(path)
    path.write_text("ID,image,class\na,a.png,x\na,b.png,x\n")
    with pytest.raises(ValueError, match="the ID a is in 2 rows"):
        read_image_table(path)
    path.write_text("ID,wav,class\na,a.png,x\n")
    with pytest.raises(ValueError, match="lacks the columns image"):
        read_image_table(path)


def test_batches_are_classes_by_images_and_can_be_made_again(table: Path) -> None:
    options = {"classes_per_batch": 3, "images_per_class": 2, "batches_per_epoch": 5}
    steps = transform(RandomResizedCrop(16), RandomHorizontalFlip(), ColorJitter(0.2, 0.2, 0.2))
    loaders = [
        class_image_loader(table, steps, **options, seed=4, workers=workers) for workers in (0, 2)
    ]
    batches = []
    for loader, first in zip(loaders, (0, 2), strict=True):
        loader.batch_sampler.set_epoch(3, first)
        batches.append(list(loader))
    assert len(batches[0]) == 5 and len(batches[1]) == 3
    for one, other in zip(batches[0][2:], batches[1], strict=True):
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.labels, other.labels)
        assert one.inputs.shape == (6, 3, 16, 16) and one.inputs.dtype == torch.float32
        assert sorted(Counter(one.labels.tolist()).values()) == [2, 2, 2]
    assert not torch.equal(batches[0][0].inputs, batches[0][1].inputs)


def test_all_classes_are_equally_likely_whatever_their_size() -> None:
    class_of_row = np.repeat(np.arange(4), [2, 20, 50, 100]).astype(np.int32)
    sampler = ImageSampler(class_of_row, 1, 2, batches_per_epoch=4000)
    counts = np.bincount([batch[0].label for batch in sampler])
    assert (np.abs(counts - 1000) < 130).all()  # over four standard deviations
    with pytest.raises(ValueError, match="classes_per_batch is 5, but only 4 classes"):
        ImageSampler(class_of_row, 5, 2)


def test_a_seed_decides_all_that_is_random_and_nothing_else_changes() -> None:
    image = torch.randint(256, (3, 40, 60), dtype=torch.uint8)
    steps = transform(RandomResizedCrop(16), RandomHorizontalFlip(0.5), ColorJitter(0.3, 0.3, 0.3))
    examples = [steps(image, seed) for seed in range(50)]
    assert len({example.sum().item() for example in examples}) == 50
    torch.manual_seed(7)
    state = torch.get_rng_state()
    for seed in (2**62 - 1, 3, 49):  # whatever was drawn before
        assert torch.equal(steps(image, seed), steps(image, seed))
    assert torch.equal(steps(image, 3), examples[3]) and torch.equal(steps(image, 49), examples[49])
    assert torch.equal(torch.get_rng_state(), state), "training draws as if there were no images"


def test_flips_are_as_frequent_as_asked() -> None:
    image = torch.arange(3 * 2 * 4, dtype=torch.uint8).reshape(3, 2, 4)
    flip = ImageTransform([RandomHorizontalFlip(0.25)])
    flips = [flip(image, seed) for seed in range(2000)]
    mirrored = sum(torch.equal(one, image.flip(-1)) for one in flips)
    assert abs(mirrored - 500) < 80
    assert all(torch.equal(one, image) or torch.equal(one, image.flip(-1)) for one in flips)


def test_normalization_is_that_of_torchvision_or_of_caffe() -> None:
    image = torch.arange(3 * 2 * 4, dtype=torch.uint8).reshape(3, 2, 4)
    values = Normalize((128.0, 117.0, 104.0), (1.0, 1.0, 1.0), max_value=255.0, bgr=True)(image)
    assert torch.equal(values[0], image[2].float() - 104.0)
    assert torch.equal(values[2], image[0].float() - 128.0)
    torch.testing.assert_close(Normalize()(image)[1], (image[1] / 255.0 - 0.456) / 0.224)


def test_the_test_transform_is_resize_and_center() -> None:
    image = torch.zeros(3, 40, 80, dtype=torch.uint8)
    image[:, :, 36:44] = 255
    result = transform(Resize(20), CenterCrop(16))(image)
    assert result.shape == (3, 16, 16)
    assert result[0, :, 7:9].min() > 2.0 and result[0, :, :4].max() < -2.0


def test_embeddings_come_in_the_order_of_rows(table: Path) -> None:
    images = read_image_table(table)

    def embed(inputs: Tensor) -> Tensor:
        return torch.stack([inputs.mean((1, 2, 3)), inputs[:, 0, :, 0].mean(1)], dim=1)

    whole = transform(Resize((16, 16)))
    found = embed_images(images, embed, EmbeddingOptions(whole, batch_size=3, progress=False))
    one_by_one = torch.cat([embed(whole(images.read(row))[None]) for row in range(len(images))])
    np.testing.assert_allclose(found, one_by_one.numpy(), rtol=1e-5)
    both = embed_images(images, embed, EmbeddingOptions(whole, mirrored=True, progress=False))
    mirror = [embed(whole(images.read(row))[None].flip(-1)) for row in range(len(images))]
    np.testing.assert_allclose(both, (one_by_one + torch.cat(mirror)).numpy() / 2, rtol=1e-4)


def test_a_bad_image_of_a_table_is_named(table: Path) -> None:
    (table.parent / "c2/1.png").write_bytes(b"nothing")
    images = read_image_table(table)
    with pytest.raises(ValueError, match=r"c2/1.png"):
        options = EmbeddingOptions(transform(Resize((8, 8))), progress=False)
        embed_images(images, lambda inputs: inputs.mean((2, 3)), options)
