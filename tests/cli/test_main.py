"""Laws of the command simple-spk: how it is called, and that mistakes are named."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import simple_spk
from simple_spk.cli.main import COMMANDS, parser
from simple_spk.evaluation.embedding_files import read_embeddings, write_embeddings
from tests.command_line import NAMES, Capture, fails_naming, run


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
        assert run("verify", *sources) == 4
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


# ---- how commands are called --------------------------------------------------------------------


@pytest.mark.parametrize("command", [(), ("embed",), ("verify",), ("score",), ("evaluate",)])
def test_help(command: tuple[str, ...], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run(*command, "--help")
    assert exit_info.value.code == 0
    assert " ".join(["usage: simple-spk", *command]) in capsys.readouterr().out


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run("--version")
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"simple-spk {simple_spk.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_is_explained_with_its_real_default(command: str) -> None:
    parsers = [subcommands(parser([command]))[command]]
    parsers += subcommands(parsers[0]).values()
    for one in parsers:
        for action in one._actions:
            kind = isinstance(action, argparse._SubParsersAction)
            assert kind or action.help, f"{one.prog} does not say what {action.dest} is"
            stated = re.search(r"default ([\d.]+)", action.help or "")
            if stated and isinstance(action.default, int | float):
                assert float(stated[1]) == action.default, f"{one.prog}, {action.dest}"


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
    arguments = [sys.executable, "-m", "simple_spk.cli.main", "metrics", str(scores), "--json"]
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
        monkeypatch.setattr(f"simple_spk.cli.commands.{call[0]}.run", interrupted)
        assert run(*call) == 130
        cure = "; the same command goes on" if goes_on else ""
        assert capsys.readouterr().err.strip() == f"simple-spk: stopped{cure}"
