"""recipes/Face: what people have becomes tables and pairs, and train.py runs on them."""

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hyperpyyaml import load_hyperpyyaml

from recipes.Face.face_tables import (
    prepare_orl,
    write_bin_set,
    write_folder_set,
    write_folder_table,
    write_record_table,
)
from recipes.Face.face_verification import read_face_set
from recipes.Face.pairs import even_folds, make_pair_list, read_face_pairs, read_pair_list
from recipes.Face.recordio import read_face_image
from simple_spk.vision.image_files import read_image, to_pillow, write_jpeg
from simple_spk.vision.image_table import read_image_table
from tests.training_runs import run_train
from tools.exchange_loss import write_experiment
from tools.make_toy_faces import draw_face, make_toy_faces
from tools.write_records import face_records, write_records

ROOT = Path(__file__).parents[2]


def jpeg(person, image=0, size=32):
    """The bytes of a small picture of a person."""
    file = io.BytesIO()
    to_pillow(draw_face(person, image, size)).save(file, format="JPEG")
    return file.getvalue()


# ---- training tables ----------------------------------------------------------------------------


def test_a_folder_per_person_becomes_a_table(tmp_path):
    for person, image in (("n2", "b.jpg"), ("n2", "a.JPG"), ("n10", "a.png"), ("n10", "notes.txt")):
        (tmp_path / "faces" / person).mkdir(parents=True, exist_ok=True)
        (tmp_path / "faces" / person / image).write_bytes(jpeg(1))
    assert write_folder_table(tmp_path / "faces", tmp_path / "data/train.csv") == 3
    table = read_image_table(tmp_path / "data/train.csv")
    assert [table.ids[row] for row in range(3)] == ["n10/a", "n2/a", "n2/b"]
    assert table.classes == ("n10", "n2") and table.class_of_row.tolist() == [0, 1, 1]
    assert table.read(2).shape == (3, 32, 32)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="one folder per person"):
        write_folder_table(tmp_path / "empty", tmp_path / "none.csv")


def test_images_are_read_out_of_a_record_file(tmp_path):
    images = [(float(person), jpeg(person, image)) for person in (0, 2, 11) for image in range(2)]
    records = write_records(tmp_path / "train.rec", face_records(images))
    assert write_record_table(records, tmp_path / "train.csv", progress=False) == 6
    table = read_image_table(tmp_path / "train.csv", reader=read_face_image)
    assert table.classes == ("00", "02", "11")
    assert table.class_of_row.tolist() == [0, 0, 1, 1, 2, 2]
    for row, (_, content) in enumerate(images):
        (tmp_path / "one.jpg").write_bytes(content)
        assert torch.equal(table.read(row), read_image(tmp_path / "one.jpg"))
    with pytest.raises(ValueError, match=r"train\.rec, byte"):
        read_face_image(f"{records}@4")
    with pytest.raises(FileNotFoundError, match=r"gone\.rec"):
        read_face_image(tmp_path / "gone.rec@0")
    assert torch.equal(read_face_image(tmp_path / "one.jpg"), read_image(tmp_path / "one.jpg"))


# ---- validation sets ----------------------------------------------------------------------------


