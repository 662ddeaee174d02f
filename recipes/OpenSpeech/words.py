"""Isolated words joined to recordings of a few seconds."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.corpora.inspection import SILENT, fault_of, length_fault
from simple_spk.corpora.tables import Quarantined
from simple_spk.data.audio import AudioError, is_silent, read_recording

FADE_SAMPLES = 160  # 10 ms
SHORTEST_WORD_SECONDS = 4 * FADE_SAMPLES / SAMPLE_RATE
WORDS_FILE = "words.txt"  # in each speaker's folder: what its recordings were made of


def join_words(
    words: Sequence[NDArray[np.float32]], fade_samples: int = FADE_SAMPLES
) -> NDArray[np.float32]:
    """One waveform of several, each (samples,), with cross-faded joints.

    Gains add up to one, so that no joint is audible as a step or a change of level.
    """
    rise = (np.arange(fade_samples, dtype=np.float32) + 0.5) / fade_samples
    lengths = [len(word) - fade_samples for word in words]
    joined = np.zeros(sum(lengths) + fade_samples, dtype=np.float32)
    for number, (word, start) in enumerate(zip(words, np.cumsum([0, *lengths[:-1]]), strict=True)):
        faded = word.copy()
        if number > 0:
            faded[:fade_samples] *= rise
        if number < len(words) - 1:
            faded[-fade_samples:] *= rise[::-1]
        joined[start : start + len(word)] += faded
    return joined


def make_recordings(
    words: Sequence[Path], folder: Path, recording_seconds: float = 5.5
) -> list[Quarantined]:
    """Join a speaker's words to recordings of about this length; returns the unusable words.

    Each word is used once, in an order that depends only on the folder's name. A folder that was
    made of the same files is kept.
    """
    source = [f"{path} {path.stat().st_size}" for path in words]
    faults = _faults_if_made(folder, source)
    if faults is not None:
        return faults
    faults = []
    waveforms = []
    for path in words:
        try:
            waveform = read_recording(path, SAMPLE_RATE)
            fault = length_fault(len(waveform) / SAMPLE_RATE, SHORTEST_WORD_SECONDS)
            fault = fault or (SILENT if is_silent(waveform) else None)
        except (AudioError, OSError) as error:
            fault = fault_of(error)
        if fault is None:
            waveforms.append(waveform)
        else:
            faults.append(Quarantined(str(path), *fault))
    name = hashlib.sha256(folder.name.encode()).digest()
    order = np.random.default_rng(int.from_bytes(name[:8], "big")).permutation(len(waveforms))
    seconds = sum(map(len, waveforms)) / SAMPLE_RATE
    count = min(max(1, round(seconds / recording_seconds)), len(waveforms))
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for number, chosen in enumerate(np.array_split(order, count) if count else []):
        joined = join_words([waveforms[index] for index in chosen])
        soundfile.write(partial / f"{number:03}.flac", joined, SAMPLE_RATE, subtype="PCM_16")
    lines = [f"used {text}" for text in source]
    lines += ["fault " + "\t".join(fault).replace("\n", " ") for fault in faults]
    (partial / WORDS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return faults


def _faults_if_made(folder: Path, source: Sequence[str]) -> list[Quarantined] | None:
    """The faults found when the folder was made of these files; None if it was not."""
    note = folder / WORDS_FILE
    if not note.is_file():
        return None
    lines = note.read_text(encoding="utf-8").splitlines()
    if [line.removeprefix("used ") for line in lines if line.startswith("used ")] != list(source):
        return None
    faults = (line.removeprefix("fault ") for line in lines if line.startswith("fault "))
    # Older versions wrote no kind beside the details.
    rows = (fault.split("\t", 2) for fault in faults)
    return [Quarantined(path, fields[0], fields[-1]) for path, *fields in rows]
