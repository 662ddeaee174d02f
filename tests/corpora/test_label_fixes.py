"""Corrections of labels: what a file says is done, no more, and mistakes are named."""

from pathlib import Path

import pytest

from simple_spk.corpora.label_fixes import LabelFix, fix_labels, read_label_fixes, write_label_fixes
from simple_spk.corpora.tables import Utterance


def utterance(speaker: str, take: int, session: str = "s0") -> Utterance:
    return Utterance(f"{speaker}/{take} x", f"{speaker}{take}.wav", 2.0, speaker, "en", session)


ALL = [utterance(speaker, take) for speaker in "abcd" for take in range(3)]


def test_recordings_are_dropped_and_speakers_merged(tmp_path: Path) -> None:
    path = tmp_path / "fixes.csv"
    fixes = [
        LabelFix("drop", "a/1%20x", "a", "-0.3", "0.7"),
        LabelFix("drop", "b/1%20x", "c"),  # its speaker is another one now
        LabelFix("merge", "c", "b", "7.1"),
        LabelFix("merge", "d", "c"),
        LabelFix("merge", "a", "elsewhere"),
    ]
    write_label_fixes(path, fixes)
    assert read_label_fixes(path) == fixes
    kept, faults = fix_labels(ALL, path)
    assert [fault.source for fault in faults] == ["a/1 x"]
    assert faults[0].kind == "wrong label"
    assert [one.name for one in kept] == [one.name for one in ALL if one.name != "a/1 x"]
    assert {one.name[0]: one.speaker for one in kept} == {"a": "a", "b": "b", "c": "b", "d": "b"}
    sessions = {one.session for one in kept if one.speaker == "b"}
    assert len(sessions) == 3, "sessions of merged accounts stay apart"


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    write_label_fixes(tmp_path / "fixes.csv", [])
    assert fix_labels(ALL, tmp_path / "fixes.csv") == (ALL, [])


@pytest.mark.parametrize(
    "content, words",
    [
        (b"name,speaker\n", "lacks the columns action"),
        (b"action,name,speaker\ndelete,x,y\n", "line 2: found 'delete', 'x', 'y'"),
        (b"action,name,speaker\ndrop,x\n", "expected drop or merge, a name and a speaker"),
        (b"action,name,speaker\ndrop,other,a\n", "names none of these 12 recordings"),
        (b"\xff\xfe", "is not a CSV file in UTF-8"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "fixes.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        fix_labels(ALL, path)
