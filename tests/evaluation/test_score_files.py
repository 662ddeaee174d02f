"""Laws of score files: what any toolkit writes reads alike, and every mistake is named."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.data.trials import Trials, read_trials
from simple_spk.evaluation.score_files import SCORE_FORMATS, ScoreFormat, read_scores, write_scores

laws = settings(max_examples=150, deadline=None, derandomize=True)


class Row(NamedTuple):
    """One scored trial as a person would write it down."""

    enroll: str
    test: str
    score: float
    is_target: bool

    def line(self, style: str) -> str:
        word, digit = "target" if self.is_target else "nontarget", int(self.is_target)
        return {
            "wespeaker": f"{self.enroll} {self.test} {self.score!r} {word}",
            "speechbrain": f"{self.enroll} {self.test} {digit} {self.score!r}",
            "voxceleb": f"{digit} {self.enroll} {self.test} {self.score!r}",
            "plain": f"{self.enroll} {self.test} {self.score!r}",
            "voxsrc": f"{self.score!r} {self.enroll} {self.test}",
            "bare": f"{self.score!r}",
        }[style]


STYLES = ("wespeaker", "speechbrain", "voxceleb", "plain", "voxsrc", "bare")
LABELED = STYLES[:3]
names = st.sampled_from(["a/1.wav", "a/2.wav", "b", "id10", "é/ü.wav", "x" * 40])
finite = st.floats(allow_nan=False, allow_infinity=False)


def agreeing(rows: list[Row]) -> list[Row]:
    """The rows with one label for a pair and its mirror image."""
    label = {frozenset(row[:2]): row.is_target for row in rows}
    return [row._replace(is_target=label[frozenset(row[:2])]) for row in rows]


scored_rows = st.lists(
    st.builds(Row, names, names, finite, st.booleans()),
    min_size=1,
    max_size=10,
    unique_by=lambda row: row[:2],
).map(agreeing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scores")


def trials_of(rows: list[Row]) -> Trials:
    ids = list(dict.fromkeys(name for row in rows for name in row[:2]))
    sides = np.array([[ids.index(name) for name in row[:2]] for row in rows], dtype=np.int32)
    return Trials(ids, *sides.T, np.array([row.is_target for row in rows]), Path("list.txt"))


def as_rows(trials: Trials, scores: np.ndarray) -> list[Row]:
    labels = [False] * len(trials) if trials.is_target is None else trials.is_target.tolist()
    sides = ([trials.ids[i] for i in side] for side in (trials.enroll, trials.test))
    return [Row(*fields) for fields in zip(*sides, scores.tolist(), labels, strict=True)]


def written(folder: Path, rows: list[Row], style: str, ending: str = "\n") -> Path:
    path = folder / "scores.txt"
    path.write_text(ending.join(row.line(style) for row in rows) + ending, encoding="utf-8")
    return path


@laws
@given(
    rows=scored_rows,
    style=st.sampled_from(STYLES[:-1]),
    ending=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
)
def test_every_format_reads_alike(
    folder: Path, rows: list[Row], style: str, ending: str, packed: bool
) -> None:
    path = written(folder, rows, style, ending)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    trials, scores = read_scores(path)
    assert (trials.is_target is not None) == (style in LABELED)
    expected = rows if style in LABELED else [row._replace(is_target=False) for row in rows]
    assert as_rows(trials, scores) == expected
    assert scores.dtype == np.float64


@laws
@given(rows=scored_rows, style=st.sampled_from(STYLES), data=st.data())
def test_scores_come_in_the_order_of_the_list(
    folder: Path, rows: list[Row], style: str, data: st.DataObject
) -> None:
    trials = trials_of(rows)
    order = rows if style == "bare" else data.draw(st.permutations(rows))
    found, scores = read_scores(written(folder, order, style), trials)
    assert found is trials
    assert scores.tolist() == [row.score for row in rows]


@laws
@given(
    rows=scored_rows,
    layout=st.sampled_from(SCORE_FORMATS),
    labeled=st.booleans(),
    single=st.booleans(),
    name=st.sampled_from(["new.txt", "new.txt.gz", "sub/folder/new.txt"]),
)
def test_what_is_written_is_read(
    folder: Path, rows: list[Row], layout: ScoreFormat, labeled: bool, single: bool, name: str
) -> None:
    trials = trials_of(rows)
    if not labeled:
        trials = replace(trials, is_target=None)
    # Thirds, as the values drawn are often round and would get by with fewer digits.
    scores = np.array([row.score for row in rows]) / 3
    if single:
        scores = np.clip(scores, -1e38, 1e38).astype(np.float32)
    write_scores(folder / name, trials, scores, layout)
    found, read = read_scores(folder / name)
    assert np.array_equal(read.astype(scores.dtype), scores)
    assert (found.is_target is not None) == (labeled and layout != "voxsrc")
    assert as_rows(found, read) == as_rows(replace(trials, is_target=found.is_target), read)
    assert (found.is_target is None) or np.array_equal(found.is_target, trials.is_target)
    assert not list(folder.rglob("*.partial"))


def test_the_formats_are_as_documented(tmp_path: Path) -> None:
    trials = trials_of([Row("a", "b", 0.5, True), Row("a", "c", -1.0, False)])
    expected = {
        "wespeaker": "a b 0.5 target\na c -1 nontarget\n",
        "voxceleb": "1 a b 0.5\n0 a c -1\n",
        "voxsrc": "0.5 a b\n-1 a c\n",
    }
    for layout in SCORE_FORMATS:
        write_scores(tmp_path / "s.txt", trials, [0.5, -1], layout)
        assert (tmp_path / "s.txt").read_text() == expected[layout]


def test_names_that_look_like_numbers_are_told_by_all_lines_or_by_the_list(tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_text("1 2 0.5\nx 1 0.25\n")  # the second line cannot be 'score enroll test'
    trials, scores = read_scores(path)
    assert (trials.ids, scores.tolist()) == (["1", "2", "x"], [0.5, 0.25])
    path.write_text("7 1 2\n8 1 3\n")
    with pytest.raises(ValueError, match=r"may be 'enroll test score' or 'score enroll test'"):
        read_scores(path)
    sides = np.array([(0, 1), (0, 2)], dtype=np.int32)
    _, scores = read_scores(path, Trials(["1", "2", "3"], *sides.T))
    assert scores.tolist() == [7.0, 8.0]
    path.write_text("0 1 1 0.5\n1 2 0 0.25\n")  # SpeechBrain's, or a VoxCeleb list with scores?
    with pytest.raises(
        ValueError, match=r"may be 'enroll test 0.1 score' or '0.1 enroll test score'"
    ):
        read_scores(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected lines such as 'enroll test score target"),
        ("a b c\n", "line 1: found 3 fields; expected a line such as"),
        ("a b 0.5 maybe\n", "line 1: found 4 fields"),
        ("a b 0.5\na c\n", "line 2: found 'a c'; expected 'enroll test score'"),
        ("a b 0.5\n\na c 0.5\n", "line 2: found a blank line"),
        (
            "a b 0.5 target\na c 0.5 other\n",
            "line 2: found 'a c 0.5 other'; expected 'enroll test ",
        ),
        ("a b 0.5\na c high\n", "line 2: found 'a c high'; expected .* a finite score"),
        ("a b 0.5\na c nan\na d inf\n", r"line 2: .* \(2 of 3 lines have none\)"),
        ("0.5\n-inf\n", "line 2: found '-inf'"),
        ("a b 1\na c 2\na b 3\n", "lines 1 and 3: found the trial a b twice"),
        ("a b 1 target\nb a 2 nontarget\n", "lines 1 and 2: found the pair a b as target and"),
        ("0.5\n0.25\n", "bare scores: give the trial list with it"),
    ],
)
def test_what_is_no_score_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_scores(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b 1\n", "no score for 1 of 2 trials of list.txt, the first in line 2: a c"),
        ("a b 1\nc a 1\n", "no score for 1 of 2"),
        ("a b 1\na z 1\n", "no score for 1 of 2"),
        (
            "a b 1\na c 1\na z 2\n",
            "line 3: found a score for a z, which is not a trial of list",
        ),
        ("b c 1\na b 1\na c 1\n", r"line 1: found a score for b c, .* \(1 such lines\)"),
        ("a c 1 nontarget\na b 1 nontarget\n", "line 2: .* label of a b than in list.txt, line 1"),
        ("1\n", "has 1 bare scores, but list.txt has 2 trials"),
    ],
)
def test_a_file_of_other_trials_than_the_list_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "s.txt").write_text(text)
    trials = trials_of([Row("a", "b", 0.0, True), Row("a", "c", 0.0, False)])
    with pytest.raises(ValueError, match=message):
        read_scores(tmp_path / "s.txt", trials)


def test_neighboring_scores_stay_apart_in_the_file(tmp_path: Path) -> None:
    # From 1000 to 1024 single precision is finest in relation to decimals: it takes all 9 digits.
    scores = (1000 + np.arange(100) * 2.0**-14).astype(np.float32)
    sides = np.zeros(len(scores), dtype=np.int32)
    write_scores(tmp_path / "scores.txt", Trials(["a"], sides, sides), scores)
    lines = (tmp_path / "scores.txt").read_text().splitlines()
    assert [np.float32(line.split()[2]) for line in lines] == scores.tolist()


def test_scores_that_do_not_fit_leave_an_earlier_file_alone(tmp_path: Path) -> None:
    sides = np.zeros(2, dtype=np.int32)
    trials = Trials(["a"], sides, sides)
    path = tmp_path / "scores.txt"
    write_scores(path, trials, [1, 0.5])
    for scores, message in (
        ([1.0], r"shape \(1,\); expected \(2,\)"),
        ([1.0, np.nan], "score must be finite: 1 of 2 are not, the first at index 1: nan"),
        ([np.inf, 0.0], "the first at index 0: inf"),
    ):
        with pytest.raises(ValueError, match=message):
            write_scores(path, trials, scores)
    assert path.read_text() == "a a 1\na a 0.5\n"
    assert [file.name for file in tmp_path.iterdir()] == ["scores.txt"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no score file at .*nowhere\.txt"):
        read_scores(tmp_path / "nowhere.txt")


def test_labels_of_the_file_serve_a_list_without(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a b\na c\n")
    (tmp_path / "scores").write_text("a c 0.25 nontarget\na b 0.5 target\n")
    trials, scores = read_scores(tmp_path / "scores", read_trials(tmp_path / "list"))
    assert scores.tolist() == [0.5, 0.25]
    assert trials.is_target is not None
    assert trials.is_target.tolist() == [True, False]
    assert trials.path == tmp_path / "list"
