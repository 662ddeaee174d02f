"""Laws of metadata tables: the same table in any dress, and a row for every recording it knows."""

from pathlib import Path

import pytest

from simple_spk.report.metadata import read_metadata, rows_of_recordings

ROWS = [["ID", "Gender", "Nationality"], ["id1", "m", "UK"], ["id2", "f", "New Zealand"]]


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8"))
    return path


@pytest.mark.parametrize("separator", [",", "\t", ";", " ,", " \t "])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", " \r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_dress_does_not_matter(tmp_path, separator, line_end, mark):
    text = mark + "".join(separator.join(row) + line_end for row in ROWS)
    table = read_metadata(write(tmp_path / "meta.csv", text))
    assert table.keys == ("id1", "id2")
    assert table.columns == {"Gender": ("m", "f"), "Nationality": ("UK", "New Zealand")}


def test_quoted_fields_may_hold_separators_and_line_ends(tmp_path):
    table = read_metadata(write(tmp_path / "meta.csv", 'ID,note\nid1,"a, b\nc"\n'))
    assert table.columns == {"note": ("a, b\nc",)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no table"),
        ("ID,Gender\n", "no table"),
        ("ID\nid1\n", "no table"),
        ("ID,Gender\nid1,m\nid2\n", "line 3: found 1 fields; expected 2"),
        ("ID,Gender\nid1,m\nid1,f\n", "'id1': found 2 times"),
        ("ID,x,x\nid1,m,m\n", "'x': found 2 times"),
        ('ID,x\nid1,"open', "no table in UTF-8"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    path = write(tmp_path / "meta.csv", text)
    with pytest.raises(ValueError, match=message) as caught:
        read_metadata(path)
    assert str(path) in str(caught.value)


def test_missing_file_and_other_encodings_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.csv"):
        read_metadata(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes("ID,x\nid1,\xe9\n".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        read_metadata(tmp_path / "latin.csv")


@pytest.mark.parametrize(
    ("recordings", "keyed_by"),
    [
        (["id1", "id2", "id3"], "recording"),
        (["id1.wav", "id2.wav", "id3.wav"], "recording without its suffix"),
        (["a/b/id1.wav", "c/id2.flac", "id3.wav"], "file name without its suffix"),
        (["id1/x/1.wav", "id2/id1.wav", "id3/1.wav"], "speaker, the first folder"),
        (["id1-7-1", "id2-8", "id3-9"], "speaker, the name up to"),
    ],
)
def test_rows_are_found_by_any_reading_of_names(tmp_path, recordings, keyed_by):
    text = "\n".join(",".join(row) for row in ROWS)
    found = rows_of_recordings(read_metadata(write(tmp_path / "meta.csv", text)), recordings)
    assert found.rows.tolist() == [0, 1, -1]
    assert found.keyed_by.startswith(keyed_by)


def test_a_table_that_knows_no_recording_is_refused(tmp_path):
    table = read_metadata(write(tmp_path / "meta.csv", "ID,Gender\nid1,m\n"))
    with pytest.raises(ValueError, match=r"'id1', the recordings like 'x/1\.wav'"):
        rows_of_recordings(table, ["x/1.wav", "y/2.wav"])
