"""Identifying a recording of 5 s among 1,000 to 100,000 voices, beside embedding it alone.

Both use the built-in model and samples in memory, in turns; "of embedding" is the ratio. The voices
are random vectors of the usual length, read from a file as simple-spk enroll writes it. Several
recordings are identified, and embedded, in one call.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from simple_spk.inference.extractor import Extractor
from simple_spk.inference.voice_stores.voice import Voice, usual_measures
from simple_spk.inference.voice_stores.voice_file import VoiceFile
from tools.benchmarks.extract import RATE, speech
from tools.benchmarks.measure import Row, in_turns

THREADS = 1
SECONDS, AT_ONCE = 5.0, 8
NUMBERS_OF_VOICES = (1_000, 10_000, 100_000)


def run(options: argparse.Namespace) -> list[Row]:
    """Milliseconds per recording, alone and in a call of several."""
    extractor = Extractor.load()
    spoken = [speech(SECONDS, RATE, options.data, seed) for seed in range(AT_ONCE)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in NUMBERS_OF_VOICES:
            path = Path(folder, "voices.db")
            write_voices(path, count, extractor.embed(spoken[0], RATE), extractor.fingerprint)
            extractor.load_voices(path)
            times = in_turns(
                {
                    "embed 1": lambda: extractor.embed(spoken[0], RATE),
                    "identify 1": lambda: extractor.identify(spoken[0], RATE),
                    f"embed {AT_ONCE}": lambda: extractor.embed(spoken, RATE),
                    f"identify {AT_ONCE}": lambda: extractor.identify_each(spoken, RATE),
                },
                rounds=3,
            )
            for at_once in (1, AT_ONCE):
                embed, identify = (times[f"{what} {at_once}"] for what in ("embed", "identify"))
                rows.append(
                    {
                        "voices": count,
                        "recordings in a call": at_once,
                        "embed, ms each": 1000 * embed / at_once,
                        "identify, ms each": 1000 * identify / at_once,
                        "of embedding": identify / embed,
                    }
                )
    return rows


def write_voices(path: Path, count: int, embedding: np.ndarray, fingerprint: str) -> None:
    """A file of random voices as long as an embedding (1, dim)."""
    table = np.random.default_rng(0).normal(size=(count, embedding.shape[1]))
    table *= np.linalg.norm(embedding) / np.linalg.norm(table, axis=1, keepdims=True)
    rows = table.astype(np.float32)
    seconds = np.full(count, SECONDS)
    measures = usual_measures(rows, np.ones(count, np.int64), seconds)
    voices = (Voice(row, 1, SECONDS, known) for row, known in zip(rows, measures, strict=True))
    names = (f"voice {number}" for number in range(count))
    VoiceFile.write(path, fingerprint, zip(names, voices, strict=True))
