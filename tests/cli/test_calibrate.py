"""simple-spk calibrate: what it says of lists that teach too little."""

from pathlib import Path

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
