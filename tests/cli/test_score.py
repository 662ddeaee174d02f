"""Laws of simple-spk score: it agrees with evaluate, and does what the formulas say."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from simple_spk import __version__
from simple_spk.data.manifest import write_manifest
from simple_spk.data.trials import read_trials
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.embedding_files import read_embeddings, write_embeddings
from simple_spk.evaluation.error_rates import error_rates_at
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import SCORE_FORMATS
from simple_spk.evaluation.score_files import read_scores as read_score_file
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.model import embedding_fingerprint, trained_model
from simple_spk.inference.model_folder import load_model, save_model
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import GeneralizedInnerProduct
from tests.command_line import NAMES, TRIALS, Capture, fails_naming, read_scores, run


def test_embed_then_score_is_evaluate(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The same scores, the same error rates, by both ways and as the metrics have it."""
    embeddings = tmp_path / "e.npz"
    ways = {name: (tmp_path / f"{name}.txt", tmp_path / f"{name}.json") for name in "se"}
    assert run("embed", "--model", model_folder, audio_folder, "-o", embeddings) == 0
    capsys.readouterr()
    commands = {
        "s": ("score", "--model", model_folder, "--embeddings", embeddings),
        "e": ("evaluate", "--model", model_folder, "--audio-folder", audio_folder),
    }
    said = {}
    for name, command in commands.items():
        outputs = ("-o", ways[name][0], "--json", ways[name][1], "--replicates", 0)
        assert run(*command, "--trials", trials, *outputs) == 0
        said[name] = capsys.readouterr().out
    assert said["s"] == said["e"]
    scores = {name: read_scores(text) for name, (text, _) in ways.items()}
    np.testing.assert_allclose(scores["s"], scores["e"], rtol=1e-4, atol=1e-5)
    expected = summary(scores["e"].astype(np.float32), np.array([same for *_, same in TRIALS]))
    for _, file in ways.values():
        figures = json.loads(file.read_text())
        for key in ("eer", "cllr", "min_cllr", "min_dcf", "act_dcf", "trials", "targets"):
            assert figures[key] == pytest.approx(expected[key], rel=1e-4), key
        assert figures["list"] == "trials.txt"
        assert figures["list_sha256"] == hashlib.sha256(trials.read_bytes()).hexdigest()
        assert figures["target_share"] == 3 / 15
        assert figures["model"] == str(model_folder)
        assert figures["similarity"] == "generalized inner product, b_theta 0.3"
        assert figures["software"] == f"simple_spk {__version__}"
        own = figures["own_threshold"]
        assert own["threshold"] == 0.5  # minus the bias of the model
        rates = error_rates_at(scores["e"], np.array([same for *_, same in TRIALS]), 0.5)
        assert (own["miss_rate"], own["false_alarm_rate"]) == rates
    assert f"{expected['eer']:.3f} %" in said["s"]


