"""From image files and pairs to accuracies, as training asks for them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("torchvision")
from PIL import Image

from recipes.Face.face_verification import FaceVerification
from recipes.Face.metrics import fold_accuracies
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import read_scores
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.vision.image_table import write_image_table
from simple_spk.vision.transforms import ImageTransform, Normalize

TRANSFORM = ImageTransform([Normalize(mean=[0.5] * 3, std=[0.5] * 3)])
WEIGHTS = torch.randn(3 * 6 * 5, 8, generator=torch.Generator().manual_seed(0))


def embed(inputs: Tensor) -> Tensor:
    """Embeddings (n, 8) of images (n, 3, 6, 5), which their mirror images do not share."""
    return inputs.flatten(1) @ WEIGHTS


def make_set(folder: Path, name: str, seed: int, people: int = 5, pairs: int = 40) -> None:
    """Four noisy images of each of some people, and pairs of them in folds of four."""
    random = np.random.default_rng(seed)
    names, files = [], []
    for person in range(people):
        face = random.integers(0, 256, (6, 5, 3))
        for take in range(4):
            noisy = np.clip(face + random.normal(0, 60, face.shape), 0, 255).astype(np.uint8)
            path = folder / name / f"{person}_{take}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noisy).save(path)
            names.append(f"{person}/{take}")
            files.append(f"{name}/{path.name}")
    order = random.permutation(len(names))  # pairs name images, whatever their order in the table
    write_image_table(
        folder / f"{name}.csv",
        *([column[i] for i in order] for column in (names, files)),
        ["unknown"] * len(names),
    )
    lines = []
    for number in range(pairs):
        one, two = random.permutation(people)[:2]
        label = number % 2
        left, right = random.permutation(4)[:2]
        lines.append(f"{label} {one}/{left} {one if label else two}/{right} {1 + number // 4}\n")
    (folder / f"{name}_pairs.txt").write_text("".join(lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_set(tmp_path, "lfw", 0)
    make_set(tmp_path, "agedb_30", 1)
    make_set(tmp_path, "cfp_fp", 2)
    return tmp_path


def reference_scores(folder: Path, name: str, similarity: Similarity, mirrored: bool) -> list:
    """Scores, labels and folds of a set, pair by pair, from the files."""

    def embedding(image: str) -> Tensor:
        pixels = np.array(Image.open(folder / name / f"{image.replace('/', '_')}.png"))
        inputs = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 127.5 - 1
        one = embed(inputs)
        return (one + embed(inputs.flip(-1))) / 2 if mirrored else one

    rows = []
    for line in (folder / f"{name}_pairs.txt").read_text().splitlines():
        label, left, right, fold = line.split()
        score = float(similarity(embedding(left), embedding(right)))
        rows.append((score, label == "1", int(fold)))
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("similarity", [GeneralizedInnerProduct(), CosineSimilarity()])
@pytest.mark.parametrize("mirrored", [False, True])
def test_rates_are_those_of_the_pairs_one_by_one(
    folder: Path, similarity: Similarity, mirrored: bool
) -> None:
    evaluation = FaceVerification(
        *(folder, ["lfw", "agedb_30", "cfp_fp"], TRANSFORM, ["lfw", "agedb_30"], mirrored),
        progress=False,
    )
    result = evaluation(embed, similarity, scores_file=folder / "scores.txt")
    scores, labels = [], []
    for name in ("lfw", "agedb_30", "cfp_fp"):
        columns = reference_scores(folder, name, similarity, mirrored)
        accuracies = 100 * fold_accuracies(*columns).accuracies
        assert len(accuracies) == 10
        assert result["fold_accuracies"][name] == pytest.approx(accuracies.tolist())
        assert result["accuracy"][name] == pytest.approx(accuracies.mean())
        assert result["accuracy_std"][name] == pytest.approx(accuracies.std())
        assert result["set_eer"][name] == pytest.approx(summary(*columns[:2])["eer"])
        if name != "cfp_fp":
            scores += columns[0]
            labels += columns[1]
    assert result["eer"] == pytest.approx(summary(scores, labels)["eer"])
    assert 55 < result["accuracy"]["lfw"] < 100, "a case that tells something"
    assert (result["trials"], result["targets"]) == (80, 40)
    assert result["mean_accuracy"] == pytest.approx(np.mean(list(result["accuracy"].values())))
    assert "min_dcf" in result, "which comparisons of losses read"
    assert set(result["tpr_at_far"]) == {"0.0001", "0.001", "0.01"}
    json.dumps(result, allow_nan=False)


def test_scores_are_written_with_the_names_of_their_sets(folder: Path) -> None:
    (folder / "lfw_pairs.txt").write_text("1 0/0 0/1 1\n0 0/0 1/0 1\n1 2/0 2/1 2\n0 2/0 3/1 2\n")
    (folder / "cfp_fp_pairs.txt").write_text("0 0/0 1/1 1\n1 0/0 0/3 1\n0 2/1 3/1 2\n1 1/0 1/1 2\n")
    evaluation = FaceVerification(folder, ["lfw", "cfp_fp"], TRANSFORM, progress=False)
    result = evaluation(embed, CosineSimilarity(), scores_file=folder / "scores.txt")
    trials, scores = read_scores(folder / "scores.txt")
    assert trials.ids[0] == "lfw/0/0" and trials.ids[-1] == "cfp_fp/1/0"
    assert len(trials) == result["trials"] == 8
    assert summary(scores.astype(np.float32), trials.is_target)["eer"] == result["eer"]


def test_fusing_by_the_mean_or_the_sum_is_the_same_accuracy(folder: Path) -> None:
    evaluation = FaceVerification(folder, ["lfw", "agedb_30"], TRANSFORM, progress=False)
    for similarity in (GeneralizedInnerProduct(), CosineSimilarity()):
        mean = evaluation(embed, similarity)
        total = evaluation(lambda inputs: 2 * embed(inputs), similarity)
        assert mean["fold_accuracies"] == total["fold_accuracies"]
        assert mean["eer"] == total["eer"]


def test_what_tells_nothing_apart_is_half_right_and_still_json(folder: Path) -> None:
    evaluation = FaceVerification(folder, ["lfw"], TRANSFORM, progress=False)
    result = evaluation(lambda inputs: torch.ones(len(inputs), 4), GeneralizedInnerProduct())
    assert result["accuracy"]["lfw"] == result["eer"] == 50.0
    assert result["fold_thresholds"]["lfw"] == [None] * 10
    json.dumps(result, allow_nan=False)


def test_mistakes_are_named(folder: Path) -> None:
    with pytest.raises(ValueError, match="combined must name some of the sets"):
        FaceVerification(folder, ["lfw"], TRANSFORM, combined=["calfw"])
    with pytest.raises(ValueError, match="each once"):
        FaceVerification(folder, ["lfw", "lfw"], TRANSFORM)
    with pytest.raises(FileNotFoundError, match=r"calfw_pairs\.txt"):
        FaceVerification(folder, ["calfw"], TRANSFORM)
    (folder / "lfw_pairs.txt").write_text("1 0/0 0/9 1\n0 0/0 1/0 2\n")
    with pytest.raises(ValueError, match=r"1 of 3 images .*lfw\.csv \(first: 0/9\)"):
        FaceVerification(folder, ["lfw"], TRANSFORM)
    (folder / "lfw_pairs.txt").write_text("1 0/0 0/1 1\n0 0/0 1/0 1\n")
    evaluation = FaceVerification(folder, ["lfw"], TRANSFORM, progress=False)
    with pytest.raises(ValueError, match=r"lfw_pairs\.txt: found 1 folds"):
        evaluation(embed, CosineSimilarity())