def test_a_bin_file_becomes_images_and_pairs(tmp_path):
    is_same = [True, False] * 12
    images = [jpeg(number) for number in range(48)]
    (tmp_path / "lfw.bin").write_bytes(pickle.dumps((images, is_same)))
    for _ in range(2):  # also over what is there
        assert write_bin_set(tmp_path / "lfw.bin", tmp_path / "data", progress=False) == 24
    found = read_face_set(tmp_path / "data", "lfw")
    pairs = found.pairs
    assert sorted(zip(pairs.trials.enroll, pairs.trials.test, strict=True))
    assert pairs.is_target.sum() == 12 and set(pairs.folds.tolist()) == set(range(1, 11))
    for enroll, test, same in zip(
        pairs.trials.enroll, pairs.trials.test, pairs.is_target, strict=True
    ):
        one, other = int(pairs.trials.ids[enroll]), int(pairs.trials.ids[test])
        assert other == one + 1 and is_same[one // 2] == same
    rows = {found.images.ids[row]: row for row in range(48)}
    assert found.images.file(rows["000007"]).read_bytes() == images[7]
    images[3] = b"no image"
    (tmp_path / "bad.bin").write_bytes(pickle.dumps((images, is_same)))
    with pytest.raises(ValueError, match=r"bad\.bin, image 3"):
        write_bin_set(tmp_path / "bad.bin", tmp_path / "data", progress=False)


LFW = "2\t1\nAnn_Lee\t1\t4\nAnn_Lee\t1\tBob\t2\nBob\t1\t2\nBob\t10\tAnn_Lee\t2\n"


def test_lists_of_all_styles_say_the_same(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text(LFW)
    pairs = read_pair_list(path)
    assert pairs.first == ["Ann_Lee/Ann_Lee_0001"] * 2 + ["Bob/Bob_0001", "Bob/Bob_0010"]
    assert pairs.second[0] == "Ann_Lee/Ann_Lee_0004" and pairs.second[3] == "Ann_Lee/Ann_Lee_0002"
    assert pairs.is_same.tolist() == [True, False] * 2 and pairs.folds.tolist() == [1, 1, 2, 2]

    same = [(f"a_{n}.jpg", f"b_{n}.jpg", n // 2 + 1) for n in range(20)]
    other = [(f"c_{n}.jpg", f"d_{n}.jpg", 0) for n in range(20)]
    path.write_text("".join(f"{a} {k}\n{b} {k}\n" for a, b, k in same + other))  # CALFW
    two_lines = read_pair_list(path)
    assert two_lines.folds.tolist() == 2 * [n // 2 + 1 for n in range(20)]
    path.write_text("".join(f"{int(k > 0)} {a} {b}\n" for a, b, k in same + other))
    labeled = read_pair_list(path)
    path.write_text("".join(f"{a} {b} {int(k > 0)}\n" for a, b, k in same + other))
    for again in (labeled, read_pair_list(path)):
        assert (again.first, again.second) == (two_lines.first, two_lines.second)
        assert np.array_equal(again.is_same, two_lines.is_same)
        assert np.array_equal(again.folds, two_lines.folds)
    assert two_lines.first[0] == "a_0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2 1\nBob 1 2\n",
        "1 1\nBob 1 2 3\nBob 1 Ann 2\n",
        "a 1\nb 0\n",
        "a 1\n",
        "0 a b\n2 c d\n",
    ],
)
def test_damaged_lists_are_named(tmp_path, text):
    path = tmp_path / "pairs.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"pairs\.txt"):
        read_pair_list(path)


def test_folds_are_even_and_those_of_ordered_lists():
    ordered = np.tile(np.repeat([True, False], 3), 10)  # three of one person, three of two, ...
    assert even_folds(ordered).tolist() == np.repeat(np.arange(1, 11), 6).tolist()
    mixed = np.random.default_rng(0).random(500) < 0.4
    folds = even_folds(mixed)
    for kind in (True, False):
        counts = np.bincount(folds[mixed == kind])[1:]
        assert len(counts) == 10 and counts.max() - counts.min() <= 1
    with pytest.raises(ValueError, match="cannot make 10 folds"):
        even_folds([True] * 20)


def test_a_folder_with_a_list_is_read_where_it_is(tmp_path):
    lines = ["10 1"]
    for fold in range(10):
        for person in (f"p{fold}", f"q {fold}"):  # a blank in a name
            (tmp_path / "lfw" / person).mkdir(parents=True)
            for image in (1, 2):
                path = tmp_path / "lfw" / person / f"{person}_{image:04d}.png"
                path.write_bytes(jpeg(fold, image))
        lines += [f"p{fold} 1 2", f"p{fold} 2 p{(fold + 1) % 10} 1"]
    (tmp_path / "pairs.txt").write_text("\n".join(lines))
    assert write_folder_set(tmp_path / "lfw", tmp_path / "pairs.txt", tmp_path / "d", "lfw") == 20
    found = read_face_set(tmp_path / "d", "lfw")
    assert found.pairs.folds.tolist() == np.repeat(np.arange(1, 11), 2).tolist()
    assert found.images.read(0).shape == (3, 32, 32)
    (tmp_path / "lfw/p3/p3_0002.png").unlink()
    with pytest.raises(ValueError, match=r"1 of 20 images .*p3/p3_0002"):
        write_folder_set(tmp_path / "lfw", tmp_path / "pairs.txt", tmp_path / "d", "lfw")


def test_made_pairs_are_balanced_and_true():
    ids = [f"{person}/{image}" for person in "abcde" for image in range(6)]
    persons = [name[0] for name in ids]
    pairs = make_pair_list(ids, persons, maximum=100)
    assert len(pairs.folds) == 100 and pairs.is_same.sum() == 50
    for one, other, same in zip(pairs.first, pairs.second, pairs.is_same, strict=True):
        assert (one[0] == other[0]) == same and one != other


def test_orl_is_split_by_person(tmp_path):
    for person in range(1, 41):
        folder = tmp_path / f"orl/s{person}"
        folder.mkdir(parents=True)
        for image in range(1, 4):
            to_pillow(draw_face(person, image, 16)).convert("L").save(folder / f"{image}.pgm")
    counts = prepare_orl(tmp_path / "orl", tmp_path / "data")
    assert (counts["train"], counts["test"], counts["search_train"], counts["valid"]) == (
        90,
        30,
        60,
        30,
    )
    persons = {}
    for part in ("train", "test", "search_train", "valid"):
        table = read_image_table(tmp_path / f"data/{part}.csv")
        persons[part] = set(table.classes)
        assert table.read(0).shape == (3, 16, 16)
    assert not persons["train"] & persons["test"] and len(persons["test"]) == 10
    assert not persons["search_train"] & persons["valid"]
    assert persons["search_train"] | persons["valid"] == persons["train"]
    assert set(read_face_pairs(tmp_path / "data/test_pairs.txt").folds) == set(range(1, 11))
    assert prepare_orl(None, tmp_path / "data") == {}
    with pytest.raises(ValueError, match="--image_folder"):
        prepare_orl(None, tmp_path / "nothing")


def test_the_command_says_what_it_made_and_what_is_wrong(tmp_path):
    (tmp_path / "faces/ann").mkdir(parents=True)
    write_jpeg(tmp_path / "faces/ann/1.jpg", draw_face(0, 0, 16))
    command = [sys.executable, "recipes/Face/prepare.py"]
    good = subprocess.run(
        [*command, "folder", str(tmp_path / "faces"), str(tmp_path / "data")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert good.returncode == 0 and "1 images" in good.stdout
    bad = subprocess.run(
        [*command, "bin", str(tmp_path / "gone.bin"), str(tmp_path / "data")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert bad.returncode == 1 and "gone.bin" in bad.stderr and "Traceback" not in bad.stderr


# ---- training -----------------------------------------------------------------------------------

# A model and batches that take seconds on one core.
SMALL = [
    *("--persons_per_batch=4", "--images_per_person=2", "--minimum_images=2", "--queue_size=20"),
    *("--batches_per_epoch=3", "--number_of_epochs=1", "--workers=0", "--width=4"),
    *("--embedding_dim=16", "--height=32", "--image_width=32", "--log_interval=1"),
    *("--device=cpu", "--precision=fp32", "--collapse_check_steps=1000"),
]


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces")
    make_toy_faces(folder, persons=12, images=4, size=32)
    make_toy_faces(folder, persons=12, images=4, size=32)  # the second time there is nothing to do
    return folder


def train(yaml, faces, output, *options):
    chosen = {text.partition("=")[0]: text for text in [*SMALL, *options]}
    return run_train(
        [yaml, f"--data_folder={faces}", f"--output_folder={output}", *chosen.values()]
    )


HPARAMS = ROOT / "recipes/Face/hparams"
SETTING_B = ["--depth=64", "--number_of_epochs=24", "--milestones=[80000, 140000, 200000]"]


def test_the_readme_has_the_commands_of_settings_b_and_c(tmp_path):
    """Both have the encoder and the steps of the authors' configurations."""
    readme = (ROOT / "recipes/Face/README.md").read_text()
    assert all(option.replace("[", '"[').replace("]", ']"') in readme for option in SETTING_B[::2])
    assert "simple_sfnet20.yaml recipes/Face/hparams/encoders/iresnet100.yaml" in " ".join(
        readme.replace("\\\n", " ").split()
    )
    new = tmp_path / "simple_iresnet100.yaml"
    write_experiment(HPARAMS / "simple_sfnet20.yaml", HPARAMS / "encoders/iresnet100.yaml", new)
    assert "results/simple_iresnet100/<seed>" in new.read_text()
    common = f"data_folder: x\nqueue_size: 8\noutput_folder: {tmp_path}\n"
    setting_b = common + "\n".join(text[2:].replace("=", ": ") for text in SETTING_B)
    for yaml, overrides, parameters in (
        (HPARAMS / "simple_sfnet20.yaml", setting_b, 50_035_520),
        (new, common, 65_156_160),
    ):
        with torch.device("meta"), yaml.open() as file:
            built = load_hyperpyyaml(file, overrides)
        # The published encoders; a polar head has some more, for the length.
        size = sum(parameter.numel() for parameter in built["encoder"].parameters())
        assert abs(size - parameters) < 30_000
        assert built["number_of_epochs"] == 24
        assert built["schedule"].milestones == (80_000, 140_000, 200_000)


@pytest.mark.parametrize("name", ["simple_sfnet20", "simple_sfnet64", "simple_iresnet100"])
def test_every_setting_of_the_paper_trains(name, faces, tmp_path):
    yaml, options = HPARAMS / "simple_sfnet20.yaml", []
    if name == "simple_sfnet64":
        options = [SETTING_B[0], SETTING_B[2]]
    if name == "simple_iresnet100":
        yaml = tmp_path / f"{name}.yaml"
        write_experiment(
            HPARAMS / "simple_sfnet20.yaml", HPARAMS / "encoders/iresnet100.yaml", yaml
        )
    finished = train(yaml, faces, tmp_path / name, *options)
    assert finished.returncode == 0, finished.stderr
    metrics = json.loads((tmp_path / name / "metrics.json").read_text())
    assert set(metrics["lists"]["faces"]["accuracy"]) == {
        "lfw",
        "agedb_30",
        "calfw",
        "cplfw",
        "cfp_fp",
    }
    assert 0.0 <= metrics["eer"] <= 100.0
    assert "faces: accuracy" in finished.stdout


def test_training_reads_images_out_of_a_record_file(faces, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(faces, data)
    images = [(float(person), jpeg(person, image)) for person in range(6) for image in range(4)]
    write_record_table(write_records(data / "train.rec", face_records(images)), data / "train.csv")
    yaml = HPARAMS / "simple_sfnet20.yaml"
    finished = train(yaml, data, tmp_path / "run", "--depth=4", "--workers=1")
    assert finished.returncode == 0, finished.stderr


def test_another_loss_is_a_matter_of_one_command(faces, tmp_path):
    yaml = tmp_path / "sphereface2.yaml"
    base = ROOT / "recipes/Face/hparams/simple_sfnet20.yaml"
    write_experiment(base, ROOT / "hparams/losses/sphereface2.yaml", yaml)
    options = [text for text in SMALL if not text.startswith("--queue_size")]
    output = tmp_path / "run"
    finished = run_train([yaml, f"--data_folder={faces}", *options, f"--output_folder={output}"])
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "run/metrics.json").is_file()


@pytest.mark.skipif(
    not Path(os.environ.get("SIMPLE_SPK_DATA", ""), "images/orl").is_dir(),
    reason="SIMPLE_SPK_DATA names no folder with images/orl",
)
def test_a_short_run_on_real_faces_learns(tmp_path):
    finished = train(
        *(ROOT / "recipes/Face/hparams/orl_small.yaml", tmp_path / "data", tmp_path / "run"),
        f"--image_folder={os.environ['SIMPLE_SPK_DATA']}/images/orl",
        *("--persons_per_batch=12", "--images_per_person=4", "--minimum_images=8", "--width=8"),
        *("--queue_size=512", "--batches_per_epoch=30", "--embedding_dim=32"),
        *("--height=56", "--image_width=48"),
    )
    assert finished.returncode == 0, finished.stderr
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["mean_accuracy"] > 70.0
