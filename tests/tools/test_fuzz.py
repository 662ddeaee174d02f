"""Damaged files of every kind are read or refused within limits; tools/fuzz.py runs many more."""

from collections import Counter
from pathlib import Path

import pytest

from tools import fuzz

MUTANTS = {"audio": 120, "model_folder": 60, "checkpoint": 60}  # the slower ones


@pytest.mark.parametrize("name", sorted({*fuzz.NAMES} - {"bombs"}))
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    count = MUTANTS.get(name, 200)
    outcomes = list(fuzz.run(name, tmp_path / "files", count))
    assert [one.number for one in outcomes] == list(range(count))
    assert not [one for one in outcomes if one.failed]
    counts = Counter(one.answer for one in outcomes)
    assert counts["read"] and counts["refused"]  # neither are all damages fatal, nor harmless


def test_bombs_take_less_than_two_gigabytes(tmp_path: Path) -> None:
    outcomes = list(fuzz.run("bombs", tmp_path / "files", 1000))
    assert len(outcomes) > 30
    for one in outcomes:
        assert one.answer == "refused", one
        assert 0 < one.peak_bytes < 2e9, one


def test_a_reader_that_fails_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This process may have used much memory in other tests.
    monkeypatch.setattr(fuzz, "BYTES_ALLOWED", 2**40)

    class Kind:
        """A reader that raises what it is told."""

        def __init__(self, error: Exception) -> None:
            self.error = error

        def read(self, path: Path) -> None:
            raise self.error

    path = tmp_path / "file.txt"
    for error, failed in (
        (ValueError("file.txt is damaged"), False),
        (ValueError("something is damaged"), True),
        (KeyError("file.txt"), True),
        (MemoryError(), True),
    ):
        assert fuzz.outcome_of(Kind(error), path, 0).failed is failed
