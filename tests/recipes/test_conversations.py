"""Conversations of recipes/OpenSpeech: their RTTM files say who speaks, and no more."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from recipes.OpenSpeech import conversations
from recipes.OpenSpeech.diarization import difference, line, read_rttm, resampled
from tools.make_toy_corpus import write_speaker


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five synthetic speakers of one corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = [row for speaker in range(5) for row in write_speaker(folder, speaker, 4, seed=0)]
    path = folder / "test.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ID", "wav", "duration", "spk_id"])
        writer.writerows([f"toy/{name}", *rest] for name, *rest in rows)
    return path


def test_turns_are_where_there_is_sound(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["conversations.py", manifest, tmp_path, "--corpora", "toy", "--seconds", "15"]
    monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
    conversations.main()
    names = sorted(path.stem for path in tmp_path.glob("*.wav"))
    assert len(names) == 12
    overlapped = {"0": 0.0, "10": 0.0}
    for name in names:
        _, speakers, overlap, noise, _ = name.split("-")
        waveform, rate = soundfile.read(tmp_path / f"{name}.wav")
        turns = read_rttm(tmp_path / f"{name}.rttm")
        assert len({turn.speaker for turn in turns}) <= int(speakers)
        spoken = np.zeros(len(waveform) // 160 + 1, np.int64)
        for start, end, _ in turns:
            assert 0.0 <= start < end <= len(waveform) / rate + 0.02
            spoken[round(start * 100) : round(end * 100)] += 1
        overlapped[overlap] += np.count_nonzero(spoken > 1)
        if noise == "clear":
            power = np.array([np.mean(part**2) for part in np.array_split(waveform, len(spoken))])
            assert power[spoken > 0].mean() > 30.0 * power[spoken == 0].mean()
    assert overlapped["0"] == 0.0 < overlapped["10"]


def test_intervals_of_errors_are_paired_and_hold_the_estimate() -> None:
    random = np.random.default_rng(1)
    rows = [
        {
            "total": 60.0,
            "miss": m,
            "false_alarm": 0.0,
            "confusion": c,
            "jer": c / 60,
            "extra_speakers": 0,
        }
        for m, c in random.uniform(0.0, 10.0, (24, 2))
    ]
    worse = [row | {"miss": row["miss"] + 6.0, "jer": row["jer"] + 0.1} for row in rows]
    der, jer = resampled(rows)
    low, high = np.percentile(der, [2.5, 97.5])
    assert low < 100 * sum(r["miss"] + r["confusion"] for r in rows) / (24 * 60.0) < high
    # Conversations differ, but the second system is worse by the same in each of them.
    assert np.allclose(resampled(worse) - np.stack([der, jer]), 10.0)
    assert difference("b", worse, rows) == "| b | +10.0 [+10.0, +10.0] | +10.0 [+10.0, +10.0] |"
    assert f"[{low:.1f}, {high:.1f}]" in line("a", rows)
