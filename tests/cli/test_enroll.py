"""Laws of simple-spk enroll and identify: they say what the library says."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk.inference.extractor import Extractor
from simple_spk.inference.voice_stores.addresses import open_voices
from tests.command_line import Capture, run


def test_voices_are_enrolled_identified_and_removed(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    voices, model = tmp_path / "voices", ("--model", calibrated_folder)
    assert run("enroll", voices, "Ann", *spoken[:1], *model) == 0
    assert "Ann: 1 recording, 1.6 s; 1 voice in" in capsys.readouterr().out
    assert run("enroll", voices, "Ann", spoken[1], *model) == 0
    assert run("enroll", voices, "Bob", *spoken[2:4], *model) == 0
    assert "Bob: 2 recordings, 3.5 s; 2 voices in" in capsys.readouterr().out
    code = run("identify", voices, spoken[4], spoken[5], *model, "--json", "--top", 1)
    found = json.loads(capsys.readouterr().out)
    extractor = Extractor.load(calibrated_folder)
    extractor.enroll("Ann", spoken[:2])
    extractor.enroll("Bob", spoken[2:4])
    codes = {None: 4, False: 3, True: 0}
    assert code == max(codes[one["accepted"]] for one in found)
    for one, path in zip(found, spoken[4:], strict=True):
        expected = extractor.identify(path)
        assert one["recording"] == str(path) and one["name"] == expected.name
        (candidate,) = one["candidates"]
        assert candidate["name"] == expected.candidates[0].name
        assert candidate["score"] == pytest.approx(expected.candidates[0].score, rel=1e-3)
        rule = "accepted from a probability of 0.5 on (prior 0.5), which "
        assert one["accepted"] is None or one["reason"].startswith(rule)
        assert one["accepted"] is None or "with one of 2 voices" in one["reason"]
    assert run("identify", voices, spoken[4], *model, "--far", "1e-9") == 3
    words = capsys.readouterr().out
    assert f"{spoken[4]}: no enrolled speaker" in words
    assert "for a false-accept rate of 1e-09 / 2" in words
    assert "(extrapolated: the calibration list is too short" in words
    assert "  Ann: probability" in words and "  Bob: probability" in words
    assert run("identify", voices, spoken[4], *model, "--far", "1e-9", "--json") == 3
    (answer,) = json.loads(capsys.readouterr().out)
    assert "of 1e-09 / 2 (extrapolated: " in answer["reason"]
    assert run("enroll", voices, "Ann", "--remove", *model) == 0
    assert "Ann removed; 1 voice in" in capsys.readouterr().out
    for wrong, message in (
        (("enroll", voices, "Ann", "--remove"), "nobody is enrolled as 'Ann'"),
        (("enroll", voices, "Ann"), "give recordings to enroll after the name"),
        (("identify", voices, spoken[0], "--top", 0), "at least 1"),
        (("identify", tmp_path / "none", spoken[0]), "no enrolled voices at"),
    ):
        assert run(*wrong, *model) == 1
        assert message in capsys.readouterr().err


def test_a_bad_path_does_not_lose_the_others(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    voices, model = tmp_path / "voices", ("--model", calibrated_folder)
    missing = tmp_path / "missing.wav"
    assert run("enroll", voices, "Ann", spoken[0], missing, *model) == 1
    words = capsys.readouterr()
    assert "left out: " in words.err and "missing.wav" in words.err
    assert "Ann: 1 recording, 1.6 s; 1 voice in" in words.out
    assert run("enroll", voices, "Bob", missing, *model) == 1
    assert "missing.wav" in capsys.readouterr().err
    batch = ("identify", voices, missing, spoken[0], *model)
    assert run(*batch) == 1
    words = capsys.readouterr()
    assert "missing.wav" in words.err and f"{spoken[0]}: Ann" in words.out
    assert run(*batch, "--json") == 1
    bad, good = json.loads(capsys.readouterr().out)
    assert "missing.wav" in bad["error"] and good["name"] == "Ann"


def test_voices_are_listed_renamed_and_removed_without_their_model(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    voices, model = tmp_path / "voices", ("--model", calibrated_folder)
    for name, path in zip(("Ann", "Bob", "Cid"), spoken[::2], strict=True):
        assert run("enroll", voices, name, path, *model) == 0
    fingerprint = open_voices(voices).fingerprint
    assert fingerprint == Extractor.load(calibrated_folder).fingerprint
    capsys.readouterr()
    assert run("voices", "rename", voices, "Bob", "Zoë") == 0
    assert run("voices", "list", voices) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = [
        "Bob is now Zoë",
        *(f"{name}: 1 recording, 1.6 s" for name in ("Ann", "Zoë", "Cid")),
    ]
    assert lines == expected
    assert run("voices", "remove", voices, "Ann", "Cid") == 0
    assert "Ann, Cid removed; 1 voice in" in capsys.readouterr().out
    assert run("voices", "list", voices, "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["name"], one["recordings"]) == ("Zoë", 1)
    assert open_voices(voices).fingerprint == fingerprint
    before = voices.read_bytes()
    for wrong, message in (
        (("remove", voices, "Zoë", "Ann"), "nobody is enrolled as 'Ann'"),
        (("rename", voices, "Ann", "Eve"), "nobody is enrolled as 'Ann'"),
        (("list", tmp_path / "none"), "no enrolled voices at"),
        (("remove", tmp_path / "none", "Ann"), "no enrolled voices at"),
        (("copy", voices, f"faiss:{voices}"), "is an input"),
    ):
        assert run("voices", *wrong) == 1
        assert message in capsys.readouterr().err
    assert voices.read_bytes() == before


def test_what_is_odd_about_a_recording_is_said(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    voices, model = tmp_path / "voices", ("--model", calibrated_folder)
    samples, rate = soundfile.read(spoken[1])
    wrong, low, opposite, clipped, text = (
        tmp_path / name for name in ("a.mp3", "b.wav", "c.wav", "d.wav", "e.wav")
    )
    soundfile.write(wrong, samples, rate, format="WAV")
    soundfile.write(low, samples[::2], 8000)
    soundfile.write(opposite, np.stack([samples, -0.9 * samples], axis=1), rate)
    soundfile.write(clipped, np.clip(samples, -0.2, 0.2), rate)
    text.write_text("not a recording")
    assert run("enroll", voices, "Bob", spoken[2], *model) == 0
    for path, words in (
        (wrong, "wrong extension: WAV named .mp3"),
        (low, "telephone band (a file of 8 kHz)"),
        (opposite, "channels of opposite phase, which cancel each other"),
        (clipped, "clipped"),
    ):
        run("verify", spoken[0], path, *model)
        run("identify", voices, path, *model)
        answers = capsys.readouterr().out
        assert answers.count(words) == 2
        assert ("  careful: one side has the band of a telephone" in answers) == (path == low)
        run("verify", spoken[0], path, *model, "--json")
        (first,), (second,) = json.loads(capsys.readouterr().out)["qualities"]
        assert words in second["warnings"] and words not in first["warnings"]
        assert run("enroll", voices, "Ann", path, *model, "--force") == 0
        (line, _) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"  {path}: ") and words in line
    for command in (("verify", spoken[0]), ("identify", voices), ("enroll", voices, "Ann")):
        assert run(*command, text, *model) == 1
        assert f"{text} holds text, not audio" in capsys.readouterr().err


def test_enrolling_a_doubtful_recording_takes_force(
    model_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    voices, model = tmp_path / "voices", ("--model", model_folder)
    enroll = ("enroll", voices, "Ann", spoken[0], spoken[0], *model)
    assert run(*enroll) == 1
    assert f"{spoken[0]} and {spoken[0]} are the same recording" in capsys.readouterr().err
    assert not voices.exists()
    assert run(*enroll, "--force") == 0
    assert run("enroll", voices, "Bob", spoken[0], *model) == 1
    assert "sounds like Ann, who is enrolled" in capsys.readouterr().err
    assert list(open_voices(voices)) == ["Ann"]
