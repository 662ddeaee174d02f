"""CUB-200-2011 from archive to figures: tables, every loss, trainings from outside, the gallery."""

import json
import os
import re
import subprocess
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("torchvision")

from hyperpyyaml import load_hyperpyyaml

from recipes.CUB200 import cross_validate
from recipes.CUB200.gallery import main as gallery
from recipes.CUB200.prepare import prepare_cub, unpack_archive
from recipes.CUB200.rankings import read_rankings
from simple_spk.models.similarity import CosineSimilarity
from simple_spk.vision.image_table import read_image_table
from simple_spk.vision.retrieval_evaluation import (
    Scorable,
    concatenated_metrics,
    read_scorable,
    write_scorable,
)
from simple_spk.vision.retrieval_metrics import retrieval_metrics
from tests.training_runs import run_train, train_here
from tools.exchange_loss import keys_of, split, write_experiment
from tools.make_toy_images import make_toy_images

ROOT = Path(__file__).parents[2]
HPARAMS = ROOT / "recipes/CUB200/hparams"
LOSSES = sorted((HPARAMS / "losses").glob("*.yaml"))
TINY = [
    *("--classes_per_batch=4", "--images_per_class=2", "--batches_per_epoch=2", "--workers=0"),
    *("--resized=36", "--image_size=32", "--queue_size=40", "--embedding_dim=8"),
    *("--log_interval=1", "--tensorboard=null", "--device=cpu"),
]
FULL = [*TINY, "--imagenet_weights=null", "--freeze_batchnorm=False", "--learning_rate=0.0001"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 16 toy classes."""
    folder = tmp_path_factory.mktemp("toy") / "images"
    make_toy_images(folder, classes=16, images=4)
    return folder


@pytest.fixture(scope="module")
def data(images: Path) -> Path:
    """The tables of the toy classes."""
    prepare_cub(images, images.parent / "data")
    return images.parent / "data"


def train(yaml: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_train([yaml, "--noprogressbar", *options])


# ---- preparing ----------------------------------------------------------------------------------


def classes_of(data: Path, name: str) -> set[str]:
    return set(read_image_table(data / f"{name}.csv").classes)


def test_folds_partition_the_training_classes(data: Path) -> None:
    train_classes, test_classes = classes_of(data, "train"), classes_of(data, "test")
    assert sorted(train_classes | test_classes)[:8] == sorted(train_classes)
    assert len(test_classes) == 8 and not train_classes & test_classes
    held_out = [classes_of(data, f"fold{fold}_valid") for fold in range(4)]
    assert set.union(*held_out) == train_classes and sum(map(len, held_out)) == 8
    for fold, valid in enumerate(held_out):
        assert classes_of(data, f"fold{fold}_train") == train_classes - valid


def make_original(images: Path, folder: Path) -> Path:
    """A copy laid out as the original: images.txt and the images below images/."""
    copy = folder / "CUB_200_2011"
    (copy / "images").parent.mkdir(parents=True)
    (copy / "images").symlink_to(images)
    names = sorted(str(path.relative_to(images)) for path in images.glob("*/*.jpg"))
    lines = [f"{number} {name}" for number, name in enumerate(names, start=1)]
    (copy / "images.txt").write_text("\n".join(lines) + "\n")
    return copy


def test_a_python_that_cannot_unpack_safely_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with pytest.raises(ValueError, match="with tar"):
        unpack_archive(tmp_path / "CUB.tgz", tmp_path / "data")


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="an old Python unpacks nothing")
def test_the_original_archive_is_unpacked_and_must_be_complete(
    images: Path, data: Path, tmp_path: Path
) -> None:
    copy = make_original(images, tmp_path / "source")
    with tarfile.open(tmp_path / "CUB.tgz", "w:gz", dereference=True) as archive:
        archive.add(copy, "CUB_200_2011")
    counts = prepare_cub(tmp_path / "CUB.tgz", tmp_path / "data")
    assert counts["train"] == counts["test"] == 32
    ours, theirs = (read_image_table(folder / "test.csv") for folder in (tmp_path / "data", data))
    assert [ours.ids[row] for row in range(32)] == [theirs.ids[row] for row in range(32)]
    assert ours.files[0].startswith("CUB_200_2011/images/")  # the folder can be moved
    assert torch.equal(ours.read(5), theirs.read(5))
    assert prepare_cub(tmp_path / "CUB.tgz", tmp_path / "data") == counts
    lost = next((tmp_path / "data/CUB_200_2011/images").glob("*/*.jpg"))
    lost.unlink()
    with pytest.raises(ValueError, match="1 of the 64 images"):
        prepare_cub(tmp_path / "data/CUB_200_2011", tmp_path / "data")


def test_mistakes_in_preparing_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        prepare_cub(tmp_path / "nowhere", tmp_path)
    (tmp_path / "image").write_bytes(bytes(10**6))
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(tmp_path / "image", "CUB_200_2011/image")
    packer = zlib.compressobj(wbits=31)  # gzip
    half = packer.compress((tmp_path / "image.tar").read_bytes()[: 5 * 10**5])
    half += packer.flush(zlib.Z_FULL_FLUSH)
    for content in (b"no archive", half, half + b"\7" * 99):
        (tmp_path / "bad.tgz").write_bytes(content)
        with pytest.raises(ValueError, match="cannot be unpacked"):
            prepare_cub(tmp_path / "bad.tgz", tmp_path / "data")
        assert not list((tmp_path / "data").iterdir())
    make_toy_images(tmp_path / "few", classes=6, images=1)
    with pytest.raises(ValueError, match="has 6 classes"):
        prepare_cub(tmp_path / "few", tmp_path / "data")


# ---- losses -------------------------------------------------------------------------------------


def test_all_competitors_of_the_table_are_there() -> None:
    assert len(LOSSES) == 14


@pytest.mark.parametrize("base", ["cub40_small", "simple_bninception"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda path: path.stem)
def test_every_loss_builds_and_learns(base: str, loss: Path, data: Path, tmp_path: Path) -> None:
    if "pytorch_metric_learning" in loss.read_text():
        pytest.importorskip("pytorch_metric_learning")
    experiment = tmp_path / f"{loss.stem}.yaml"
    write_experiment(HPARAMS / f"{base}.yaml", loss, experiment)
    # The trunk takes long to build, and is none of the loss's business.
    wanted = {"data_folder", "fold", "table_prefix", "train_table", "embedding_dim"}
    wanted |= {"loss_learning_rate", "parameter_groups", *keys_of(loss.read_text())}
    parts = [part for part in split(experiment.read_text()) if part.key in wanted]
    text = "\n".join(line for part in parts for line in part.lines)
    built = load_hyperpyyaml(text, {"data_folder": str(data), "embedding_dim": 6})
    assert "queue" not in [part.key for part in split(experiment.read_text())]
    torch.manual_seed(0)
    embeddings = torch.randn(8, 6, requires_grad=True)
    labels = torch.arange(8) // 2
    built["loss"].train()
    value = built["loss"](embeddings, labels)
    value.sum().backward()
    assert value.ndim == 0 and torch.isfinite(value) and embeddings.grad.abs().sum() > 0
    parameters = dict(built["loss"].named_parameters(prefix="loss"))
    groups = built["parameter_groups"] or {}
    assert bool(parameters) == any(prefix.startswith("loss.") for prefix in groups)
    if "num_classes" in built:
        assert built["num_classes"] == (6 if base == "simple_bninception" else 8)
    # Downhill is better.
    with torch.no_grad():
        moved = embeddings - 0.01 * embeddings.grad / embeddings.grad.norm()
        assert built["loss"](moved, labels) <= value


# ---- training -----------------------------------------------------------------------------------


def test_the_experiment_runs_stops_early_and_keeps_the_best_epoch(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    options = [f"--data_folder={data}", f"--output_folder={tmp_path}", *FULL]
    finished = train(HPARAMS / "simple_bninception.yaml", *options, "--patience=1")
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"test: precision at 1 [\d.]+, r precision", finished.stdout)
    log = (tmp_path / "log.txt").read_text()
    validated = [float(value) for value in re.findall(r"map_at_r ([\d.e+-]+)", log)]
    assert len(validated) >= 2, "patience of one epoch without a better one"
    best = 1 + int(np.argmax(validated))
    assert re.search(rf"the best 1 epochs \({best}\)", log)
    kept = list((tmp_path / "checkpoints").glob("CKPT*"))
    assert 1 <= len(kept) <= 2, "the last and the best"
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["map_at_r"] == metrics["lists"]["test"]["map_at_r"]
    # What it wrote gives the same figures again.
    images = read_image_table(data / "test.csv")
    scorable = read_scorable(tmp_path / "scores_test.npz")
    labels = torch.from_numpy(images.class_of_row.astype(np.int64))
    again = retrieval_metrics(*map(torch.from_numpy, scorable[1:3]), labels)
    assert again["map_at_r"] == pytest.approx(metrics["map_at_r"])
    rankings = read_rankings(tmp_path / "scores_test.txt")
    assert list(rankings) == scorable.ids and all(len(r) == 10 for r in rankings.values())
    check_gallery(tmp_path, data / "test.csv")


def check_gallery(run: Path, table: Path) -> None:
    """A page of its own: thumbnails inside, right and wrong told by more than color."""
    page = run / "gallery.html"
    arguments = [str(run / "scores_test.txt"), str(table), "-o", str(page)]
    assert gallery([*arguments, "--queries=5", "--neighbors=4", "--title=<b>"]) == 0
    text = page.read_text()
    assert text.count("data:image/jpeg;base64,") == 5 * 5 and "<h1>&lt;b&gt;</h1>" in text
    assert text.count('<figure class="right">') + text.count('<figure class="wrong">') == 20
    assert text.count('<figure class="right">') == text.count("<b>✓ right</b>")
    assert not re.search(r"https?://|<script", text) and "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text and f"images of {table.name}" in text
    other = run / "other.csv"
    other.write_text("ID,image,class\na,a.png,x\n")
    assert gallery([arguments[0], str(other), "-o", str(page)]) == 1


def test_a_killed_run_ends_as_an_unbroken_one(data: Path, tmp_path: Path) -> None:
    """Augmentation, queue and best epoch included: a run of two epochs, whole and in two parts."""
    yaml = HPARAMS / "cub40_small.yaml"
    for name, epochs in (("whole", (2,)), ("parts", (1, 2))):
        for number in epochs:
            options = [f"--data_folder={data}", f"--output_folder={tmp_path / name}", *TINY]
            finished = train(yaml, *options, f"--number_of_epochs={number}")
            assert finished.returncode == 0, finished.stderr
    one, other = (read_scorable(tmp_path / name / "scores_test.npz") for name in ("whole", "parts"))
    assert np.array_equal(one.embeddings, other.embeddings)


def test_four_folds_are_tested_apart_and_together(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """With the small network, of which the folds' tables are made by hand."""
    text = (HPARAMS / "cub40_small.yaml").read_text()
    plain, of_fold = "<data_folder>/<table_prefix>train.csv", "<data_folder>/fold<fold>_train.csv"
    text = "fold: 0\n" + text.replace(plain, of_fold)
    (tmp_path / "folds.yaml").write_text(text)
    monkeypatch.setattr("tools.experiment_runs._train", train_here)
    arguments = [str(tmp_path / "folds.yaml"), "-o", str(tmp_path / "out")]
    arguments += ["--", f"--data_folder={data}", *TINY, "--number_of_epochs=1"]
    assert cross_validate.main(arguments) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "out/metrics.json").read_text())
    assert len(found["folds"]) == 4 and len({fold["map_at_r"] for fold in found["folds"]}) > 1
    mean = np.mean([fold["map_at_r"] for fold in found["folds"]])
    assert found["separate"]["map_at_r"] == pytest.approx(mean)
    assert "concatenated: Precision@1" in capsys.readouterr().out
    assert found["concatenated"]["queries"] == 32


