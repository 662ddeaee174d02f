"""simple-spk calibrate: what it says of lists that teach too little."""

from pathlib import Path

import numpy as np

from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.embedding_files import write_embeddings
from simple_spk.evaluation.quality_measures import pack_background
from tests.command_line import Capture, run


def test_how_sure_to_be_is_a_guess_where_a_list_has_no_mistake(
    tmp_path: Path, capsys: Capture
) -> None:
    def said_of(scores: list[tuple[float, int]]) -> str:
        lines = [f"{label} a{row} b{row} {score}" for row, (score, label) in enumerate(scores)]
        trials, file = tmp_path / "trials.txt", tmp_path / "scores.txt"
        trials.write_text("".join(f"{line.rsplit(' ', 1)[0]}\n" for line in lines))
        file.write_text("".join(f"{line.split(' ', 1)[1]}\n" for line in lines))
        output = tmp_path / "calibration.json"
        assert run("calibrate", file, "--trials", trials, "-o", output) == 0
        return capsys.readouterr().err

    separate = [(-1.0, 0), (0.0, 0), (1.0, 1), (2.0, 1)]
    assert "the scale is guessed" in said_of(separate)
    assert "the scale is guessed" not in said_of([*separate, (1.5, 0)])


def test_a_background_is_stored_with_the_calibration(tmp_path: Path, capsys: Capture) -> None:
    random = np.random.default_rng(0)
    ids = [f"r{row}" for row in range(20)]
    matrix = random.normal(size=(20, 4)).astype(np.float32)
    write_embeddings(tmp_path / "embeddings.npz", ids, matrix)
    write_embeddings(tmp_path / "background.npz", ids[:5], matrix[:5])
    pairs = [(a, b, int(a % 3 == b % 3)) for a in range(20) for b in range(a)]
    trials, scores = tmp_path / "trials.txt", tmp_path / "scores.txt"
    trials.write_text("".join(f"{label} r{a} r{b}\n" for a, b, label in pairs))
    scores.write_text(
        "".join(f"r{a} r{b} {label + random.normal():.4f}\n" for a, b, label in pairs)
    )
    output = tmp_path / "calibration.json"
    command = ("calibrate", scores, "--trials", trials, "-o", output)
    background = ("--background", tmp_path / "background.npz")
    assert run(*command, *background) == 1
    assert "give the --embeddings" in capsys.readouterr().err
    assert run(*command, "--embeddings", tmp_path / "embeddings.npz", *background) == 0
    found = Calibration.load(output)
    assert found.background == pack_background(matrix[:5])
    assert {"least_typicality", "greatest_typicality"} <= set(found.quality_weights)
