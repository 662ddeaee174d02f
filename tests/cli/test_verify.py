"""Laws of simple-spk verify: it says what the library says, and starts quickly."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simple_spk.inference.extractor import Extractor
from tests.command_line import Capture, run


def test_verify_says_what_the_library_says(
    model_folder: Path, spoken: list[Path], capsys: Capture
) -> None:
    arguments = ("verify", "--model", model_folder, spoken[0], spoken[2])
    expected = Extractor.load(model_folder).verify(spoken[0], spoken[2])
    code = 0 if expected.accepted else 3
    assert run(*arguments, "--json") == code
    found = json.loads(capsys.readouterr().out)
    for key in ("score", "threshold", "accepted", "probability", "reason"):
        assert found[key] == pytest.approx(getattr(expected, key)), key
    assert found["qualities"][1][0]["seconds"] == pytest.approx(1.6)
    assert run(*arguments) == code
    words = capsys.readouterr().out
    assert f"(score {expected.score:.2f})" in words and "own threshold on, a score of 0.5" in words
    assert ("same speaker" in words) == expected.accepted
    assert ("different speakers" in words) == (not expected.accepted)
    assert f"{spoken[2]}: 1.6 s" in words and "careful: little speech" in words


def test_verify_refuses_recordings_beyond_a_limit(
    model_folder: Path, spoken: list[Path], capsys: Capture
) -> None:
    arguments = ("verify", "--model", model_folder, spoken[0], spoken[2], "--longest-seconds")
    assert run(*arguments, "1.5") == 1
    assert "longer than the limit of 1.5 s" in capsys.readouterr().err
    assert run(*arguments, "5") == 0


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
    assert run(*arguments, spoken[1], "--prior", "1e-9") == 3
    assert "different speakers: probability of the same one" in capsys.readouterr().out
    assert run(*arguments, spoken[1], "--far", "1e-2") == 3
    words = capsys.readouterr().out
    assert "not accepted as the same speaker" in words and "ratio of 5.2e+173 on" in words
    assert run(*arguments, recordings[0]) == 4
    words = capsys.readouterr().out
    assert "not enough evidence: the second recording has 0." in words


def test_a_rate_comes_with_the_misses_to_expect(
    spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    """Of the built-in model."""
    run("verify", *spoken[:2], "--far", "1e-3")
    assert re.search(r"\n  at this setting .* genuine pairs? (is|are) rejected\n", output(capsys))
    assert run("enroll", tmp_path / "voices", "Ann", spoken[0]) == 0
    run("identify", tmp_path / "voices", spoken[1], "--far", "1e-3")
    assert re.search(
        r"\n  at this setting .* genuine recordings? (is|are) rejected\n", output(capsys)
    )
    run("verify", *spoken[:2])
    assert "at this setting" not in output(capsys)


def output(capsys: Capture) -> str:
    """What was printed since the last call."""
    return capsys.readouterr().out


def test_verify_compares_several_recordings_and_goes_on_without_a_bad_one(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    arguments = ("verify", "--model", calibrated_folder, "--json")
    extractor = Extractor.load(calibrated_folder)
    expected = extractor.verify(spoken[:2], spoken[2:4])
    sides = (*spoken[:2], "--against", *spoken[2:4])
    assert run(*arguments, *sides) == (0 if expected.accepted else 3)
    found = json.loads(capsys.readouterr().out)
    assert found["score"] == pytest.approx(expected.score, rel=1e-4)
    assert [len(side) for side in found["qualities"]] == [2, 2]
    missing = tmp_path / "missing.wav"
    assert run(*arguments[:-1], missing, *sides) == 1
    words = capsys.readouterr()
    assert "left out: " in words.err and "missing.wav" in words.err
    assert f"(score {expected.score:.2f}" in words.out
    assert all(f"{path}: 1." in words.out for path in spoken[:4])
    for wrong in (spoken[:1], spoken[:3]):
        with pytest.raises(SystemExit) as exit_info:
            run(*arguments, *wrong)
        assert exit_info.value.code == 2
        assert "--against" in capsys.readouterr().err


def test_verify_imports_no_more_than_it_needs(
    calibrated_folder: Path, spoken: list[Path], tmp_path: Path
) -> None:
    """Who asks about two recordings does not wait for what training and reports need."""
    program = (
        "import sys; from simple_spk.cli.main import main; main(sys.argv[1:]); "
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    arguments = ["verify", "--model", calibrated_folder, *spoken[:2]]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    modules = done.stdout.splitlines()[-1]
    assert "'torch'" in modules
    for slow in ("scipy", "speechbrain", "matplotlib", "tensorboard", "huggingface_hub", "sklearn"):
        assert f"'{slow}'" not in modules
