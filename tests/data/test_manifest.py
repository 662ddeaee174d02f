"""Laws of manifests: what is written is read, and a mistake is named with its line."""

import csv
from pathlib import Path

import numpy as np
import pytest

from simple_spk.data.manifest import read_manifest, read_speakers, write_manifest

ROWS = [
    ["b-2", "b/2.wav", "3.5", "b"],
    ["a-1", "a/1.wav", "1", "a"],
    ["話者-é", "ü/話 1.flac", "2e0", "話者"],
    ["a,2", 'a/"2".wav', "0.25", "a"],
]
HEADER = ["ID", "wav", "duration", "spk_id"]


def write(path: Path, rows: list[list[str]], header: list[str] = HEADER) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_round_trip(tmp_path: Path) -> None:
    manifest = read_manifest(write(tmp_path / "m.csv", ROWS))
    assert len(manifest) == 4
    for number, (identifier, wav, duration, speaker) in enumerate(ROWS):
        assert manifest.row_of_id[identifier] == number
        assert manifest.wav(number) == tmp_path.resolve() / wav
        assert manifest.durations_seconds[number] == float(duration)
        assert manifest.speakers[manifest.speaker_of_row[number]] == speaker
    assert manifest.speakers == ("a", "b", "話者")


def test_labels_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    forwards = read_manifest(write(tmp_path / "m.csv", ROWS))
    backwards = read_manifest(write(tmp_path / "n.csv", ROWS[::-1]))
    assert forwards.speakers == backwards.speakers
    assert np.array_equal(forwards.speaker_of_row, backwards.speaker_of_row[::-1])


def test_columns_in_any_order_and_further_ones(tmp_path: Path) -> None:
    order = [3, 0, 2, 1]
    rows = [["x", *(row[i] for i in order)] for row in ROWS]
    shuffled = write(tmp_path / "m.csv", rows, ["language", *(HEADER[i] for i in order)])
    plain, manifest = read_manifest(write(tmp_path / "n.csv", ROWS)), read_manifest(shuffled)
    assert manifest.row_of_id == plain.row_of_id
    assert [manifest.wav(row) for row in range(4)] == [plain.wav(row) for row in range(4)]
    assert np.array_equal(manifest.durations_seconds, plain.durations_seconds)
    assert np.array_equal(manifest.speaker_of_row, plain.speaker_of_row)


def test_paths_are_relative_to_the_manifest_or_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lists").mkdir()
    absolute = tmp_path / "elsewhere" / "2.wav"
    rows = [["1", "../wavs/1.wav", "1", "a"], ["2", str(absolute), "1", "a"]]
    write(tmp_path / "lists" / "m.csv", rows)
    monkeypatch.chdir(tmp_path)
    manifest = read_manifest("lists/m.csv")
    monkeypatch.chdir("/")  # where a program goes afterwards does not matter
    assert manifest.wav(0).resolve() == (tmp_path / "wavs" / "1.wav").resolve()
    assert manifest.wav(1) == absolute


@pytest.mark.parametrize("missing", HEADER)
def test_a_missing_column_is_named(missing: str, tmp_path: Path) -> None:
    header = ["other" if name == missing else name for name in HEADER]
    with pytest.raises(ValueError, match=rf"m\.csv lacks the columns {missing}:"):
        read_manifest(write(tmp_path / "m.csv", ROWS, header))


@pytest.mark.parametrize("row", [["x", "x.wav", "1"], ["x", "x.wav", "1", "a", "b"]])
def test_a_ragged_line_is_named(row: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"m\.csv, line 4: {len(row)} fields instead of 4"):
        read_manifest(write(tmp_path / "m.csv", [*ROWS[:2], row, *ROWS[2:]]))


@pytest.mark.parametrize("duration", ["0", "-1", "nan", "inf", "abc"])
def test_a_bad_duration_is_named_with_its_line(duration: str, tmp_path: Path) -> None:
    rows = [*ROWS[:2], ["x", "x.wav", duration, "a"], *ROWS[2:]]
    with pytest.raises(ValueError, match=rf"m\.csv, line 4.*{duration}"):
        read_manifest(write(tmp_path / "m.csv", rows))


