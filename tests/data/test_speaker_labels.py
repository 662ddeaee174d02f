"""Laws of reading whose a recording is."""

from pathlib import Path

import pytest

from simple_spk.data.manifest import read_speakers, write_manifest

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