def test_scores_are_plain_unless_the_models_own_calibration_is_asked_for(
    calibrated_folder: Path,
    audio_folder: Path,
    trials: Path,
    unlabeled: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    embeddings, output = tmp_path / "e.npz", tmp_path / "s.txt"
    model = ("--model", calibrated_folder)
    extractor = Extractor.load(calibrated_folder)
    assert run("embed", *model, audio_folder, "-o", embeddings) == 0
    capsys.readouterr()
    pairs = [(audio_folder / x, audio_folder / y) for x, y, _ in TRIALS]
    verdicts = [extractor.verify(*pair) for pair in pairs]
    for command in (
        ("score", "--embeddings", embeddings),
        ("evaluate", "--audio-folder", audio_folder),
    ):
        arguments = (
            *command,
            *model,
            "--trials",
            trials,
            "-o",
            output,
            "--replicates",
            0,
            "--json",
        )
        assert run(*arguments) == 0
        said = capsys.readouterr()
        assert "note: scores are plain similarities; --own-calibration" in said.err
        assert "calibrated" not in json.loads(said.out)["similarity"]
        np.testing.assert_allclose(
            read_scores(output), [verdict.score for verdict in verdicts], rtol=1e-3, atol=1e-3
        )
        assert run(*arguments, "--own-calibration") == 0
        said = capsys.readouterr()
        assert "plain similarities" not in said.err
        assert json.loads(said.out)["similarity"].endswith(", calibrated by the model itself")
        np.testing.assert_allclose(
            read_scores(output),
            [verdict.log_likelihood_ratio for verdict in verdicts],
            rtol=1e-3,
            atol=1e-3,
        )
    own = ("score", "--embeddings", embeddings, "--trials", trials, "--own-calibration")
    fails_naming(capsys, "name the --model", *own)
    fails_naming(capsys, "--cohort changes", *own, *model, "--cohort", embeddings)
    save_model(calibrated_folder, extractor.model._replace(calibration=None))
    fails_naming(capsys, "the model has none", *own, *model)
    assert run(*own[:-1], *model) == 0
    assert "plain similarities" not in capsys.readouterr().err


def test_score_with_the_similarity_asked_for(
    model_folder: Path, audio_folder: Path, unlabeled: Path, tmp_path: Path
) -> None:
    embeddings = tmp_path / "e.npz"
    assert run("embed", "--model", model_folder, audio_folder, "-o", embeddings) == 0
    found = read_embeddings(embeddings)
    vectors = dict(zip(found.ids, found.matrix, strict=True))
    products = np.array([vectors[x] @ vectors[y] for x, y, _ in TRIALS])
    lengths = [np.linalg.norm(vectors[x]) * np.linalg.norm(vectors[y]) for x, y, _ in TRIALS]
    expected = {
        ("--similarity", "cosine"): products / lengths,
        ("--angular-bias", "-0.5"): products + 0.5 * np.array(lengths),
        (): products - 0.3 * np.array(lengths),
    }
    for options, scores in expected.items():
        output = tmp_path / "s.txt"
        sources = ("--embeddings", embeddings, "--trials", unlabeled)
        assert run("score", *sources, "-o", output, *options) == 0
        np.testing.assert_allclose(read_scores(output), scores, rtol=1e-4, atol=1e-5)


def test_score_as_a_model_does(trials: Path, tmp_path: Path, capsys: Capture) -> None:
    """--model brings the model's own similarity, whatever its b_theta."""
    similarity = GeneralizedInnerProduct(0.7)
    encoder = ResNet(width=4, stem_stride=2, embedding_dim=16)
    save_model(tmp_path / "own", trained_model(Fbank(), encoder, SimPLELoss(similarity)))
    vectors = np.random.default_rng(0).normal(size=(len(NAMES), 16)).astype(np.float32)
    write_embeddings(tmp_path / "own.npz", NAMES, vectors)
    sources = ("--trials", trials, "--embeddings", tmp_path / "own.npz")
    outputs = [tmp_path / "model.txt", tmp_path / "option.txt"]
    assert run("score", *sources, "-o", outputs[0], "--model", tmp_path / "own") == 0
    assert run("score", *sources, "-o", outputs[1], "--angular-bias", 0.7) == 0
    # Torch computes the one and numpy the other.
    np.testing.assert_allclose(*map(read_scores, outputs), rtol=1e-6)
    # Embeddings that do not say whose they are may be another model's.
    note = "own.npz: nothing in it says that"
    assert note in capsys.readouterr().err
    origin = embedding_fingerprint(load_model(tmp_path / "own"))
    write_embeddings(tmp_path / "own.npz", NAMES, vectors, origin)
    assert run("score", *sources, "-o", outputs[0], "--model", tmp_path / "own") == 0
    assert note not in capsys.readouterr().err


def test_a_list_without_labels_gives_scores_and_no_error_rates(
    model_folder: Path, audio_folder: Path, unlabeled: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Both commands say so, and write the figures they have where asked."""
    embeddings = tmp_path / "e.npz"
    assert run("embed", "--model", model_folder, audio_folder, "-o", embeddings) == 0
    commands = {
        "evaluate": ("--model", model_folder, "--audio-folder", audio_folder),
        "score": ("--embeddings", embeddings),
    }
    for command, sources in commands.items():
        capsys.readouterr()
        scores, figures = tmp_path / f"{command}.txt", tmp_path / f"{command}.json"
        output = ("--trials", unlabeled, "-o", scores, "--json", figures)
        assert run(command, *sources, *output) == 0
        said = capsys.readouterr().out
        assert "EER" not in said
        assert "none, so no error rates" in said, command
        assert len(read_scores(scores)) == 15
        found = json.loads(figures.read_text())
        assert (found["list"], found["trials"]) == ("unlabeled.txt", 15)
        assert "eer" not in found


def test_templates_are_means_of_the_recordings_enrolled(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(len(NAMES), 8)).astype(np.float32)
    write_embeddings(tmp_path / "e.npz", NAMES, vectors)
    (tmp_path / "spk2utt").write_text("A a0.wav a1.wav\nB b0.wav\n")
    (tmp_path / "models.txt").write_text("1 A c0.wav\n0 B c0.wav\n0 A b1.wav\n")
    table = dict(zip(NAMES, vectors, strict=True))
    unit = {name: vector / np.linalg.norm(vector) for name, vector in table.items()}
    means = {
        "mean": (table["a0.wav"] + table["a1.wav"]) / 2,
        "normalized": (unit["a0.wav"] + unit["a1.wav"]) / 2,
    }
    for template, mean in means.items():
        sources = ("--trials", tmp_path / "models.txt", "--embeddings", tmp_path / "e.npz")
        how = ("--enrollments", tmp_path / "spk2utt", "--template", template)
        output = tmp_path / "s.txt"
        assert run("score", *sources, *how, "--similarity", "cosine", "-o", output) == 0
        pairs = [(mean, "c0.wav"), (table["b0.wav"], "c0.wav"), (mean, "b1.wav")]
        expected = [model @ unit[name] / np.linalg.norm(model) for model, name in pairs]
        written = [float(line.split()[2]) for line in output.read_text().splitlines()]
        np.testing.assert_allclose(written, expected, rtol=1e-5)


def test_scores_are_normalized_by_the_cohort_and_calibrated(trials: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(len(NAMES), 8)).astype(np.float32)
    others = generator.normal(size=(12, 8)).astype(np.float32)
    write_embeddings(tmp_path / "e.npz", NAMES, vectors)
    write_embeddings(tmp_path / "c.npz", [f"c{n}" for n in range(12)], others)
    (tmp_path / "utt2spk").write_text("".join(f"c{n} s{n // 2}\n" for n in range(12)))
    calibration = Calibration(2.0, -1.0, {"least_log_duration": 0.5}, 0.01, "x", 10, 5)
    calibration.save(tmp_path / "calibration.json")
    seconds = 1.0 + np.arange(len(NAMES))
    manifest = tmp_path / "m.csv"
    write_manifest(manifest, NAMES, NAMES, seconds.tolist(), [name[0] for name in NAMES])
    members = (others[0::2] + others[1::2]) / 2
    cohort = ("--cohort", tmp_path / "c.npz", "--cohort-speakers", tmp_path / "utt2spk")
    sources = ("--trials", trials, "--embeddings", tmp_path / "e.npz", "--similarity", "cosine")
    output = tmp_path / "s.txt"
    how = (*cohort, "--top-n", 4, "--calibration", tmp_path / "calibration.json")
    assert run("score", *sources, *how, "--manifest", manifest, "-o", output) == 0

    def cosine(x: np.ndarray, y: np.ndarray) -> float:
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    expected = []
    for x, y, _ in TRIALS:
        sides = [NAMES.index(x), NAMES.index(y)]
        score, parts = cosine(*vectors[sides]), []
        for side in sides:
            top = sorted(cosine(vectors[side], member) for member in members)[-4:]
            parts.append((score - np.mean(top)) / np.std(top))
        expected.append(2.0 * np.mean(parts) - 1.0 + 0.5 * np.log(seconds[sides].min()))
    np.testing.assert_allclose(read_scores(output), expected, rtol=1e-3, atol=1e-4)


def test_scores_are_written_in_the_format_asked_for(trials: Path, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(len(NAMES), 8)).astype(np.float32)
    write_embeddings(tmp_path / "e.safetensors", NAMES, vectors)
    sources = ("--trials", trials, "--embeddings", tmp_path / "e.safetensors")
    found = {}
    for layout in SCORE_FORMATS:
        output = tmp_path / f"{layout}.txt"
        assert run("score", *sources, "-o", output, "--format", layout) == 0
        found[layout] = read_score_file(output, read_trials(trials))[1].tolist()
    assert found["wespeaker"] == found["voxceleb"] == found["voxsrc"]
    assert (tmp_path / "voxceleb.txt").read_text().startswith("1 a0.wav a1.wav ")


def test_reports_are_drawn_where_asked(
    trials: Path, unlabeled: Path, tmp_path: Path, capsys: Capture
) -> None:
    vectors = np.random.default_rng(0).normal(size=(len(NAMES), 8)).astype(np.float32)
    write_embeddings(tmp_path / "e.npz", NAMES, vectors)
    genders = "".join(f"{name},{'m' if name < 'b' else 'f'}\n" for name in NAMES)
    (tmp_path / "meta.csv").write_text(f"ID,gender\n{genders}")
    page, plot = tmp_path / "report.html", tmp_path / "det.png"
    metadata = ("--metadata", tmp_path / "meta.csv")
    figures = ("--report", page, "--det", plot, "--replicates", 50, *metadata)
    sources = ("score", "--embeddings", tmp_path / "e.npz", "--trials")
    assert run(*sources, trials, *figures) == 0
    text = page.read_text(encoding="utf-8")
    assert "trials.txt" in text
    assert "f-f" in text
    assert run(*sources, trials, *metadata, "--json", tmp_path / "f.json") == 0
    found = json.loads((tmp_path / "f.json").read_text())["breakdown"]["columns"][0]
    conditions = {one["label"]: one["trials"] for one in found["conditions"]}
    assert conditions == {"m-m": 1, "f-f": 6, "cross": 8}
    assert plot.read_bytes().startswith(b"\x89PNG")
    fails_naming(capsys, "without labels", *sources, unlabeled, *figures)


def test_bad_embeddings_are_named(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    embeddings, output = tmp_path / "e.npz", tmp_path / "s.txt"
    score = ("score", "--trials", trials, "--embeddings", embeddings, "-o", output)
    fails_naming(capsys, "e.npz", *score)
    source = audio_folder / "a0.wav"
    assert run("embed", "--model", model_folder, source, "-o", embeddings) == 0
    fails_naming(capsys, "5 of 6", *score)
    embeddings.write_bytes(embeddings.read_bytes()[:500])
    fails_naming(capsys, "e.npz", *score)
    assert not output.exists()


def test_options_that_contradict_each_other_are_refused(
    model_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    write_embeddings(tmp_path / "e.npz", NAMES, np.eye(len(NAMES), dtype=np.float32))
    score = ("score", "--embeddings", tmp_path / "e.npz", "--trials", trials)
    fails_naming(capsys, "--model", *score, "--model", model_folder, "--similarity", "cosine")
    fails_naming(capsys, "--model", *score, "--model", model_folder, "--angular-bias", 0.3)
    fails_naming(capsys, "leave it out", *score, "--similarity", "cosine", "--angular-bias", 0.3)
