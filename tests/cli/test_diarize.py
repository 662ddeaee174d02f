"""Laws of simple-spk diarize and cluster: they say and write what the library finds."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk.inference.diarization.conversation import read_conversation
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.model_folder import load_model, save_model
from tests.command_line import Capture, fails_naming, run


@pytest.fixture
def meeting(spoken: list[Path], tmp_path: Path) -> Path:
    """A recording of three voices, one after the other, with pauses."""
    parts = []
    for path in spoken:
        parts += [soundfile.read(path, dtype="float32")[0], np.zeros(8000, np.float32)]
    path = tmp_path / "the meeting.wav"
    soundfile.write(path, np.concatenate(parts), 16000)
    return path


def test_diarize_writes_what_the_library_finds(
    calibrated_folder: Path, meeting: Path, tmp_path: Path, capsys: Capture
) -> None:
    expected = Extractor.load(calibrated_folder).diarize(meeting, speakers=3)
    files = [tmp_path / name for name in ("found.rttm", "found.json", "found.html")]
    outputs = ("--rttm", files[0], "--json", files[1], "--page", files[2])
    arguments = ("diarize", meeting, "--model", calibrated_folder, "--speakers", "3")
    assert run(*arguments, *outputs) == 0
    words = capsys.readouterr().out
    assert "overlap not handled" in words and " - " not in words
    assert files[0].read_text() == expected.rttm()
    found = read_conversation(files[1])
    assert list(found) == list(expected) and found.recording == str(meeting)
    page = files[2].read_text()
    assert 'src="the%20meeting.wav"' in page and page.count("<rect ") == len(expected)
    assert run(*arguments) == 0
    words = capsys.readouterr().out
    assert words.count(" - ") == len(expected) and "0:00:0" in words
    assert run(*arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out) == expected.plain()


def test_a_speaker_is_enrolled_from_the_result(
    calibrated_folder: Path, meeting: Path, tmp_path: Path, capsys: Capture
) -> None:
    model = ("--model", calibrated_folder)
    result, voices = tmp_path / "found.json", tmp_path / "voices.safetensors"
    assert run("diarize", meeting, *model, "--speakers", "2", "--json", result) == 0
    found = read_conversation(result)
    assert run("enroll", voices, "Ann", "--diarized", result, "SPEAKER_01", *model) == 0
    words = capsys.readouterr().out
    assert f"Ann: 1 recording, {found.talk_seconds()['SPEAKER_01']:.1f} s" in words
    named = ("diarize", meeting, *model, "--speakers", "2", "--voices", voices)
    assert run(*named) == 0
    assert "Ann: " in capsys.readouterr().out
    assert run(*named, "--prior", "1e-300") == 0
    assert "Ann" not in capsys.readouterr().out
    fails_naming(
        capsys, "known: SPEAKER_01", "enroll", voices, "Eve", "--diarized", result, "Eve", *model
    )
    wrong = ("enroll", voices, "Eve", meeting, "--diarized", result, "SPEAKER_01", *model)
    fails_naming(capsys, "or only --remove or --diarized", *wrong)


def test_cluster_writes_table_links_and_page(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    folder = spoken[0].parent
    bad = tmp_path / "silent.wav"
    soundfile.write(bad, np.zeros(32000), 16000)
    table, links, page = tmp_path / "found.csv", tmp_path / "links", tmp_path / "found.html"
    arguments = ("cluster", folder, bad, "--model", calibrated_folder, "--speakers", "2")
    assert run(*arguments, "-o", table, "--links", links, "--page", page) == 1
    words = capsys.readouterr()
    assert "6 recordings of 2 speakers" in words.out and "left out: silent.wav" in words.err
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["recording"] for row in rows} == {path.name for path in spoken}
    assert {row["speaker"] for row in rows} == {"SPEAKER_01", "SPEAKER_02"}
    for row in rows:
        link = links / row["speaker"] / row["recording"]
        assert link.is_symlink() and link.samefile(folder / row["recording"])
        assert (float(row["evidence"]) < np.log(2.0)) == (row["doubtful"] == "1")
    assert len(list(links.rglob("*.wav"))) == 6
    text = page.read_text()
    assert all(path.name in text for path in spoken) and "SPEAKER_02" in text
    fails_naming(capsys, "is not empty", *arguments, "--links", links)
    fails_naming(capsys, "cannot be of 9 speakers", *arguments[:-1], "9")
    fails_naming(capsys, "none of 1 recordings", "cluster", bad, "--model", calibrated_folder)


def test_voices_of_diarize_may_be_on_a_server(
    calibrated_folder: Path, meeting: Path, capsys: Capture
) -> None:
    """The address arrives as it was written, not as a path."""
    pytest.importorskip("qdrant_client")
    address = "qdrant:http://127.0.0.1:9/people"
    assert run("diarize", meeting, "--model", calibrated_folder, "--voices", address) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err


def test_what_cannot_be_diarized_or_sorted_is_named(
    calibrated_folder: Path, spoken: list[Path], meeting: Path, tmp_path: Path, capsys: Capture
) -> None:
    text, silent, empty = tmp_path / "text.wav", tmp_path / "silent.wav", tmp_path / "empty"
    text.write_text("words " * 99)
    soundfile.write(silent, np.zeros(32000), 16000)
    empty.mkdir()
    for message, *arguments in (
        ("no audio file at", "diarize", tmp_path / "none.wav"),
        ("holds text, not audio", "diarize", text),
        ("silent.wav has no speech", "diarize", silent),
        ("empty is a folder: name a file in it", "diarize", empty),
        ("at least one speaker, not 0", "diarize", spoken[0], "--speakers", "0"),
        ("500 speakers apart", "diarize", meeting, "--speakers", "500"),
        ("is an input", "diarize", meeting, "--rttm", meeting),
        ("is a recording, and would be", "diarize", meeting, "--page", silent),
        ("longer than the limit", "diarize", meeting, "--longest-seconds", "2"),
        ("at least 3 and at most 2", "diarize", spoken[0], "--min", "3", "--max", "2"),
        ("strictly between 0 and 1, not 1", "diarize", spoken[0], "--same-prior", "1"),
        ("add --voices", "diarize", spoken[0], "--far", "0.01"),
        ("no enrolled voices at", "diarize", spoken[0], "--voices", tmp_path / "none.db"),
        ("(is not a safetensors file", "diarize", spoken[0], "--voices", text),
        ("no audio files below this folder", "cluster", empty),
        ("holds text, not audio", "cluster", text),
        ("1 recordings cannot be of 2", "cluster", spoken[0], "--speakers", "2"),
        ("strictly between 0 and 1, not 2", "cluster", spoken[0], "--same-prior", "2"),
    ):
        fails_naming(capsys, message, *arguments, "--model", calibrated_folder)
    assert run("cluster", spoken[0], "--model", calibrated_folder) == 0
    assert "1 recording of 1 speaker; 0 doubtful" in capsys.readouterr().out


def test_recordings_are_sorted_with_a_prior_that_only_a_calibration_needs(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path
) -> None:
    """The default is the stated prior, not an even one; a model without calibration needs none."""

    def evidence(*options: object) -> list[float]:
        table = tmp_path / "sorted.csv"
        assert run("cluster", *spoken, "--model", calibrated_folder, "-o", table, *options) == 0
        with table.open(newline="") as file:
            return [float(row["evidence"]) for row in csv.DictReader(file)]

    assert evidence() == evidence("--same-prior", "0.1") != evidence("--same-prior", "0.5")
    save_model(tmp_path / "plain", load_model(calibrated_folder)._replace(calibration=None))
    assert run("cluster", *spoken, "--model", tmp_path / "plain") == 0