@pytest.mark.parametrize("column", HEADER)
@pytest.mark.parametrize("value", ["", "9" * 5000], ids=["empty", "giant"])
def test_an_empty_or_giant_field_is_named_with_its_line(
    column: str, value: str, tmp_path: Path
) -> None:
    """Rows without a speaker would become one speaker; a giant would fill the memory."""
    row = dict(zip(HEADER, ["x", "x.wav", "1", "a"], strict=True)) | {column: value}
    with pytest.raises(ValueError, match=rf"m\.csv, line 4: {column} (is empty|has 5000 bytes)"):
        read_manifest(write(tmp_path / "m.csv", [*ROWS[:2], list(row.values()), *ROWS[2:]]))


def test_an_id_that_stands_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"m\.csv.*話者-é.*2 rows"):
        read_manifest(write(tmp_path / "m.csv", [*ROWS, ROWS[2]]))


@pytest.mark.parametrize("content", ["", "ID,wav,duration,spk_id\n"], ids=["nothing", "header"])
def test_an_empty_manifest_raises(content: str, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(content)
    with pytest.raises(ValueError, match=r"m\.csv"):
        read_manifest(tmp_path / "m.csv")


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"m\.csv"):
        read_manifest(tmp_path / "m.csv")


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    """Spreadsheet programs write one; trial lists may have one too."""
    path = write(tmp_path / "m.csv", ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_manifest(path)) == 4


@pytest.mark.parametrize(
    "line",
    [b"\xff\xfe1,x.wav,1,a\n", b'"1,x.wav,1,a\n' + b"2,x.wav,1,a\n" * 20000],
    ids=["not UTF-8", "a quote that never closes"],
)
def test_a_file_that_is_no_csv_is_named(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(b"ID,wav,duration,spk_id\n" + line)
    with pytest.raises(ValueError, match=r"m\.csv"):
        read_manifest(path)


@pytest.mark.parametrize(
    "content",
    [
        b"X" * 300000,
        b"\0" * 300000,
        b"ID,wav,duration,spk_id\r1,x.wav,1,a\r",
        b"\x9f\x00,\xff\n",
        b"ID,wav,duration,spk_id\n1,x.wav,1,\xc3",
    ],
    ids=["one long line", "zeros", "carriage returns", "binary", "cut within a character"],
)
def test_a_file_that_is_something_else_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.csv"):
        read_manifest(path)


SPEAKERS = {"a1": "ann", "b1": "bob", "a2": "ann", "c1": "cid"}


@pytest.mark.parametrize("kind", ["manifest", "utt2spk"])
def test_recordings_of_one_speaker_get_one_number(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("m.csv" if kind == "manifest" else "utt2spk")
    if kind == "manifest":
        write_manifest(path, list(SPEAKERS), ["x.wav"] * 4, [1.0] * 4, list(SPEAKERS.values()))
    else:
        path.write_text("".join(f"{name} {speaker}\n" for name, speaker in SPEAKERS.items()))
    asked = ["a2", "b1", "a1", "a2"]
    numbers = read_speakers(path, asked).tolist()
    same = [[SPEAKERS[x] == SPEAKERS[y] for x in asked] for y in asked]
    assert [[x == y for x in numbers] for y in numbers] == same
    with pytest.raises(ValueError, match=r"of 2 of 3 recordings \(first: p, q\)"):
        read_speakers(path, ["p", "a1", "q"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a s\nb\n", "line 2: found 'b'; expected 'recording speaker'"),
        ("", "line 1: found a blank line"),
        ("a s\nb s t\nc s\n", "line 2: found 'b s t'"),
        ("a s\nb s\na t\nc t\nb t\n", "line 3: found a again"),
    ],
)
def test_what_names_no_speakers_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "utt2spk").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_speakers(tmp_path / "utt2spk", ["a"])
