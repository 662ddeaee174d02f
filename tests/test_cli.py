"""Laws of the command simple-spk: commands agree with each other, and mistakes are named."""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk import __version__
from simple_spk.calibration import Calibration
from simple_spk.cli import COMMANDS, main, parser
from simple_spk.clustering import cluster_figures
from simple_spk.embeddings_file import read_embeddings, write_embeddings
from simple_spk.error_curve import error_rates_at
from simple_spk.extractor import Extractor
from simple_spk.fbank import Fbank
from simple_spk.loss import SimPLELoss
from simple_spk.manifest import write_manifest
from simple_spk.metrics import summary
from simple_spk.model import trained_model
from simple_spk.model_folder import load_model, save_model
from simple_spk.resnet import ResNet
from simple_spk.score_files import SCORE_FORMATS
from simple_spk.score_files import read_scores as read_score_file
from simple_spk.similarity import GeneralizedInnerProduct
from simple_spk.trials import read_trials

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[1]

NAMES = ["a0.wav", "a1.wav", "b0.wav", "b1.wav", "c0.wav", "c1.wav"]
TRIALS = [(x, y, x[0] == y[0]) for x in NAMES for y in NAMES if x < y]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    """A labelled list of all pairs of the recordings in ``audio_folder``."""
    path = tmp_path / "trials.txt"
    path.write_text("".join(f"{int(same)} {x} {y}\n" for x, y, same in TRIALS))
    return path


@pytest.fixture
def unlabelled(tmp_path: Path) -> Path:
    path = tmp_path / "unlabelled.txt"
    path.write_text("".join(f"{x} {y}\n" for x, y, _ in TRIALS))
    return path


def read_scores(path: Path) -> np.ndarray:
    """The third column of a score file, whose names must be those of the list, in its order."""
    fields = [line.split() for line in path.read_text().splitlines()]
    assert [(x, y) for x, y, *_ in fields] == [(x, y) for x, y, _ in TRIALS]
    return np.array([float(field[2]) for field in fields])


# ---- what the commands do -----------------------------------------------------------------------


def test_embed_writes_what_the_library_returns(
    model_folder: Path, audio_folder: Path, recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    output = tmp_path / "e.npz"
    assert run("embed", "--model", model_folder, audio_folder, "-o", output) == 0
    assert "6 embeddings of dimension 16" in capsys.readouterr().out
    found = read_embeddings(output)
    assert found.ids == NAMES
    expected = Extractor.load(model_folder).embed(recordings)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-5)


def test_embed_takes_files_and_folders_within_folders(
    model_folder: Path, recordings: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "speakers" / "x").mkdir(parents=True)
    (tmp_path / "speakers" / "notes.txt").write_text("not audio")
    (tmp_path / "speakers" / "x" / "1.WAV").write_bytes(recordings[1].read_bytes())
    output = tmp_path / "e.npz"
    sources = (recordings[0], tmp_path / "speakers")
    assert run("embed", "--model", model_folder, *sources, "-o", output) == 0
    assert read_embeddings(output).ids == ["a0.wav", "x/1.WAV"]


