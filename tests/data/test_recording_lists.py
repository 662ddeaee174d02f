"""Laws of naming recordings: every way leads to the same files, and nothing is run."""

import os
from pathlib import Path

import pytest

from simple_spk.data.audio import read_header
from simple_spk.data.manifest import write_manifest
from simple_spk.data.recording_lists import find_recordings


def test_every_way_to_name_recordings_finds_them(
    audio_folder: Path, recordings: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [path.name for path in recordings]
    ids = [f"id{number}" for number in range(len(names))]
    (tmp_path / "paths.txt").write_text("".join(f"{path}\n" for path in recordings))
    pairs = "".join(f"{i} {path}\n" for i, path in zip(ids, recordings, strict=True))
    (tmp_path / "wav.scp").write_text(pairs)
    (tmp_path / "pairs.txt").write_text("\ufeff" + pairs.replace("\n", "\r\n\n"), encoding="utf-8")
    write_manifest(tmp_path / "x.csv", ids, [str(p) for p in recordings], [1.0] * 6, ids)
    assert find_recordings([audio_folder]) == (names, recordings, ())
    assert find_recordings(recordings) == (names, recordings, ())
    assert find_recordings([tmp_path / "paths.txt"]).paths == recordings
    for source in ("wav.scp", "pairs.txt", "x.csv"):
        assert find_recordings([tmp_path / source]) == (ids, recordings, ()), source
    (audio_folder / "beside.lst").write_text("\n".join(names))
    try:
        assert find_recordings([audio_folder / "beside.lst"]) == (names, recordings, ())
    finally:
        (audio_folder / "beside.lst").unlink()
    (tmp_path / "elsewhere.lst").write_text("\n".join(names))
    monkeypatch.chdir(audio_folder)
    assert find_recordings([tmp_path / "elsewhere.lst"]).paths == [Path(name) for name in names]


def test_a_path_with_spaces_is_one_path(recordings: list[Path], tmp_path: Path) -> None:
    spaced = tmp_path / "my voice 1.wav"
    spaced.write_bytes(recordings[0].read_bytes())
    (tmp_path / "list.txt").write_text("my voice 1.wav\nmy voice 2.wav\n")
    found = find_recordings([tmp_path / "list.txt"])
    assert found.ids == ["my voice 1.wav", "my voice 2.wav"]  # a missing one is named later
    assert found.paths[0] == spaced


def test_commands_in_a_list_are_never_run(tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_text(f"a touch {tmp_path / 'executed'} |\n")
    with pytest.raises(ValueError, match="is a command; commands are never run"):
        find_recordings([tmp_path / "wav.scp"])
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lists no recordings"),
        (b"\xff\xfe\x00", "is not a text file: name a list"),
        (b"a x.wav\nb\n", "expected an id and a path"),
        (b"a x.wav\na y.wav\n", r"2 recordings of .*wav\.scp have one id, a"),
    ],
)
def test_lists_that_make_no_sense_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        find_recordings([tmp_path / "wav.scp"])


def test_folders_hold_what_can_be_decoded_and_the_rest_is_named(
    recordings: list[Path], tmp_path: Path
) -> None:
    audio = recordings[0].read_bytes()
    for name in ("a.wav", "b.MP4", "c.webm", "d.aiff", "no_extension", "sub/e.amr"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(audio)  # content is not looked at if the name tells
    for name in ("notes.txt", "sub/labels", "picture.jpg"):
        (tmp_path / name).write_text("words")
    found = find_recordings([tmp_path])
    assert found.ids == ["a.wav", "b.MP4", "c.webm", "d.aiff", "no_extension", "sub/e.amr"]
    left_out = [path.relative_to(tmp_path).as_posix() for path in found.left_out]
    assert left_out == ["notes.txt", "picture.jpg", "sub/labels"]


def test_lists_name_files_of_any_bytes(recordings: list[Path], tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"n\xff.wav")
    path.write_bytes(recordings[0].read_bytes())
    (tmp_path / "list.txt").write_bytes(b"n\xff.wav\n")
    assert find_recordings([tmp_path / "list.txt"]).paths == [path]
    assert read_header(path).sample_rate == 16000
