"""Laws of reading text tables, against bytes.split, float and the csv module, at any block size."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.data import text_table
from simple_spk.data.text_table import (
    FieldTable,
    TextColumn,
    csv_frames,
    numbered_lines,
    read_fields,
)

laws = settings(max_examples=150, deadline=None, derandomize=True)
PATH = Path("list.txt")

# Short and long names, and characters of one to four bytes.
fields = st.one_of(
    st.text("ab", min_size=1, max_size=2),
    st.integers(6, 26).flatmap(lambda size: st.text("ab", min_size=size, max_size=size)),
    st.text("aé話\U0001f600\u3000\x1f\"#,'", min_size=1, max_size=9),
)
separators = st.sampled_from([" ", "\t", "  ", " \x0b", "\x0c", "\r"])


@pytest.fixture(params=[17, 1 << 24], ids=["small blocks", "one block"], autouse=True)
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(text_table, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(text_table, "ROWS_AT_ONCE", 2)
    return request.param


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Lines of fields, most of them with the same number."""
    columns = draw(st.integers(1, 4))
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        count = columns if draw(st.integers(0, 20)) else draw(st.integers(0, 5))
        row = draw(st.lists(fields, min_size=count, max_size=count))
        end = draw(st.sampled_from(["", " ", "\r"]))
        lines.append(draw(st.sampled_from(["", " "])) + draw(separators).join(row) + end)
    return ("\n".join(lines) + draw(st.sampled_from(["", "\n", "\r\n \n"]))).encode()


def table_of(content: bytes, columns: int, skip_blank: bool = False) -> FieldTable | None:
    return read_fields(io.BytesIO(content), PATH, columns, skip_blank=skip_blank)


def test_fields_are_those_of_split(block_bytes: int) -> None:
    @laws
    @given(content=texts(), columns=st.integers(1, 4), skip_blank=st.booleans())
    def law(content: bytes, columns: int, skip_blank: bool) -> None:
        rows = [line.split() for line in content.rstrip().split(b"\n") if content.strip()]
        if skip_blank:
            rows = [row for row in rows if row]
        table = table_of(content, columns, skip_blank)
        assert (table is not None) == all(len(row) == columns for row in rows)
        if table is None:
            return
        for column in range(columns):
            for word in {row[column] for row in rows} | {b"a", b"aaaaaaaa", b"ab" * 9}:
                expected = [row[column] == word for row in rows]
                assert table.equals(column, word.decode()).tolist() == expected
        chosen = (columns - 1, 0)
        names, indexes = table.index(*chosen)
        named = [[row[column].decode() for column in chosen] for row in rows]
        assert names == list(dict.fromkeys(name for row in named for name in row))
        assert [[names[i] for i in row] for row in zip(*indexes, strict=True)] == named
        assert all(side.dtype == np.int32 for side in indexes)

    law()


@pytest.mark.parametrize("numeric", [(), (0,)], ids=["from names", "at once"])
def test_numbers_are_those_of_float(numeric: tuple[int, ...]) -> None:
    @laws
    @given(
        st.lists(
            st.one_of(
                st.floats().map(repr),
                st.integers().map(str),
                st.sampled_from(["1e5", "-.5", "+3", "inf", "nan", "-Infinity", "1_0", "1e400"]),
                st.sampled_from(["x", "1,5", "--1", "0x1", "1e", "target", "0" * 70 + "1.5"]),
            ),
            min_size=1,
        )
    )
    def law(words: list[str]) -> None:
        table = read_fields(io.BytesIO("\n".join(words).encode()), PATH, 1, numeric)
        assert table is not None
        for word, number in zip(words, table.numbers(0), strict=True):
            try:
                expected = float(word)
            except ValueError:
                expected = math.nan
            assert number == expected or (math.isnan(number) and math.isnan(expected))

    law()


def test_lines_are_numbered_without_blank_ones_at_the_end(tmp_path: Path) -> None:
    lines = [b"one", b"", b"a line that is longer than a small block", b"\t", b"", b" last"]
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + b"\n \n\r\n")
    assert list(numbered_lines(path, "text")) == list(enumerate(lines, start=1))


PLAIN = st.text(st.characters(exclude_characters='",\r\n\0', exclude_categories=["Cs"]))
ANY = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]))


@pytest.mark.parametrize("field", [PLAIN, ANY], ids=["without quotes", "with quotes"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_columns_are_those_of_the_csv_module(
    field: st.SearchStrategy, line_end: str, tmp_path: Path
) -> None:
    @settings(deadline=None)
    @given(st.lists(st.tuples(field, field, field), min_size=1, max_size=9), st.booleans())
    def law(rows: list[tuple[str, ...]], ends_open: bool) -> None:
        file = io.StringIO()
        csv.writer(file, lineterminator=line_end).writerows([("a", "b", "c"), *rows])
        text = file.getvalue()
        path = tmp_path / "x.csv"
        path.write_bytes((text.removesuffix(line_end) if ends_open else text).encode())
        columns = {name: TextColumn(len(text)) for name in "ca"}
        line = 2
        for first, frame in csv_frames(path, tuple(columns)):
            assert first == line or '"' in text
            line += frame.height
            for name, column in columns.items():
                column.append(frame[name])
        assert list(columns["a"]) == [row[0] for row in rows]
        assert list(columns["c"]) == [row[2] for row in rows]

    law()


def test_rows_beyond_the_column_are_refused() -> None:
    with pytest.raises(IndexError):
        TextColumn(0)[0]
