"""Laws of the command metrics: any toolkit's scores, the same figures, and a quick start."""

import json
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simple_spk.cli.commands import metrics as command
from simple_spk.data.trials import Trials, read_trials
from simple_spk.evaluation.bootstrap import MetricOptions, intervals
from simple_spk.evaluation.error_rates import error_rates_at
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import SCORE_FORMATS, write_scores

Capture = pytest.CaptureFixture[str]


def run(*arguments: object) -> None:
    parser = ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def listed(tmp_path: Path) -> Trials:
    """All pairs of three recordings of five speakers each, as a list in a file."""
    names = [f"s{speaker}/{take}.wav" for speaker in range(5) for take in range(3)]
    pairs = [(x, y) for x in names for y in names if x < y]
    lines = (f"{int(x[:2] == y[:2])} {x} {y}\n" for x, y in pairs)
    (tmp_path / "list.txt").write_text("".join(lines))
    return read_trials(tmp_path / "list.txt")


@pytest.fixture
def scores(listed: Trials) -> np.ndarray:
    assert listed.is_target is not None
    return np.random.default_rng(0).normal(size=len(listed)) + 1.5 * listed.is_target


@pytest.mark.parametrize("name", ["metrics", "compare", "score"])
def test_torch_is_not_needed(name: str, listed: Trials, scores: np.ndarray, tmp_path: Path) -> None:
    """Neither to start the command nor while it runs."""
    write_scores(tmp_path / "s.txt", listed, scores)
    files = [str(tmp_path / "s.txt")] * (2 if name == "compare" else 1)
    if name == "score":
        table = np.random.default_rng(0).normal(size=(len(listed.ids), 8)).astype(np.float32)
        np.savez(tmp_path / "e.npz", ids=listed.ids, embeddings=table)
        files = ["--embeddings", str(tmp_path / "e.npz"), "--trials", str(listed.path)]
        files += ["--cohort", str(tmp_path / "e.npz"), "--top-n", "5", "--similarity", "cosine"]
    code = (
        "import sys; from simple_spk.cli.main import main; "
        "sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    )
    arguments = [name, *files, "--replicates", "20", "--json"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("layout", SCORE_FORMATS)
@pytest.mark.parametrize("with_list", [True, False])
def test_figures_are_those_of_the_library(
    layout: str,
    with_list: bool,
    listed: Trials,
    scores: np.ndarray,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    path = tmp_path / "scores.txt"
    write_scores(path, listed, scores, layout)
    more = ("--trials", listed.path) if with_list else ()
    if layout == "voxsrc" and not with_list:
        with pytest.raises(ValueError, match=r"scores\.txt has no labels: give a list with labels"):
            run(path)
        return
    options = ("--priors", 0.02, "--miss-cost", 10, "--replicates", 60, "--seed", 3)
    run(path, *more, *options, "--threshold", 0.5, "--json")
    found = json.loads(capsys.readouterr().out)
    assert listed.is_target is not None
    costs = {"priors": (0.02,), "miss_cost": 10.0}
    for key, value in summary(scores, listed.is_target, **costs).items():
        assert found[key] == pytest.approx(value), key
    speakers = np.array([int(name[1]) for name in listed.ids])
    sides = (speakers[listed.enroll], speakers[listed.test])
    expected = intervals(
        scores, listed.is_target, *sides, MetricOptions(replicates=60, seed=3, **costs)
    )
    assert found["intervals"] == expected
    rates = error_rates_at(scores, listed.is_target, 0.5)
    own = found["own_threshold"]
    assert (own["miss_rate"], own["false_alarm_rate"]) == pytest.approx(rates)
    assert (found["priors"], found["miss_cost"]) == ([0.02], 10.0)


def test_the_table_says_what_the_file_says(
    listed: Trials, scores: np.ndarray, tmp_path: Path, capsys: Capture
) -> None:
    write_scores(tmp_path / "s.txt", listed, scores)
    run(tmp_path / "s.txt", "--replicates", 20, "--json", tmp_path / "f.json")
    table, figures = capsys.readouterr().out, json.loads((tmp_path / "f.json").read_text())
    low, high = figures["intervals"]["eer"]
    assert f"{figures['eer']:.3f} % [{low:.3f}, {high:.3f}]" in table
    assert f"minDCF(0.05)   {figures['min_dcf']['0.05']:.4f} [" in table
    assert "targets        14.3 %" in table
    run(tmp_path / "s.txt", "--replicates", 0)
    assert "[" not in capsys.readouterr().out


def test_speakers_may_be_given(
    listed: Trials, scores: np.ndarray, tmp_path: Path, capsys: Capture
) -> None:
    """Speakers that contradict the labels leave error rates, and a note instead of intervals."""
    write_scores(tmp_path / "s.txt", listed, scores)
    arguments = (tmp_path / "s.txt", "--replicates", 20, "--json", "--speakers")
    for spelling, is_right in (("{} {}\n", True), ("{} one\n", False)):
        speakers = tmp_path / "utt2spk"
        speakers.write_text("".join(spelling.format(name, name[:2]) for name in listed.ids))
        run(*arguments, speakers)
        said = capsys.readouterr()
        figures = json.loads(said.out)
        assert (figures["intervals"] is not None) == is_right
        assert ("note on s.txt" in said.err) == (not is_right)
        assert "eer" in figures


def test_score_files_of_one_list_have_one_fingerprint(
    listed: Trials, scores: np.ndarray, tmp_path: Path, capsys: Capture
) -> None:
    """A report names its list by hash, also if only score files of it are there."""
    assert listed.path is not None
    found = set()
    for layout, more in (
        ("wespeaker", ()),
        ("voxceleb", ()),
        ("voxsrc", ("--trials", listed.path)),
    ):
        write_scores(tmp_path / layout, listed, scores, layout)
        run(tmp_path / layout, *more, "--replicates", 0, "--json")
        found.add(json.loads(capsys.readouterr().out)["list_fingerprint"])
    assert len(found) == 1 and None not in found
    is_target = ~np.asarray(listed.is_target)
    write_scores(tmp_path / "swapped", replace(listed, is_target=is_target), scores)
    run(tmp_path / "swapped", "--replicates", 0, "--json", "--report", tmp_path / "r.html")
    other = json.loads(capsys.readouterr().out)["list_fingerprint"]
    assert other not in found
    assert other in (tmp_path / "r.html").read_text()


def test_speakers_guessed_from_trials_are_remarked_upon(
    listed: Trials, scores: np.ndarray, tmp_path: Path, capsys: Capture
) -> None:
    """Names that tell nothing leave intervals that may be too narrow, and that is said."""
    for is_told in (True, False):
        ids = [name if is_told else f"r{n}" for n, name in enumerate(listed.ids)]
        write_scores(tmp_path / "s.txt", replace(listed, ids=ids), scores)
        run(tmp_path / "s.txt", "--replicates", 20, "--json")
        said = capsys.readouterr()
        assert json.loads(said.out)["intervals"] is not None
        assert ("--speakers" in said.err) == (not is_told)


def test_priors_close_to_each_other_stay_apart(
    listed: Trials, scores: np.ndarray, tmp_path: Path, capsys: Capture
) -> None:
    write_scores(tmp_path / "s.txt", listed, scores)
    run(tmp_path / "s.txt", "--replicates", 0, "--json", "--priors", 0.01, 0.01000001)
    assert list(json.loads(capsys.readouterr().out)["min_dcf"]) == ["0.01", "0.01000001"]


def test_a_threshold_is_a_number(listed: Trials, scores: np.ndarray, tmp_path: Path) -> None:
    write_scores(tmp_path / "s.txt", listed, scores)
    for threshold in ("nan", "inf"):
        with pytest.raises(ValueError, match="--threshold must be a finite number"):
            run(tmp_path / "s.txt", "--threshold", threshold)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b 0.5 target\na c 0.25 target\n", "2 targets and 0 non-targets"),
        ("a b 0.5 target\na c nan nontarget\n", "line 2"),
        ("a b 0.5 target\na b 0.25 target\n", "lines 1 and 2"),
        ("a b 0.5 target\na c 0.25\n", "line 2"),
    ],
)
def test_mistakes_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        run(tmp_path / "s.txt")
    assert "s.txt" in str(error.value)


def test_scores_of_a_wrong_list_are_remarked_upon(
    listed: Trials, scores: np.ndarray, tmp_path: Path, capsys: Capture
) -> None:
    assert listed.path is not None
    renamed = listed.path.rename(tmp_path / "veri_test2.txt")
    write_scores(tmp_path / "s.txt", listed, scores)
    run(tmp_path / "s.txt", "--trials", renamed, "--replicates", 0)
    assert "called like Vox1-O (cleaned) (37611 trials)" in capsys.readouterr().err
