"""The law of several enrollment recordings, on real speech: more of them miss no more speakers."""

import csv
import functools
import itertools
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from simple_spk import Extractor
from simple_spk.inference.voice_stores.speaker_store import SpeakerStore
from simple_spk.inference.voice_stores.voice import Voice

SPEECH = Path(os.environ.get("SIMPLE_SPK_DATA", ""), "speech")
SPEAKERS, RECORDINGS, RATE = 25, 6, 0.01


@pytest.mark.skipif(
    not (SPEECH / "manifest.csv").is_file(), reason="SIMPLE_SPK_DATA names no folder with speech"
)
def test_more_recordings_never_raise_misses_at_a_rate() -> None:
    of_speaker = defaultdict(list)
    with (SPEECH / "manifest.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["corpus"] == "speechocean762" and row["split"] == "test":
                of_speaker[row["spk_id"]].append(SPEECH / row["wav"])
    chosen = [paths[:RECORDINGS] for paths in list(of_speaker.values())[:SPEAKERS]]
    extractor = Extractor.load()
    calibration = extractor.model.calibration
    assert calibration is not None
    sides = extractor.listen(None, *chosen)
    parts = [[voice for _, voice in side.parts] for side in sides]  # type: ignore[union-attr]
    tests = [voices[-1] for voices in parts]
    misses, false_accepts = [], []
    for count in (1, 2, 3, 5):
        store = SpeakerStore(extractor.fingerprint, extractor.comparison.keys)
        for speaker, voices in enumerate(parts):
            store.add(str(speaker), functools.reduce(Voice.joined, voices[:count]))
        accepted = np.zeros((SPEAKERS, SPEAKERS), dtype=bool)
        for name, voice in store.items():
            alone = SpeakerStore(extractor.fingerprint, extractor.comparison.keys)
            alone.add(name, voice)
            for place, best in enumerate(extractor.comparison.search(alone.snapshot(), tests)):
                limit = calibration.threshold_at(RATE, 1, best.quality).log_likelihood_ratio
                accepted[int(name), place] = best.value >= limit
        misses.append(1.0 - np.diag(accepted).mean())
        false_accepts.append(accepted[~np.eye(SPEAKERS, dtype=bool)].mean())
    assert misses[-1] <= misses[0]
    assert all(more <= fewer + 1 / SPEAKERS for fewer, more in itertools.pairwise(misses))
    assert max(false_accepts) < 5 * RATE
