"""Converting m4a to flac: files per second of one worker, beside one ffmpeg process per file."""

import argparse
import os
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.corpora.conversion import Settings, convert
from simple_spk.corpora.inspection import AudioFile
from simple_spk.data.audio import read_recording
from tools.benchmarks.measure import Row, in_turns
from tools.write_m4a import write_m4a

FILES = 16
COPIES = 16  # of each for ours, which is too fast to be timed on a few files
SECONDS = 8.0  # the mean of VoxCeleb2
ROUNDS = 2


def run(options: argparse.Namespace) -> list[Row]:
    """Files per second, for flac and wav; ours decodes each result again and compares it.

    The start of our worker process, once in a run, is measured and taken off.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sources = _make_sources(folder / "m4a", options.data)
        for audio_format in ("flac", "wav"):
            rows += _compare(
                folder, sources, audio_format, "speech" if options.data else "noisy tones"
            )
    return rows


def _make_sources(folder: Path, data: Path | None) -> list[AudioFile]:
    """Encode recordings of real speech, or else of tones in noise, as VoxCeleb2 has them."""
    speech = sorted((data / "speech").rglob("*.ogg"))[: 4 * FILES] if data else []
    if data is not None and not speech:
        raise FileNotFoundError(f"no .ogg files below {data}/speech: name another --data folder")
    sources = []
    for number in range(FILES):
        original = folder / f"{number:02d}-0.m4a"
        write_m4a(original, _waveform(number, speech))
        for copy in range(COPIES):
            path = folder / f"{number:02d}-{copy}.m4a"
            if copy:
                os.link(original, path)
            sources.append(AudioFile(path.name, path.stat().st_size, path.stat().st_mtime_ns))
    return sources


def _waveform(number: int, speech: list[Path]) -> NDArray[np.float32]:
    """Eight seconds of recordings joined together, or of a tone in noise."""
    samples = round(SECONDS * SAMPLE_RATE)
    if speech:
        parts = [read_recording(speech[(4 * number + part) % len(speech)]) for part in range(4)]
        return np.resize(np.concatenate(parts), samples)
    time = np.arange(samples) / SAMPLE_RATE
    tones = sum(np.sin(2 * np.pi * (100 + number) * n * time) / n for n in range(1, 9))
    noise = np.random.default_rng(number).standard_normal(samples)
    return (0.1 * tones + 0.01 * noise).astype(np.float32)


def _compare(folder: Path, sources: list[AudioFile], audio_format: str, what: str) -> list[Row]:
    """A row for ours, and one for ffmpeg."""
    numbers = count()

    def ours(chosen: list[AudioFile]) -> None:
        target = folder / f"ours-{audio_format}-{next(numbers)}"
        settings = Settings("flac" if audio_format == "flac" else "wav")
        convert(folder / "m4a", chosen, target / "audio", target / "journal", settings, workers=1)

    def ffmpeg() -> None:
        target = folder / f"ffmpeg-{audio_format}-{next(numbers)}"
        target.mkdir()
        for source in sources[::COPIES]:
            output = target / f"{Path(source.name).stem}.{audio_format}"
            wanted = ("-ac", "1", "-ar", str(SAMPLE_RATE), str(output))
            command = ["ffmpeg", "-v", "error", "-i", str(folder / "m4a" / source.name), *wanted]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    candidates = {"ours": lambda: ours(sources), "start": lambda: ours(sources[:1])}
    if shutil.which("ffmpeg") is not None:
        candidates["ffmpeg"] = ffmpeg
    seconds = in_turns(candidates, ROUNDS)
    per_file = (seconds["ours"] - seconds["start"]) / (FILES * COPIES - 1)
    common = {"format": audio_format, "audio": what}
    row = {**common, "converter": "ours, checked", "files per second": 1 / per_file}
    if "ffmpeg" not in seconds:
        missing = {**common, "converter": "ffmpeg is not installed", "files per second": "-"}
        return [{**row, "ratio": "-"}, {**missing, "ratio": "-"}]
    theirs = seconds["ffmpeg"] / FILES
    reference = {**common, "converter": "ffmpeg per file", "files per second": 1 / theirs}
    return [{**row, "ratio": theirs / per_file}, {**reference, "ratio": 1.0}]