def test_verify_says_what_the_library_says(
    model_folder: Path, spoken: list[Path], capsys: Capture
) -> None:
    arguments = ("verify", "--model", model_folder, spoken[0], spoken[2])
    expected = Extractor.load(model_folder).verify(spoken[0], spoken[2])
    assert run(*arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    for key in ("score", "threshold", "accepted", "probability", "reason"):
        assert found[key] == pytest.approx(getattr(expected, key)), key
    assert found["qualities"][1][0]["seconds"] == pytest.approx(1.6)
    assert run(*arguments) == 0
    words = capsys.readouterr().out
    assert f"(score {expected.score:.2f})" in words and "own threshold on, a score of 0.5" in words
    assert ("same speaker" in words) == expected.accepted
    assert ("different speakers" in words) == (not expected.accepted)
    assert f"{spoken[2]}: 1.6 s" in words and "careful: little speech" in words


@pytest.fixture
def calibrated_folder(model_folder: Path) -> Path:
    """A model folder whose calibration accepts nearly all pairs, with two measured rates."""
    pairs = ((0.1, 2.0), (0.01, 400.0))
    calibration = Calibration(1.0, 5.0, {"least_length": 0.01}, 0.5, "list", 1000, 10, pairs)
    save_model(model_folder, load_model(model_folder)._replace(calibration=calibration))
    return model_folder


def test_verify_gives_probabilities_and_keeps_a_rate(
    calibrated_folder: Path, spoken: list[Path], recordings: list[Path], capsys: Capture
) -> None:
    arguments = ("verify", "--model", calibrated_folder, spoken[0])
    verdict = Extractor.load(calibrated_folder).verify(*spoken[:2])
    assert verdict.probability is not None
    assert run(*arguments, spoken[1]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"same speaker: probability {100 * verdict.probability:.3g} % (score ")
    assert len(lines) == 2
    assert run(*arguments, spoken[1], "--prior", "1e-9") == 0
    assert "different speakers: probability of the same one" in capsys.readouterr().out
    assert run(*arguments, spoken[1], "--far", "1e-2") == 0
    words = capsys.readouterr().out
    assert "not accepted as the same speaker" in words and "e^400.0 on" in words
    assert run(*arguments, recordings[0]) == 0
    words = capsys.readouterr().out
    assert "not enough evidence: the second recording has 0." in words


def test_voices_are_enrolled_identified_and_forgotten(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    voices, model = tmp_path / "voices", ("--model", calibrated_folder)
    assert run("enroll", voices, "Ann", *spoken[:1], *model) == 0
    assert "Ann: 1 recording, 1.6 s; 1 voice in" in capsys.readouterr().out
    assert run("enroll", voices, "Ann", spoken[1], *model) == 0
    assert run("enroll", voices, "Bob", *spoken[2:4], *model) == 0
    assert "Bob: 2 recordings, 3.5 s; 2 voices in" in capsys.readouterr().out
    assert run("identify", voices, spoken[4], spoken[5], *model, "--json", "--top", 1) == 0
    found = json.loads(capsys.readouterr().out)
    extractor = Extractor.load(calibrated_folder)
    extractor.enroll("Ann", spoken[:2])
    extractor.enroll("Bob", spoken[2:4])
    for one, path in zip(found, spoken[4:], strict=True):
        expected = extractor.identify(path)
        assert one["recording"] == str(path) and one["name"] == expected.name
        (candidate,) = one["candidates"]
        assert candidate["name"] == expected.candidates[0].name
        assert candidate["score"] == pytest.approx(expected.candidates[0].score, rel=1e-3)
    assert run("identify", voices, spoken[4], *model, "--far", "1e-9") == 0
    words = capsys.readouterr().out
    assert (
        f"{spoken[4]}: nobody I know" in words and "for a false-accept rate of 1e-09 / 2" in words
    )
    assert "  Ann: probability" in words and "  Bob: probability" in words
    assert run("enroll", voices, "Ann", "--remove", *model) == 0
    assert "Ann is forgotten; 1 voice in" in capsys.readouterr().out
    for wrong, message in (
        (("enroll", voices, "Ann", "--remove"), "nobody is enrolled as 'Ann'"),
        (("enroll", voices, "Ann"), "give recordings to enrol, or --remove"),
        (("identify", voices, spoken[0], "--top", 0), "at least 1"),
        (("identify", tmp_path / "none", spoken[0]), "no enrolled voices at"),
    ):
        assert run(*wrong, *model) == 1
        assert message in capsys.readouterr().err


def test_scores_are_plain_unless_the_models_own_calibration_is_asked_for(
    calibrated_folder: Path,
    audio_folder: Path,
    trials: Path,
    unlabelled: Path,
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


def test_several_processes_evaluate_as_one_does(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Each embeds a share of the recordings, and one of them reports."""
    arguments = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    outputs = ("--trials", trials, "--replicates", 0, "--json")
    assert run(*arguments, *outputs, "-o", tmp_path / "one.txt") == 0
    expected = capsys.readouterr().out
    # The command, which also says how many recordings each process embeds.
    program = tmp_path / "counting.py"
    program.write_text(
        "import sys\n"
        "from simple_spk import cli, extractor\n"
        "embed = extractor.Extractor.embed_waveforms\n"
        "def counted(self, waveforms, lengths):\n"
        "    print(f'embeds {len(waveforms)}\\n', end='', file=sys.stderr, flush=True)\n"
        "    return embed(self, waveforms, lengths)\n"
        "extractor.Extractor.embed_waveforms = counted\n"
        "sys.exit(cli.main())\n"
    )
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", program)
    kept = ("-o", tmp_path / "two.txt", "--save-embeddings", tmp_path / "kept.npz")
    command = (*torchrun, *arguments, *outputs, *kept)
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("embeds 3\n") == 2
    assert json.loads(done.stdout) == json.loads(expected)
    np.testing.assert_allclose(
        read_scores(tmp_path / "two.txt"), read_scores(tmp_path / "one.txt"), rtol=1e-4
    )
    assert sorted(read_embeddings(tmp_path / "kept.npz").ids) == NAMES


def test_verify_imports_no_more_than_it_needs(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path
) -> None:
    """Who asks about two recordings does not wait for what training and reports need."""
    program = (
        "import sys; from simple_spk.cli import main; main(sys.argv[1:]); "
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    arguments = ["verify", "--model", calibrated_folder, *spoken[:2]]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    modules = done.stdout.splitlines()[-1]
    assert "'torch'" in modules
    for slow in ("scipy", "speechbrain", "matplotlib", "tensorboard", "huggingface_hub", "sklearn"):
        assert f"'{slow}'" not in modules


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


def test_evaluate_finds_recordings_by_manifest_too(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "m.csv"
    rows = [f"{name},{audio_folder / name},1.0,{name[0]}" for name in reversed(NAMES)]
    manifest.write_text("\n".join(["ID,wav,duration,spk_id", *rows, ""]))
    common = ("evaluate", "--model", model_folder, "--trials", trials, "-o")
    assert run(*common, tmp_path / "1.txt", "--manifest", manifest) == 0
    assert run(*common, tmp_path / "2.txt", "--audio-folder", audio_folder) == 0
    first, second = (read_scores(tmp_path / name) for name in ("1.txt", "2.txt"))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_evaluate_tells_how_well_speakers_fall_apart(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The same by list, by manifest and by a file of speakers, as text, JSON and on the page."""
    manifest, utt2spk = tmp_path / "m.csv", tmp_path / "utt2spk"
    rows = [f"{name},{audio_folder / name},1.0,{name[0]}" for name in NAMES]
    manifest.write_text("\n".join(["ID,wav,duration,spk_id", *rows, ""]))
    utt2spk.write_text("".join(f"{name} {name[0]}\n" for name in NAMES))
    common = ("evaluate", "--model", model_folder, "--trials", trials, "--clusters")
    found = []
    for sources in (
        ("--audio-folder", audio_folder),
        ("--manifest", manifest),
        ("--audio-folder", audio_folder, "--speakers", utt2spk),
    ):
        assert run(*common, *sources, "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["clusters"])
    for other in found[1:]:
        assert other["smallest_within_pair"] == found[0]["smallest_within_pair"]
        assert other["gap"] == pytest.approx(found[0]["gap"], rel=1e-3)
    embeddings = tmp_path / "e.npz"
    assert run("embed", "--model", model_folder, audio_folder, "-o", embeddings) == 0
    vectors = read_embeddings(embeddings)
    speakers = np.array([ord(name[0]) for name in vectors.ids])
    model = Extractor.load(model_folder).model
    expected = cluster_figures(
        vectors.ids, vectors.matrix, speakers, model.similarity, model.threshold
    )
    assert found[0]["speakers"] == 3 and found[0]["recordings"] == 6
    for method, cuts in expected["linkage"].items():
        for name, cut in cuts.items():
            assert found[0]["linkage"][method][name] == pytest.approx(cut, rel=1e-3), method
    capsys.readouterr()
    page = tmp_path / "report.html"
    assert run(*common, "--audio-folder", audio_folder, "--report", page) == 0
    said = capsys.readouterr().out
    index = expected["linkage"]["average"]["at_own_threshold"]["adjusted_rand_index"]
    assert f"ARI {index:.4f} with" in said and "at 0.5 (own)" in said
    assert "Speakers as clusters" in page.read_text() and f"{index:.4f}" in page.read_text()


def test_clusters_are_of_recordings_not_of_models(
    model_folder: Path, audio_folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    enrolments, trials = tmp_path / "spk2utt", tmp_path / "t.txt"
    enrolments.write_text(f"model {NAMES[0]} {NAMES[1]}\n")
    trials.write_text(f"1 model {NAMES[1]}\n0 model {NAMES[2]}\n")
    command = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    assert run(*command, "--trials", trials, "--enrolments", enrolments, "--clusters") == 1
    assert "--enrolments" in capsys.readouterr().err


def test_score_with_the_similarity_asked_for(
    model_folder: Path, audio_folder: Path, unlabelled: Path, tmp_path: Path
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
        sources = ("--embeddings", embeddings, "--trials", unlabelled)
        assert run("score", *sources, "-o", output, *options) == 0
        np.testing.assert_allclose(read_scores(output), scores, rtol=1e-4, atol=1e-5)


def test_score_as_a_model_does(trials: Path, tmp_path: Path) -> None:
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
    assert np.array_equal(read_scores(outputs[0]), read_scores(outputs[1]))


def test_a_list_without_labels_gives_scores_and_no_error_rates(
    model_folder: Path, audio_folder: Path, unlabelled: Path, tmp_path: Path, capsys: Capture
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
        output = ("--trials", unlabelled, "-o", scores, "--json", figures)
        assert run(command, *sources, *output) == 0
        said = capsys.readouterr().out
        assert "EER" not in said
        assert "none, so no error rates" in said, command
        assert len(read_scores(scores)) == 15
        found = json.loads(figures.read_text())
        assert (found["list"], found["trials"]) == ("unlabelled.txt", 15)
        assert "eer" not in found


def test_several_lists_are_scored_from_one_extraction(
    model_folder: Path,
    audio_folder: Path,
    trials: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("".join(trials.read_text().splitlines(keepends=True)[:7]))
    embedded = []

    embed = Extractor.embed

    def spy(self, paths, **options):  # type: ignore[no-untyped-def]
        embedded.extend(paths)
        return embed(self, paths, **options)

    monkeypatch.setattr(Extractor, "embed", spy)
    command = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    lists = ("--trials", trials, short)
    kept = tmp_path / "kept.npz"
    outputs = ("-o", tmp_path / "scores", "--json", "--save-embeddings", kept)
    assert run(*command, *lists, *outputs) == 0
    assert sorted(path.name for path in embedded) == NAMES
    figures = json.loads(capsys.readouterr().out)
    assert [one["list"] for one in figures] == ["trials.txt", "short.txt"]
    assert [one["trials"] for one in figures] == [15, 7]
    low, high = figures[0]["intervals"]["eer"]
    assert low <= figures[0]["eer"] <= high
    scores = read_scores(tmp_path / "scores" / "trials.txt")
    assert len((tmp_path / "scores" / "short.txt").read_text().splitlines()) == 7

    # What is kept is used again, what is missing from it is added, and another model is refused.
    found = read_embeddings(kept)
    write_embeddings(kept, found.ids[:4], found.matrix[:4], found.origin)
    embedded.clear()
    assert run(*command, *lists, *outputs) == 0
    assert sorted(path.name for path in embedded) == sorted(set(NAMES) - set(found.ids[:4]))
    np.testing.assert_allclose(read_scores(tmp_path / "scores" / "trials.txt"), scores, rtol=1e-4)
    assert sorted(read_embeddings(kept).ids) == NAMES
    (model_folder / "calibration.json").write_text("beside the model, but no part of it")
    assert run(*command, *lists, *outputs) == 0
    config = model_folder / "config.yaml"
    config.write_text(config.read_text().replace("dither: 1.0", "dither: 2.0"))
    fails_naming(capsys, "kept.npz", *command, *lists, *outputs)
    fails_naming(capsys, "e.ark", *command, *lists, "--save-embeddings", tmp_path / "e.ark")


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
        how = ("--enrolments", tmp_path / "spk2utt", "--template", template)
        output = tmp_path / "s.txt"
        assert run("score", *sources, *how, "--similarity", "cosine", "-o", output) == 0
        pairs = [(mean, "c0.wav"), (table["b0.wav"], "c0.wav"), (mean, "b1.wav")]
        expected = [model @ unit[name] / np.linalg.norm(model) for model, name in pairs]
        written = [float(line.split()[2]) for line in output.read_text().splitlines()]
        np.testing.assert_allclose(written, expected, rtol=1e-5)


def test_scores_are_normalised_by_the_cohort_and_calibrated(trials: Path, tmp_path: Path) -> None:
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
    trials: Path, unlabelled: Path, tmp_path: Path, capsys: Capture
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
    fails_naming(capsys, "without labels", *sources, unlabelled, *figures)


# ---- what they do with mistakes -----------------------------------------------------------------


def fails_naming(capsys: Capture, word: str, *arguments: object) -> None:
    """The command returns 1 and says what is wrong in one short message on stderr."""
    capsys.readouterr()
    assert run(*arguments) == 1
    message = capsys.readouterr().err
    assert "simple-spk: error: " in message
    assert word in message.rsplit("simple-spk: error: ", 1)[1]
    assert "Traceback" not in message


@pytest.fixture
def bad_audio(tmp_path: Path) -> Path:
    """A folder with a recording for each way of being useless."""
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "text.wav").write_text("not audio")
    soundfile.write(folder / "short.wav", np.zeros(300, dtype=np.float32), 16000)
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 20000)
    soundfile.write(folder / "broken.flac", noise, 16000)
    (folder / "broken.flac").write_bytes((folder / "broken.flac").read_bytes()[:5000])
    return folder


@pytest.mark.parametrize("name", ["missing.wav", "text.wav", "broken.flac", "short.wav"])
def test_a_bad_recording_is_named(
    name: str,
    model_folder: Path,
    recordings: list[Path],
    bad_audio: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    sources = ("--model", model_folder, recordings[0], bad_audio / name)
    if name == "short.wav":  # it can be read: that it holds too little is an answer
        assert run("verify", *sources) == 0
        assert "not enough evidence" in (answer := capsys.readouterr().out) and name in answer
    else:
        fails_naming(capsys, name, "verify", *sources)
    assert run("embed", *sources, "-o", tmp_path / "e.npz") == 1
    assert f"not embedded: {name}: " in capsys.readouterr().err
    assert read_embeddings(tmp_path / "e.npz").ids == [recordings[0].name]


def test_a_bad_recording_is_named_as_briefly_by_other_readers(
    model_folder: Path, bad_audio: Path, tmp_path: Path, capsys: Capture
) -> None:
    sources = ("--model", model_folder, bad_audio / "broken.flac", "--workers", 1)
    fails_naming(capsys, "broken.flac", "embed", *sources, "-o", tmp_path / "e.npz")


def test_bad_models_are_named(
    model_folder: Path, recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    fails_naming(capsys, "nowhere", "verify", "--model", tmp_path / "nowhere", *recordings[:2])
    weights = model_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    fails_naming(capsys, weights.name, "verify", "--model", model_folder, *recordings[:2])


def test_bad_trial_lists_are_named(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    where = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder, "--trials")
    fails_naming(capsys, "nothing.txt", *where, tmp_path / "nothing.txt")
    trials.write_text("1 a0.wav a1.wav\n1 a0.wav\n")
    fails_naming(capsys, "trials.txt, line 2", *where, trials)
    trials.write_text("1 a0.wav a1.wav\n0 b0.wav a1.wav\n1 a0.wav a1.wav\n")
    fails_naming(capsys, "trials.txt, lines 1 and 3", *where, trials)
    trials.write_text("1 a0.wav a1.wav\n1 b0.wav b1.wav\n")
    fails_naming(capsys, "2 targets and 0 non-targets", *where, trials)
    trials.write_text("1 a0.wav other.wav\n0 a0.wav b0.wav\n")
    fails_naming(capsys, "other.wav", *where, trials)
    trials.write_text("1 a0.wav a1.wav\n0 a0.wav b0.wav\n")
    fails_naming(capsys, "nowhere", *where, trials, "--audio-folder", tmp_path / "nowhere")


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


def test_recordings_that_would_share_an_id_are_not_mixed_up(
    model_folder: Path, recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "a0.wav").write_bytes(recordings[0].read_bytes())
    sources = ("--model", model_folder, recordings[0], tmp_path / "a0.wav")
    fails_naming(capsys, "one id", "embed", *sources, "-o", tmp_path / "e.npz")


def test_a_folder_without_audio_is_named(
    model_folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "hollow").mkdir()
    sources = ("--model", model_folder, tmp_path / "hollow")
    fails_naming(capsys, "hollow", "embed", *sources, "-o", tmp_path / "e.npz")


def test_an_unknown_device_is_named(
    model_folder: Path, recordings: list[Path], capsys: Capture
) -> None:
    sources = ("--model", model_folder, *recordings[:2])
    fails_naming(capsys, "warp", "verify", *sources, "--device", "warp")


def test_no_command_overwrites_what_it_reads(
    model_folder: Path, recordings: list[Path], trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    vectors = np.random.default_rng(0).normal(size=(len(NAMES), 8)).astype(np.float32)
    write_embeddings(tmp_path / "e.npz", NAMES, vectors)
    other = tmp_path / "other.txt"
    other.write_bytes(trials.read_bytes())
    audio = tmp_path / "a0.wav"
    audio.write_bytes(recordings[0].read_bytes())
    link = tmp_path / "link.txt"
    link.symlink_to(trials)
    scores = tmp_path / "s.txt"
    score = ("score", "--embeddings", tmp_path / "e.npz", "--trials")
    assert run(*score, trials, "-o", scores) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    refused = "name another output"
    for output in (trials, link, tmp_path / "e.npz"):
        fails_naming(capsys, refused, *score, trials, "-o", output)
    fails_naming(capsys, refused, *score, trials, other, "-o", tmp_path)
    fails_naming(capsys, refused, *score, trials, "-o", tmp_path / "x", "--json", tmp_path / "x")
    fails_naming(capsys, refused, "metrics", scores, "--report", scores)
    fails_naming(capsys, refused, "compare", scores, scores, "--json", scores)
    fails_naming(capsys, refused, "calibrate", scores, "-o", scores)
    fails_naming(capsys, refused, "embed", "--model", model_folder, audio, "-o", audio)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_mistakes_are_found_before_long_work(
    model_folder: Path,
    audio_folder: Path,
    trials: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What can be known of outputs and options is checked before anything is embedded."""

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("embedding began")

    monkeypatch.setattr(Extractor, "embed_waveforms", fail)
    command = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    command = (*command, "--trials", trials)
    (tmp_path / "file").write_text("no folder")
    write_embeddings(tmp_path / "c.npz", ["x", "y", "z"], np.eye(3, dtype=np.float32))
    wrong = {
        ("-o", tmp_path): "is a folder",
        ("-o", tmp_path / "file" / "s.txt"): "cannot be written",
        ("--report", "/proc/report.html"): "cannot be written",
        ("--det", tmp_path / "det.xyz"): "ends in .png",
        ("--metadata", tmp_path / "nowhere.csv"): "nowhere.csv",
        ("--speakers", tmp_path / "nobody"): "nobody",
        ("--calibration", tmp_path / "none.json"): "none.json",
        ("--cohort", tmp_path / "c.npz"): "the 3 members of the cohort, not 300",
        ("--cohort-speakers", tmp_path / "utt2spk"): "--cohort",
        ("--priors", 1.5): "target_prior",
        ("--miss-cost", 0): "miss_cost",
        ("--replicates", -5): "replicates",
        ("--seed", -1): "seed",
    }
    for options, word in wrong.items():
        fails_naming(capsys, word, *command, *options)
    embed = ("embed", "--model", model_folder, audio_folder, "-o")
    fails_naming(capsys, "name the .ark", *embed, tmp_path / "e.scp")
    fails_naming(capsys, "cannot be written", *embed, tmp_path / "file" / "e.npz")


def test_options_that_contradict_each_other_are_refused(
    model_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    write_embeddings(tmp_path / "e.npz", NAMES, np.eye(len(NAMES), dtype=np.float32))
    score = ("score", "--embeddings", tmp_path / "e.npz", "--trials", trials)
    fails_naming(capsys, "--model", *score, "--model", model_folder, "--similarity", "cosine")
    fails_naming(capsys, "--model", *score, "--model", model_folder, "--angular-bias", 0.3)
    fails_naming(capsys, "leave it out", *score, "--similarity", "cosine", "--angular-bias", 0.3)


def test_embed_follows_links_but_not_in_a_circle(
    model_folder: Path, recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "1.wav").write_bytes(recordings[0].read_bytes())
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "speaker").symlink_to(tmp_path / "real")
    embed = ("embed", "--model", model_folder, tmp_path / "corpus", "-o", tmp_path / "e.npz")
    assert run(*embed) == 0
    assert read_embeddings(tmp_path / "e.npz").ids == ["speaker/1.wav"]
    (tmp_path / "real" / "again").symlink_to(tmp_path / "corpus")
    fails_naming(capsys, "the same folder", *embed)


# ---- how they are called ------------------------------------------------------------------------


@pytest.mark.parametrize("command", [(), ("embed",), ("verify",), ("score",), ("evaluate",)])
def test_help(command: tuple[str, ...], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run(*command, "--help")
    assert exit_info.value.code == 0
    assert " ".join(["usage: simple-spk", *command]) in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_is_explained(command: str) -> None:
    parsers = [subcommands(parser([command]))[command]]
    parsers += subcommands(parsers[0]).values()
    for one in parsers:
        for action in one._actions:
            kind = isinstance(action, argparse._SubParsersAction)
            assert kind or action.help, f"{one.prog} does not say what {action.dest} is"


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's commands, by their names."""
    found = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


@pytest.mark.parametrize("arguments", [(), ("fly",), ("embed",), ("evaluate", "--model", "m")])
def test_calls_that_are_incomplete_show_the_usage(
    arguments: tuple[str, ...], capsys: Capture
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run(*arguments)
    assert exit_info.value.code == 2
    assert "usage: simple-spk" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """As with: simple-spk metrics scores.txt --json | head -1"""
    scores = tmp_path / "scores.txt"
    scores.write_text("a/1 a/2 0.9 target\na/1 b/1 0.1 nontarget\n")
    arguments = [sys.executable, "-m", "simple_spk.cli", "metrics", str(scores), "--json"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    messages = process.stderr.read().decode()
    assert process.wait() == 141
    assert "Traceback" not in messages and "Broken" not in messages
    process.stderr.close()


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def interrupted(options: object) -> None:
        raise KeyboardInterrupt

    list_options = ("--trials", "x", "--audio-folder", "x")
    calls: dict[tuple[str, ...], bool] = {
        ("metrics", "x"): False,
        ("verify", "a.wav", "b.wav"): False,
        ("evaluate", *list_options): False,
        ("evaluate", *list_options, "--save-embeddings", "x.npz"): True,
        ("embed", "x", "-o", "x.npz"): True,
    }
    for call, goes_on in calls.items():
        monkeypatch.setattr(f"simple_spk.commands.{call[0]}.run", interrupted)
        assert run(*call) == 130
        cure = "; the same command goes on" if goes_on else ""
        assert capsys.readouterr().err.strip() == f"simple-spk: stopped{cure}"