def test_joint_scores_of_cosines_rank_as_concatenated_unit_vectors(tmp_path: Path) -> None:
    torch.manual_seed(0)
    labels, cosine = torch.arange(60) % 6, CosineSimilarity()
    embeddings = [torch.randn(60, 5) + torch.randn(6, 5)[labels] for _ in range(3)]
    ids = [str(number) for number in range(60)]
    models = [
        Scorable(ids, cosine.lift_queries(e).numpy(), cosine.lift_keys(e).numpy(), e.numpy())
        for e in embeddings
    ]
    write_scorable(tmp_path / "x.npz", models[0])
    assert np.array_equal(read_scorable(tmp_path / "x.npz").keys, models[0].keys)
    joined = torch.cat([torch.nn.functional.normalize(e) for e in embeddings], dim=1)
    expected = retrieval_metrics(cosine.lift_queries(joined), cosine.lift_keys(joined), labels)
    found = concatenated_metrics(models, labels)
    assert found["map_at_r"] == pytest.approx(expected["map_at_r"], abs=1e-6)
    with pytest.raises(ValueError, match="different images"):
        concatenated_metrics([models[0], models[1]._replace(ids=ids[::-1])], labels)


def test_real_birds(tmp_path: Path) -> None:
    """Forty classes of CUB-200-2011, if they are at hand, for a few steps."""
    folder = os.environ.get("SIMPLE_SPK_DATA")
    if folder is None or not Path(folder, "images/cub40").is_dir():
        pytest.skip("SIMPLE_SPK_DATA names no folder with images/cub40")
    counts = prepare_cub(Path(folder, "images/cub40"), tmp_path / "data")
    assert counts["train"] == counts["test"] == 600
    options = [f"--data_folder={tmp_path / 'data'}", f"--output_folder={tmp_path / 'run'}", *TINY]
    finished = train(HPARAMS / "cub40_small.yaml", *options, "--number_of_epochs=1")
    assert finished.returncode == 0, finished.stderr
    found = json.loads((tmp_path / "run/metrics.json").read_text())
    assert found["precision_at_1"] > 5.0, "guessing finds 4.8 of 100"
