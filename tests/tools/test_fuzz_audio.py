"""Damaged recordings end in an embedding or a clear error; tools/fuzz_audio.py runs many more."""

from collections import Counter
from pathlib import Path

from tools.fuzz_audio import run


def test_damaged_recordings(tmp_path: Path) -> None:
    outcomes = dict(run(tmp_path / "cases", count=200, seed=0, at_once=200))
    assert sorted(outcomes) == list(range(200))
    assert not {n: outcome for n, outcome in outcomes.items() if outcome.startswith("BAD")}
    counted = Counter(outcomes.values())
    assert counted["embedding"] > 30  # the damage is not so bad that only headers are tested
    assert sum(counted.values()) - counted["embedding"] > 30
