"""Laws of the command simple-spk: commands agree with each other, and mistakes are named."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk.cli import main
from simple_spk.embeddings_file import read_embeddings, write_embeddings
from simple_spk.extractor import Extractor
from simple_spk.fbank import Fbank
from simple_spk.loss import SimPLELoss
from simple_spk.metrics import summary
from simple_spk.model_folder import save_model
from simple_spk.resnet import ResNet
from simple_spk.similarity import GeneralizedInnerProduct

Capture = pytest.CaptureFixture[str]

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
    assert list(found) == NAMES
    expected = Extractor.load(model_folder).embed(recordings)
    np.testing.assert_allclose(np.stack(list(found.values())), expected, rtol=1e-5)


def test_embed_takes_files_and_folders_within_folders(
    model_folder: Path, recordings: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "speakers" / "x").mkdir(parents=True)
    (tmp_path / "speakers" / "notes.txt").write_text("not audio")
    (tmp_path / "speakers" / "x" / "1.WAV").write_bytes(recordings[1].read_bytes())
    output = tmp_path / "e.npz"
    sources = (recordings[0], tmp_path / "speakers")
    assert run("embed", "--model", model_folder, *sources, "-o", output) == 0
    assert list(read_embeddings(output)) == ["a0.wav", "x/1.WAV"]


def test_verify_says_what_the_library_says(
    model_folder: Path, recordings: list[Path], capsys: Capture
) -> None:
    arguments = ("verify", "--model", model_folder, recordings[0], recordings[2])
    expected = Extractor.load(model_folder).verify(recordings[0], recordings[2])
    assert run(*arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out) == pytest.approx(expected._asdict())
    assert run(*arguments) == 0
    words = capsys.readouterr().out
    assert f"score {expected.score:.3f} (threshold 0.500)" in words
    assert ("same speaker" in words) == expected.accepted
    assert ("different speakers" in words) == (not expected.accepted)


def test_embed_then_score_is_evaluate(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The same scores, the same error rates, by both ways and as the metrics have it."""
    embeddings = tmp_path / "e.npz"
    ways = {name: (tmp_path / f"{name}.txt", tmp_path / f"{name}.json") for name in "se"}
    assert run("embed", "--model", model_folder, audio_folder, "-o", embeddings) == 0
    capsys.readouterr()
    common = ("--trials", trials, "-o")
    assert (
        run("score", "--embeddings", embeddings, *common, ways["s"][0], "--json", ways["s"][1]) == 0
    )
    said = capsys.readouterr().out
    where = ("--model", model_folder, "--audio-folder", audio_folder)
    assert run("evaluate", *where, *common, ways["e"][0], "--json", ways["e"][1]) == 0
    assert capsys.readouterr().out == said
    scores = {name: read_scores(text) for name, (text, _) in ways.items()}
    np.testing.assert_allclose(scores["s"], scores["e"], rtol=1e-4, atol=1e-5)
    expected = summary(scores["e"].astype(np.float32), np.array([same for *_, same in TRIALS]))
    for _, figures in ways.values():
        assert json.loads(figures.read_text())["eer"] == pytest.approx(expected["eer"])
    assert f"15 trials: EER {expected['eer']:.3f} %" in said


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


def test_score_with_the_similarity_asked_for(
    model_folder: Path, audio_folder: Path, unlabelled: Path, tmp_path: Path
) -> None:
    embeddings = tmp_path / "e.npz"
    assert run("embed", "--model", model_folder, audio_folder, "-o", embeddings) == 0
    vectors = read_embeddings(embeddings)
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
    save_model(tmp_path / "own", Fbank(), encoder, SimPLELoss(similarity))
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
        assert "15 trials" in said, command
        assert len(read_scores(scores)) == 15
        assert json.loads(figures.read_text()) == {"trials": 15}


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
    fails_naming(capsys, name, "verify", *sources)
    fails_naming(capsys, name, "embed", *sources, "-o", tmp_path / "e.npz")
    assert not (tmp_path / "e.npz").exists()


def test_a_bad_recording_is_named_as_briefly_by_readers_in_other_processes(
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
    trials.write_text("1 a0.wav other.wav\n")
    fails_naming(capsys, "other.wav", *where, trials)
    trials.write_text("1 a0.wav a1.wav\n")
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


# ---- how they are called ------------------------------------------------------------------------


@pytest.mark.parametrize("command", [(), ("embed",), ("verify",), ("score",), ("evaluate",)])
def test_help(command: tuple[str, ...], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run(*command, "--help")
    assert exit_info.value.code == 0
    assert " ".join(["usage: simple-spk", *command]) in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [(), ("fly",), ("embed",), ("evaluate", "--model", "m")])
def test_calls_that_are_incomplete_show_the_usage(
    arguments: tuple[str, ...], capsys: Capture
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run(*arguments)
    assert exit_info.value.code == 2
    assert "usage: simple-spk" in capsys.readouterr().err
