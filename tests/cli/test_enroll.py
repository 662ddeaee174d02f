"""Laws of simple-spk enroll and identify: they say what the library says."""

import json
from pathlib import Path

import pytest

from simple_spk.inference.extractor import Extractor
from tests.command_line import Capture, run


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
        (("enroll", voices, "Ann"), "give recordings to enroll, or --remove"),
        (("identify", voices, spoken[0], "--top", 0), "at least 1"),
        (("identify", tmp_path / "none", spoken[0]), "no enrolled voices at"),
    ):
        assert run(*wrong, *model) == 1
        assert message in capsys.readouterr().err
