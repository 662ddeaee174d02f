"""Columns cut out of text are those that the csv module reads, at any size of the blocks."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.data import text_columns
from simple_spk.data.text_columns import TextColumnWriter, look_at_csv

PLAIN = st.text(st.characters(exclude_characters='",\r\n\0\x1e\x1f', exclude_categories=["Cs"]))
ANY = st.text(st.characters(exclude_characters="\0\x1e\x1f\r", exclude_categories=["Cs"]))


def columns_of(path: Path) -> dict[str, list[str]]:
    """The whole file by our reader."""
    text = look_at_csv(path)
    writers = {name: TextColumnWriter(text.lines, text.size_bytes) for name in text.header}
    for _, fields in text.blocks():
        for name, writer in writers.items():
            writer.append(fields[name])
            fixed = [value.decode() for value in fields[name].as_array().tolist()]
            written = writer.column()
            first = len(written) - len(fixed)
            assert fixed == [written[row] for row in range(first, len(written))]
    return {name: list(map(w.column().__getitem__, range(w.rows))) for name, w in writers.items()}


@pytest.mark.parametrize("field", [PLAIN, ANY], ids=["without quotes", "with quotes"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_equal_to_the_csv_module(
    field: st.SearchStrategy, line_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_columns, "BLOCK_BYTES", 17)
    monkeypatch.setattr(text_columns, "ROWS_AT_ONCE", 2)

    @settings(deadline=None)
    @given(st.lists(st.tuples(field, field, field), min_size=1, max_size=9), st.booleans())
    def law(rows: list[tuple[str, ...]], ends_open: bool) -> None:
        file = io.StringIO()
        csv.writer(file, lineterminator=line_end).writerows([("a", "b", "c"), *rows])
        text = file.getvalue()
        path = tmp_path / "x.csv"
        path.write_bytes((text.removesuffix(line_end) if ends_open else text).encode())
        assert columns_of(path) == {
            name: [row[column] for row in rows] for column, name in enumerate("abc")
        }

    law()


def test_rows_beyond_the_column_are_refused(tmp_path: Path) -> None:
    writer = TextColumnWriter(0, 0)
    with pytest.raises(IndexError):
        writer.column()[0]
