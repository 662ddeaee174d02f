"""Laws of cutting text into fields, against bytes.split and float, one line at a time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.data.field_table import FieldTable, cut_fields

laws = settings(max_examples=150, deadline=None, derandomize=True)

# Lengths around the eight bytes that are compared at once; characters of one to four bytes.
fields = st.one_of(
    st.text("ab", min_size=1, max_size=2),
    st.integers(6, 26).flatmap(lambda size: st.text("ab", min_size=size, max_size=size)),
    st.text("aé話\U0001f600\u3000\x1f", min_size=1, max_size=9),
)
separators = st.sampled_from([" ", "\t", "  ", " \x0b", "\x0c", "\r"])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Lines of fields, most of them with the same number."""
    columns = draw(st.integers(1, 4))
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        count = columns if draw(st.integers(0, 20)) else draw(st.integers(0, 5))
        row = draw(st.lists(fields, min_size=count, max_size=count))
        lines.append(draw(st.sampled_from(["", " "])) + draw(separators).join(row))
    return "\n".join(lines).encode()


@laws
@given(content=texts(), columns=st.integers(1, 4))
def test_fields_are_those_of_split(content: bytes, columns: int) -> None:
    rows = [line.split() for line in content.split(b"\n")]
    table = cut_fields(content, columns)
    assert (table is not None) == all(len(row) == columns for row in rows)
    if table is None:
        return
    cut = [
        [table.text[s:e] for s, e in zip(*row, strict=True)]
        for row in zip(table.starts, table.ends, strict=True)
    ]
    assert cut == rows
    for column in range(columns):
        for word in {row[column] for row in rows} | {b"a", b"aaaaaaaa", b"ab" * 9}:
            expected = [row[column] == word for row in rows]
            assert table.are(column, word).tolist() == expected
    chosen = (columns - 1, 0)
    names, indexes = table.index(*chosen)
    named = [[row[column].decode() for column in chosen] for row in rows]
    assert names == list(dict.fromkeys(name for row in named for name in row))
    assert [[names[index] for index in row] for row in indexes] == named
    assert indexes.dtype == np.int32


@laws
@given(
    st.lists(
        st.one_of(
            st.floats().map(repr),
            st.integers().map(str),
            st.sampled_from(["1e5", "-.5", "+3", "inf", "nan", "-Infinity", "0" * 70 + "1.5"]),
            st.sampled_from(["", "x", "1,5", "--1", "0x1", "1e", "target"]).filter(bool),
        ),
        min_size=1,
    )
)
def test_numbers_are_those_of_float(words: list[str]) -> None:
    table = cut_fields("\n".join(words).encode(), 1)
    assert table is not None
    for word, number in zip(words, table.numbers(0), strict=True):
        try:
            expected = float(word)
        except ValueError:
            expected = math.nan
        assert number == expected or (math.isnan(number) and math.isnan(expected))


def test_a_hash_that_tells_nothing_apart_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = FieldTable._hashes

    def poor(self: FieldTable, starts: np.ndarray, lengths: np.ndarray, seed: int) -> np.ndarray:
        good = hashes(self, starts, lengths, seed)
        return good if seed > 2 else good % seed

    monkeypatch.setattr(FieldTable, "_hashes", poor)
    table = cut_fields(b"a b\nb c\na d", 2)
    assert table is not None
    names, indexes = table.index(0, 1)
    assert names == ["a", "b", "c", "d"]
    assert indexes.tolist() == [[0, 1], [1, 2], [0, 3]]
