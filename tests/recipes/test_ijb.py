"""Laws of the IJB protocols, beside a reference that follows the definitions in plain loops."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipes.Face.ijb_evaluation import (
    IJBEvaluation,
    evaluate_ijb,
    ijb_table,
    media_template_embeddings,
    read_ijb_protocol,
)
from recipes.Face.ijb_protocol import TemplateImages
from recipes.Face.metrics import Searches, open_set_rates, pooled_rates, search
from simple_spk.evaluation.embedding_files import Embeddings, read_embeddings, write_embeddings
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.vision.image_table import write_image_table

ROOT = Path(__file__).parents[2]
laws = settings(max_examples=60, deadline=None, derandomize=True)
Made = tuple[Path, Embeddings, dict[str, Any]]


def made_protocol(folder: Path, seed: int, subjects: int = 12, is_whole: bool = False) -> Made:
    """A small protocol in files, embeddings of its images, and what the files say, in the open.

    Templates have one to four media of one to five images; half of the subjects are in each
    gallery. ``is_whole``: embeddings of small whole numbers, a single image to a template, so that
    scores are exact, and often equal.
    """
    random = np.random.default_rng(seed)
    people = {n: 100 + n for n in range(subjects)}
    templates: dict[int, list[tuple[str, int]]] = {}  # template id -> images and media
    subject_of: dict[int, int] = {}
    media, ids = 7, random.permutation(500).tolist()
    names: list[str] = []
    for person in [*people, *random.integers(0, subjects, 2 * subjects).tolist()]:
        template = ids.pop()
        subject_of[template] = people[person]
        templates[template] = []
        for _ in range(1 if is_whole else int(random.integers(1, 5))):
            media += 3
            for _ in range(1 if is_whole else int(random.integers(1, 6))):
                names.append(f"{len(names) + 1}.jpg")
                templates[template].append((names[-1], media))
    rows = [(name, t, medium) for t, images in templates.items() for name, medium in images]
    random.shuffle(rows)
    enrolled, probes = list(templates)[:subjects], list(templates)[subjects:]
    galleries = {"G1": enrolled[: subjects // 2], "G2": enrolled[subjects // 2 :]}
    pairs = [(g, p, int(subject_of[g] == subject_of[p])) for g in enrolled for p in probes]
    folder.mkdir(parents=True)
    (folder / "ijbc_face_tid_mid.txt").write_text("".join(f"{a} {b} {c}\n" for a, b, c in rows))
    (folder / "ijbc_template_pair_label.txt").write_text(
        "".join(f"{a} {b} {c}\n" for a, b, c in pairs)
    )

    def write_table(name: str, chosen: list[int]) -> None:
        lines = [f"{t},{subject_of[t]},img/{n}" for t in chosen for n, _ in templates[t]]
        text = "TEMPLATE_ID,SUBJECT_ID,FILENAME\n" + "\n".join(lines) + "\n"
        (folder / f"ijbc_1N_{name}.csv").write_text(text)

    for name, chosen in galleries.items():
        write_table(f"gallery_{name}", chosen)
    write_table("probe_mixed", probes)
    if is_whole:
        matrix = random.integers(-1, 2, (len(names), 2)).astype(np.float32)
    else:
        center = {s: random.normal(size=6) for s in people.values()}
        owner = {name: subject_of[t] for name, t, _ in rows}
        matrix = np.array([center[owner[n]] + random.normal(size=6) for n in names], np.float32)
    order = random.permutation(len(names))
    embeddings = Embeddings([names[i] for i in order], matrix[order], Path("e.npz"))
    told = {
        **{"templates": templates, "subject_of": subject_of, "galleries": galleries},
        **{"probes": probes, "pairs": pairs},
    }
    return folder, embeddings, told


def reference_template(images: list[tuple[str, int]], embeddings: Embeddings) -> NDArray[Any]:
    """The mean over media of the means over their images, in loops."""
    by_medium: dict[int, list[NDArray[Any]]] = {}
    for name, medium in images:
        row = embeddings.matrix[embeddings.ids.index(name)].astype(np.float64)
        by_medium.setdefault(medium, []).append(row)
    return np.mean([np.mean(rows, axis=0) for rows in by_medium.values()], axis=0)


def reference_score(similarity: Similarity) -> Callable[[NDArray[Any], NDArray[Any]], float]:
    """S(x, z) in double precision."""

    def score(x: NDArray[Any], z: NDArray[Any]) -> float:
        lengths = np.linalg.norm(x) * np.linalg.norm(z)
        if isinstance(similarity, GeneralizedInnerProduct):
            return float(x @ z - float(similarity.angular_bias) * lengths)
        return float(x @ z / lengths)

    return score


def reference_open_set(
    scores: dict[int, dict[int, float]], mate_of: dict[int, int | None], limits: list[float]
) -> dict[str, Any]:
    """Rates of one gallery, every threshold tried; scores by probe and template."""
    mated = [p for p in scores if mate_of[p] is not None]
    unmated = [p for p in scores if mate_of[p] is None]
    ranks, mate_scores = {}, {}
    for p in mated:
        mate_scores[p] = scores[p][mate_of[p]]  # type: ignore[index]
        ahead = [g for g in scores[p] if g != mate_of[p] and scores[p][g] >= mate_scores[p]]
        ranks[p] = 1 + len(ahead)
    thresholds = sorted({s for row in scores.values() for s in row.values()})
    tpir = {}
    for limit in limits:
        reached = [0.0]
        for threshold in [*thresholds, math.inf]:
            alarms = sum(any(s >= threshold for s in scores[p].values()) for p in unmated)
            if alarms / len(unmated) <= limit:
                hits = sum(mate_scores[p] >= threshold and ranks[p] <= 20 for p in mated)
                reached.append(100 * hits / len(mated))
        tpir[str(limit)] = max(reached)
    return {
        "top_1": 100 * sum(ranks[p] <= 1 for p in mated) / len(mated),
        "top_5": 100 * sum(ranks[p] <= 5 for p in mated) / len(mated),
        "tpir_at_fpir": tpir,
    }


def reference_result(embeddings: Embeddings, told: dict[str, Any], similarity: Similarity) -> Any:
    """Everything that evaluate_ijb gives, in loops."""
    score = reference_score(similarity)
    table = {t: reference_template(i, embeddings) for t, i in told["templates"].items()}
    subject_of = told["subject_of"]
    same = [score(table[a], table[b]) for a, b, label in told["pairs"] if label]
    other = [score(table[a], table[b]) for a, b, label in told["pairs"] if not label]
    tpr = {}
    for limit in (1e-6, 1e-5, 1e-4):
        allowed = [t for t in [*same, *other, math.inf] if sum(s >= t for s in other) == 0]
        assert 1 / len(other) > limit
        tpr[str(limit)] = 100 * sum(s >= min(allowed) for s in same) / len(same)
    galleries = {}
    for name, chosen in told["galleries"].items():
        scores = {p: {g: score(table[p], table[g]) for g in chosen} for p in told["probes"]}
        mate_of = {
            p: next((g for g in chosen if subject_of[g] == subject_of[p]), None) for p in scores
        }
        galleries[name] = reference_open_set(scores, mate_of, [0.01, 0.1])
    everyone = [g for chosen in told["galleries"].values() for g in chosen]
    mate_scores, others, ranks = [], [], []
    for p in told["probes"]:
        row = {g: score(table[p], table[g]) for g in everyone}
        mate = next(g for g in everyone if subject_of[g] == subject_of[p])
        mate_scores.append(row.pop(mate))
        others += row.values()
        ranks.append(1 + sum(s >= mate_scores[-1] for s in row.values()))
    falling = sorted(others, reverse=True)
    joined = {
        **{f"top_{k}": 100 * np.mean([r <= k for r in ranks]) for k in (1, 5)},
        "tpir_at_fpir": {
            str(limit): 100
            * np.mean([s > falling[math.ceil(limit * len(ranks)) - 1] for s in mate_scores])
            for limit in (0.01, 0.1)
        },
    }
    return tpr, galleries, joined


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("similarity", "is_whole"),
    [
        (GeneralizedInnerProduct(0.3), False),
        (CosineSimilarity(), False),
        (GeneralizedInnerProduct(0.0), True),  # products of whole numbers are exact without lengths
    ],
)
def test_rates_are_those_of_the_definitions(
    tmp_path: Path, seed: int, similarity: Similarity, is_whole: bool
) -> None:
    folder, embeddings, told = made_protocol(tmp_path / "p", seed, is_whole=is_whole)
    result = evaluate_ijb(read_ijb_protocol(folder), embeddings, similarity)
    tpr, galleries, joined = reference_result(embeddings, told, similarity)
    assert result["verification"]["tpr_at_far"] == pytest.approx(tpr)
    found = result["identification"]
    for name, expected in galleries.items():
        for key in ("top_1", "top_5", "tpir_at_fpir"):
            assert found["galleries"][name][key] == pytest.approx(expected[key]), (name, key)
            if key != "tpir_at_fpir":
                mean = np.mean([one[key] for one in galleries.values()])
                assert found["mean"][key] == pytest.approx(mean)
    for limit in ("0.01", "0.1"):
        mean = np.mean([one["tpir_at_fpir"][limit] for one in galleries.values()])
        assert found["mean"]["tpir_at_fpir"][limit] == pytest.approx(mean)
    for key, value in joined.items():
        assert found["joined"][key] == pytest.approx(value)
    json.dumps(result)


@laws
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8), st.sampled_from([1, 3, 512]))
def test_searches_are_those_of_loops_ties_and_all(
    seed: int, probes: int, places: int, block: int
) -> None:
    """Whole numbers, so that many scores are equal, and any probe may be without a mate."""
    random = np.random.default_rng(seed)
    sought = random.integers(-2, 3, (probes, 3)).astype(np.float32)
    gallery = random.integers(-2, 3, (places, 3)).astype(np.float32)
    mates = random.integers(-1, places, probes)
    kept = int(random.integers(1, 40))
    similarity = GeneralizedInnerProduct(0.0)
    found = search(sought, gallery, mates, similarity, kept, block)
    scores = sought @ gallery.T
    mate_scores, ranks, best, others = [], [], [], []
    for row, mate in zip(scores.tolist(), mates.tolist(), strict=True):
        rest = [s for g, s in enumerate(row) if g != mate]
        others += rest
        if mate < 0:
            best.append(max(row))
        else:
            mate_scores.append(row[mate])
            ranks.append(1 + sum(s >= row[mate] for s in rest))
    assert found.mate_scores.tolist() == mate_scores
    assert found.mate_ranks.tolist() == ranks
    assert found.best_scores.tolist() == best
    assert found.highest_other_scores.tolist() == sorted(others, reverse=True)[:kept]


@laws
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), min_size=1, max_size=12),
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.5, 1.0]),
)
def test_tpir_is_the_best_of_all_thresholds(
    mated: list[tuple[int, int]], best: list[int], limit: float
) -> None:
    scores, ranks = (np.array(column) for column in zip(*mated, strict=True))
    searches = Searches(
        scores.astype(np.float32), ranks, np.array(best, np.float32), np.empty(0, np.float32)
    )
    allowed = [t for t in [*range(7), math.inf] if np.mean([b >= t for b in best]) <= limit]
    expected = max(100 * np.mean([s >= t and r <= 20 for s, r in mated]) for t in allowed)
    assert open_set_rates(searches, [limit])["tpir_at_fpir"][str(limit)] == pytest.approx(expected)


def test_a_model_that_tells_nobody_apart_finds_nobody() -> None:
    same = np.ones((40, 3), dtype=np.float32)
    mates = np.append(np.arange(20), np.full(20, -1))
    rates = open_set_rates(search(same, same[:20], mates, CosineSimilarity()))
    assert rates["top_1"] == rates["top_5"] == 0.0
    assert set(rates["tpir_at_fpir"].values()) == {0.0}
    joined = search(same, same, np.arange(40), CosineSimilarity(), others_kept=4)
    assert set(pooled_rates(joined)["tpir_at_fpir"].values()) == {0.0}


def images_of(rows: list[tuple[int, int, int]]) -> TemplateImages:
    image, template, medium = np.array(rows).T
    names = [f"{n}.jpg" for n in range(image.max() + 1)]
    ids = np.arange(template.max() + 1)
    return TemplateImages(names, image.astype(np.int32), template, medium, ids, Path("list.txt"))


@laws
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_media_count_alike_however_many_images_they_have(rows: list[tuple[int, int]]) -> None:
    """Also where templates share media, or have one; every template has an image of its own."""
    placed = [(n, t, m) for n, (t, m) in enumerate([*rows, *((t, 9) for t in range(4))])]
    matrix = np.random.default_rng(len(rows)).normal(size=(len(placed), 3)).astype(np.float32)
    embeddings = Embeddings([f"{n}.jpg" for n, _, _ in placed], matrix, Path("e.npz"))
    found = media_template_embeddings(images_of(placed), embeddings)
    for template in range(4):
        parts = [(f"{n}.jpg", m) for n, t, m in placed if t == template]
        expected = reference_template(parts, embeddings)
        np.testing.assert_allclose(found[template], expected, rtol=1e-5, atol=1e-6)
    # A second copy of every image of a medium changes nothing.
    doubled = [*placed, *((n, t, m) for n, t, m in placed if m == 9)]
    np.testing.assert_allclose(
        media_template_embeddings(images_of(doubled), embeddings), found, rtol=1e-5, atol=1e-6
    )


def test_lengths_of_embeddings_are_kept_in_templates() -> None:
    embeddings = Embeddings(["0.jpg", "1.jpg"], np.array([[4, 0], [0, 2]], np.float32), None)
    found = media_template_embeddings(images_of([(0, 0, 1), (1, 0, 2), (1, 1, 2)]), embeddings)
    assert found.tolist() == [[2, 1], [0, 2]]


def test_a_learnable_similarity_can_score(tmp_path: Path) -> None:
    folder, embeddings, _ = made_protocol(tmp_path / "p", 0)
    protocol = read_ijb_protocol(folder)
    learned = evaluate_ijb(protocol, embeddings, GeneralizedInnerProduct(0.3, learnable=True))
    assert learned == evaluate_ijb(protocol, embeddings, GeneralizedInnerProduct(0.3))
    assert torch.is_grad_enabled()


def test_protocols_may_lie_in_meta_and_tasks_may_be_left_out(tmp_path: Path) -> None:
    folder, embeddings, _ = made_protocol(tmp_path / "IJBC" / "meta", 1)
    (folder / "ijbc_1N_gallery_G1.csv").unlink()
    (folder / "ijbc_1N_gallery_G2.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"ijbc_1N_gallery_G1\.csv"):
        read_ijb_protocol(tmp_path / "IJBC")
    protocol = read_ijb_protocol(tmp_path / "IJBC", ["verification"])
    result = evaluate_ijb(protocol, embeddings, CosineSimilarity())
    assert "identification" not in result
    assert "TAR % at FAR 1e-06" in ijb_table(result)


def test_joined_galleries_need_a_mate_for_every_probe(tmp_path: Path) -> None:
    folder, embeddings, _ = made_protocol(tmp_path / "p", 2)
    (folder / "ijbc_1N_gallery_G2.csv").unlink()
    result = evaluate_ijb(read_ijb_protocol(folder), embeddings, CosineSimilarity())
    assert result["identification"]["joined"] is None
    assert (
        result["identification"]["mean"]["top_1"]
        == (result["identification"]["galleries"]["G1"]["top_1"])
    )
    assert "not possible" in ijb_table(result)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("face_tid_mid.txt", "\n", " x\n", "face_tid_mid.txt, line 1: found "),
        ("face_tid_mid.txt", ".jpg ", ".jpg a", "line 1: found "),
        ("template_pair_label.txt", "\n", "\n\n5 x 1\n", "label.txt, line 3: found '5 x 1'"),
        ("template_pair_label.txt", "\n", "\n1 2\n", "label.txt, line 2: found '1 2'"),
        ("template_pair_label.txt", "\n", "\n\n999 998 0\n", "line 3: the template 999 has no im"),
        ("template_pair_label.txt", "\n", "\n1 2 3\n", "label.txt, line 2: found '1 2 3'"),
        ("1N_probe_mixed.csv", "SUBJECT_ID", "SUBJECT", "lacks the columns SUBJECT_ID"),
        ("1N_probe_mixed.csv", "\n", "\nx,5,a\n", "csv, line 2: TEMPLATE_ID is 'x'"),
        ("1N_probe_mixed.csv", "\n", "\n999,5,a\n", "csv, line 2: the template 999 has no image"),
        ("1N_probe_mixed.csv", "\n", "\n7,5,a\n7,6,a\n", "line 3: the template 7 is of subject 6"),
        ("1N_probe_mixed.csv", "\n", "\n7,5\n", "csv, line 2: 2 fields instead of 3"),
    ],
)
def test_what_is_wrong_in_a_protocol_is_named_by_file_and_line(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    folder = made_protocol(tmp_path / "p", 3)[0]
    path = folder / f"ijbc_{file}"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ValueError) as caught:
        read_ijb_protocol(folder)
    assert message in str(caught.value)


def test_a_gallery_has_one_template_of_a_subject(tmp_path: Path) -> None:
    folder, _, told = made_protocol(tmp_path / "p", 3)
    one, two = told["galleries"]["G1"][:2]
    path = folder / "ijbc_1N_gallery_G1.csv"
    path.write_text(f"TEMPLATE_ID,SUBJECT_ID\n{one},4\n{two},4\n")
    with pytest.raises(ValueError, match=r"G1\.csv: subject 4 has 2 templates"):
        read_ijb_protocol(folder)
    path.write_text(f"TEMPLATE_ID,SUBJECT_ID\n{one},9999\n")
    with pytest.raises(ValueError, match=r"G1\.csv: found 0 probes with a mate"):
        evaluate_ijb(
            read_ijb_protocol(folder), made_protocol(tmp_path / "q", 3)[1], CosineSimilarity()
        )


def test_training_may_ask_for_it_from_images(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    from PIL import Image

    folder, embeddings, _ = made_protocol(tmp_path / "p", 0)
    table, files = tmp_path / "ijbc.csv", [f"{name[:-4]}.png" for name in embeddings.ids]
    pixels = np.random.default_rng(0).integers(0, 256, (len(files), 2, 3, 3), dtype=np.uint8)
    for file, one in zip(files, pixels, strict=True):
        Image.fromarray(one).save(tmp_path / file)
    write_image_table(table, embeddings.ids, files, ["unknown"] * len(files))
    evaluation = IJBEvaluation(
        *(folder, table, lambda image, seed: image.float()),
        **{"embeddings_file": tmp_path / "e.npz", "progress": False},
    )
    found = evaluation(lambda inputs: inputs.flatten(1), CosineSimilarity())
    both = (pixels + pixels[:, :, ::-1].astype(np.float32)) / 2  # the image and its mirror image
    matrix = both.transpose(0, 3, 1, 2).reshape(len(files), -1).astype(np.float32)
    same = Embeddings(embeddings.ids, matrix)
    assert found == evaluate_ijb(read_ijb_protocol(folder), same, CosineSimilarity())
    assert np.array_equal(read_embeddings(tmp_path / "e.npz").matrix, matrix)
    write_image_table(table, embeddings.ids[1:], files[1:], ["unknown"] * (len(files) - 1))
    with pytest.raises(ValueError, match=f"1 images .* are not in .*{embeddings.ids[0]}"):
        IJBEvaluation(folder, table, lambda image, seed: image.float(), progress=False)


def test_images_without_an_embedding_are_named(tmp_path: Path) -> None:
    folder, embeddings, _ = made_protocol(tmp_path / "p", 0)
    fewer = Embeddings(embeddings.ids[1:], embeddings.matrix[1:], Path("e.npz"))
    with pytest.raises(ValueError, match=rf"1 of {len(embeddings)} images .*{embeddings.ids[0]}"):
        evaluate_ijb(read_ijb_protocol(folder), fewer, CosineSimilarity())


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    folder, embeddings, _ = made_protocol(tmp_path / "p", 0)
    write_embeddings(tmp_path / "e.npz", embeddings.ids, embeddings.matrix)
    command = [sys.executable, str(ROOT / "recipes/Face/evaluate_ijb.py"), str(tmp_path / "e.npz")]
    run = subprocess.run(
        [*command, str(folder), "--similarity", "cosine", "--json", str(tmp_path / "r.json")],
        **{"capture_output": True, "text": True, "check": True, "cwd": ROOT},
    )
    expected = evaluate_ijb(read_ijb_protocol(folder), embeddings, CosineSimilarity())
    assert json.loads((tmp_path / "r.json").read_text()) == expected
    assert run.stdout.strip() == ijb_table(expected)
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 1
    assert "evaluate_ijb.py: error: no file *_face_tid_mid.txt" in run.stderr
