"""recipes/OpenSpeech/trust.py: the tables are those of the decisions, and embeddings are kept."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from recipes.OpenSpeech import trust
from simple_spk.data.manifest import write_manifest
from simple_spk.inference.extractor import Extractor

SPEAKERS, RECORDINGS = 3, 6


@pytest.fixture
def data(noisy_tone: Callable[..., NDArray[np.float32]], tmp_path: Path) -> Path:
    """Test speakers of one corpus; under the other condition they sound the same."""
    names, wavs, speakers = [], [], []
    for speaker, take in itertools.product(range(SPEAKERS), range(RECORDINGS)):
        names.append(f"speechocean762/s{speaker}/{take}.wav")
        wavs.append(f"{speaker}-{take}.wav")
        speakers.append(f"s{speaker}")
        waveform = noisy_tone(1.2, 90.0 + 80 * speaker, 10 * speaker + take)
        soundfile.write(tmp_path / wavs[-1], waveform, 16000)
    seconds = [1.2] * len(names)
    for table, prefix in (("test", ""), ("test_2s", ""), ("test_conditions", "telephone/")):
        listed = [prefix + name for name in names]
        write_manifest(tmp_path / f"{table}.csv", listed, wavs, seconds, speakers)
    lines = [
        f"{int(a.split('/')[1] == b.split('/')[1])} {a} {b}\n"
        for a, b in itertools.combinations(names, 2)
    ]
    (tmp_path / "test_trials_speechocean762.txt").write_text("".join(lines))
    return tmp_path


def test_tables_are_those_of_decisions(
    data: Path, calibrated_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (("whole", "whole"), ("whole", "telephone"))
    monkeypatch.setattr(trust, "ROWS", [(" ".join(r), "speechocean762", *r) for r in rows])
    monkeypatch.setattr(trust, "REPLICATES", 5)
    monkeypatch.setattr(trust, "ENROLLMENTS", (1, 2))
    monkeypatch.setattr(trust, "GALLERIES", (2, 5))
    monkeypatch.setattr(trust, "RATE", 0.3)
    trust.run(data, str(calibrated_folder), data / "tables.json")
    tables = json.loads((data / "tables.json").read_text())
    assert [len(table) for table in tables.values()] == [2, 2, 2]
    extractor = Extractor.load(calibrated_folder)
    accepted: dict[bool, list[bool]] = {True: [], False: []}
    files = sorted(data.glob("?-?.wav"))
    for one, other in itertools.combinations(files, 2):
        decision = extractor.verify(one, other, false_accept_rate=0.3)
        assert decision.log_likelihood_ratio is not None and decision.threshold is not None
        is_target = one.name[0] == other.name[0]
        accepted[is_target].append(decision.log_likelihood_ratio >= decision.threshold)
    whole = tables["conditions"][0]
    false = float(whole["real FA at 0.3"].split()[0])
    assert false == pytest.approx(1e3 * np.mean(accepted[False]), rel=0.01)
    assert float(whole["misses"].split()[0]) == pytest.approx(
        100 * (1 - np.mean(accepted[True])), rel=0.01
    )
    for path in files:  # from now on kept embeddings are used
        path.unlink()
    trust.run(data, str(calibrated_folder), data / "again.json")
    assert json.loads((data / "again.json").read_text()) == tables


def test_a_share_weighs_speakers_as_often_as_they_are_drawn() -> None:
    accepted = np.array([True, False, True])
    one, other = np.array([0, 0, 1]), np.array([1, 2, 2])
    measure = trust.share(accepted, one, other, 3)
    assert measure(np.ones(3)) == pytest.approx(2 / 3)
    assert measure(np.array([2.0, 1.0, 1.0])) == pytest.approx((2 + 1) / (2 + 2 + 1))
