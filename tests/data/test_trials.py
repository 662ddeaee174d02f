"""Laws of trial lists, against a reader that takes one line at a time."""

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.data.trials import Trials, read_trials, speakers_of_recordings

laws = settings(max_examples=100, deadline=None, derandomize=True)

FORMATS = ("voxceleb", "kaldi", "unlabeled")


class Row(NamedTuple):
    """One trial as a person would write it down."""

    enroll: str
    test: str
    is_target: bool

    def line(self, style: str) -> str:
        if style == "voxceleb":
            return f"{int(self.is_target)} {self.enroll} {self.test}"
        if style == "kaldi":
            return f"{self.enroll} {self.test} {'target' if self.is_target else 'nontarget'}"
        return f"{self.enroll} {self.test}"


# Few names, so that they repeat; some that look like labels, and some beyond ASCII.
names = st.sampled_from(
    ["a/1.wav", "a/2.wav", "b", "id10", "0", "1", "é/ü.wav", "話者\u3000一", "x" * 99]
)


def agreeing(rows: list[Row]) -> list[Row]:
    """The rows with one label for a pair and its mirror image."""
    label = {frozenset(row[:2]): row.is_target for row in rows}
    return [row._replace(is_target=label[frozenset(row[:2])]) for row in rows]


rows_of_trials = st.lists(
    st.builds(Row, names, names, st.booleans()),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[:2],
).map(agreeing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials")


def as_rows(trials: Trials) -> list[Row]:
    labels = [False] * len(trials) if trials.is_target is None else trials.is_target.tolist()
    return [
        Row(trials.ids[enroll], trials.ids[test], label)
        for enroll, test, label in zip(trials.enroll, trials.test, labels, strict=True)
    ]


@laws
@given(
    rows=rows_of_trials,
    style=st.sampled_from(FORMATS),
    separator=st.sampled_from([" ", "\t", "  "]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    ending=st.sampled_from(["", "\n", "\r\n", "\n\n \n"]),
    start=st.sampled_from(["", "\ufeff"]),
    packed=st.booleans(),
)
def test_every_spelling_of_a_list_reads_alike(
    folder: Path,
    rows: list[Row],
    style: str,
    separator: str,
    line_end: str,
    ending: str,
    start: str,
    packed: bool,
) -> None:
    lines = [row.line(style).replace(" ", separator) for row in rows]
    text = (start + line_end.join(lines) + ending).encode()
    path = folder / ("list.txt.gz" if packed else "list.txt")
    path.write_bytes(gzip.compress(text) if packed else text)
    trials = read_trials(path)
    if style == "unlabeled":
        assert trials.is_target is None
        rows = [row._replace(is_target=False) for row in rows]
    else:
        assert trials.is_target is not None and trials.is_target.dtype == np.bool_
    assert as_rows(trials) == rows
    assert trials.ids == list(dict.fromkeys(name for row in rows for name in row[:2]))
    assert trials.enroll.dtype == trials.test.dtype == np.int32
    assert trials.path == path
    assert trials.sha256 == hashlib.sha256(text).hexdigest()
    unix_text = text.replace(b"\r\n", b"\n")
    git_name = hashlib.sha1(f"blob {len(unix_text)}\0".encode() + unix_text).hexdigest()
    assert trials.git_sha1 == git_name


@laws
@given(rows=rows_of_trials, style=st.sampled_from(FORMATS), data=st.data())
def test_the_first_malformed_line_is_named(
    folder: Path, rows: list[Row], style: str, data: st.DataObject
) -> None:
    lines = [row.line(style) for row in rows]
    spoiled = {
        "voxceleb": ["", "1 a", "1 a b c", "2 a b", "a b target", "1 a b 1 1 a b"],
        "kaldi": ["", "a b", "a b target c", "a b Target", "1 a b", "a b target x a b target"],
        "unlabeled": ["", "a", "a b c", "1 a b", "a b x a b"],
    }[style]
    bad = data.draw(st.sampled_from(spoiled))
    place = data.draw(st.integers(1, len(lines)))
    # A second bad line makes up for fields missing in or left over from the first one.
    makeweight = data.draw(st.sampled_from(["a", "", "a b c", lines[0]]))
    text = "\n".join([*lines[:place], bad, makeweight, *lines[place:], lines[0]])
    path = folder / "spoiled.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"spoiled\.txt, line {place + 1}: found .*; expected "):
        read_trials(path)


def test_a_word_as_label_is_believed_before_a_number(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("1 0 target\n0 0 nontarget\n")
    assert as_rows(read_trials(path)) == [Row("1", "0", True), Row("0", "0", False)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; expected lines such as"),
        (b"\n \r\n", "is empty"),
        (b"\n1 a b\n", "line 1: found a blank line; expected a line"),
        (b"yes a b\n", "line 1: found 3 fields; expected a line such as 'enroll test target"),
        (b"alone\n", "line 1: found 1 field; expected"),
        (b"a b\nc\nd e f\ng h\n", "line 2: found 'c'; expected 'enroll test'"),
        (b"1 a b\n1 a\n", "line 2: found '1 a'; expected '0.1 enroll test'"),
        (b"1 a b\n0 a b c", "line 2: found '0 a b c'; expected '0.1 enroll test'"),
        (b"1 a b\n0 \xff c\n", "line 2: found the byte 0xff; expected text in UTF-8"),
        (b"1 a b\n\n0 a\0 c\n", "line 3: found the byte 0x00"),
        ("1 a b\n".encode("utf-16"), "line 1: found the byte"),
        (gzip.compress(b"1 a b\n" * 99, mtime=0)[:-9], "damaged gzip file"),
    ],
)
def test_what_is_no_list_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_trials(path)


def test_a_missing_list_is_named_with_what_to_check(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no trial list at .*nowhere\.txt: correct"):
        read_trials(tmp_path / "nowhere.txt")


def test_trials_that_contradict_themselves_are_refused() -> None:
    one, two = np.zeros(1, dtype=np.int32), np.zeros(2, dtype=np.int32)
    with pytest.raises(ValueError, match=r"test has shape \(1,\); expected \(2,\)"):
        Trials(["a"], two, one)
    with pytest.raises(ValueError, match=r"is_target has shape \(2,\); expected \(1,\)"):
        Trials(["a"], one, one, np.array([True, False]))
    with pytest.raises(ValueError, match="enroll has indexes from 1 to 1; expected 0 to 0"):
        Trials(["a"], one + 1, one)
    assert len(Trials([], one[:0], one[:0])) == 0


@laws
@given(
    rows=st.lists(st.builds(Row, names, names, st.booleans()), min_size=1, max_size=12),
    style=st.sampled_from(FORMATS),
)
def test_repetitions_and_contradictions_are_named_with_both_lines(
    folder: Path, rows: list[Row], style: str
) -> None:
    path = folder / "repeated.txt"
    path.write_text("\n".join(row.line(style) for row in rows), encoding="utf-8")
    pairs = [row[:2] for row in rows]
    twice = [line for line, pair in enumerate(pairs) if pair in pairs[:line]]
    if twice:
        first = pairs.index(pairs[twice[0]])
        with pytest.raises(ValueError, match=f"lines {first + 1} and {twice[0] + 1}: .* twice"):
            read_trials(path)
    elif style != "unlabeled" and agreeing(rows) != rows:
        with pytest.raises(ValueError, match=r"lines \d+ and \d+: .* the other way round"):
            read_trials(path)
    else:
        assert as_rows(read_trials(path))[0][:2] == rows[0][:2]


def test_a_contradiction_names_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("1 a b\n0 a c\n1 b c\n1 c a\n")
    with pytest.raises(ValueError, match=r"list\.txt, lines 2 and 4: found the pair a c as"):
        read_trials(path)


@laws
@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=20))
def test_target_trials_join_recordings_to_speakers(pairs: list[tuple[int, int]]) -> None:
    ids = [f"{number}" for number in range(15)]
    sides = np.array([*pairs, (0, 1)], dtype=np.int32)
    is_target = np.array([True] * len(pairs) + [False])
    speakers = speakers_of_recordings(Trials(ids, sides[:, 0], sides[:, 1], is_target))
    groups = [{number} for number in range(15)]  # one merger at a time
    for left, right in pairs:
        merged = groups[left] | groups[right]
        for member in merged:
            groups[member] = merged
    expected = [[b in groups[a] for b in range(15)] for a in range(15)]
    assert (speakers[:, None] == speakers).tolist() == expected


@pytest.mark.parametrize("mark", ["/", "-"])
def test_names_tell_the_speakers_if_they_explain_every_label(mark: str) -> None:
    ids = [f"{speaker}{mark}{take}" for speaker in "ab" for take in range(2)]
    # The recordings of b are joined by no trial: only their names tell.
    sides = np.array([(0, 1), (0, 2), (1, 3)], dtype=np.int32)
    labels = np.array([True, False, False])
    speakers = speakers_of_recordings(Trials(ids, *sides.T, labels))
    assert speakers.tolist() == [0, 0, 1, 1]
    contradicted = speakers_of_recordings(Trials(ids, *sides.T, np.array([True, False, True])))
    assert contradicted.tolist() == [0, 0, 1, 0]
    with pytest.raises(ValueError, match="no labels"):
        speakers_of_recordings(Trials(ids, *sides.T))
