"""Isolated words joined to recordings of a few seconds."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import AudioError, read_recording

RECORDING_SECONDS = 5.5
FADE_SAMPLES = 160  # 10 ms
SHORTEST_WORD_SAMPLES = 4 * FADE_SAMPLES
WORDS_FILE = "words.txt"  # in each speaker's folder: what its recordings were made of


def join_words(
    words: Sequence[NDArray[np.float32]], fade_samples: int = FADE_SAMPLES
) -> NDArray[np.float32]:
    """One waveform of several, each (samples,), with cross-faded joints.

    Gains add up to one, so that no joint is heard as a step or as a change of level.
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


def make_recordings(words: Sequence[Path], folder: Path) -> dict[str, str]:
    """Join a speaker's words to recordings of about 5.5 s in a folder; name the unusable ones.

    Each word is used once, in an order that depends on the folder's name alone. A folder that was
    made of just these files is left as it is.
    """
    source = [f"{path} {path.stat().st_size}" for path in words]
    faults = _faults_if_made(folder, source)
    if faults is not None:
        return faults
    faults = {}
    waveforms = []
    for path in words:
        try:
            waveform = read_recording(path, SAMPLE_RATE)
        except (AudioError, OSError) as error:
            faults[str(path)] = f"cannot be read: {error}".replace("\n", " ")
            continue
        if len(waveform) < SHORTEST_WORD_SAMPLES:
            faults[str(path)] = f"is short: {len(waveform) / SAMPLE_RATE:.3f} s"
        elif not waveform.any():
            faults[str(path)] = "is silent"
        else:
            waveforms.append(waveform)
    name = hashlib.sha256(folder.name.encode()).digest()
    order = np.random.default_rng(int.from_bytes(name[:8], "big")).permutation(len(waveforms))
    seconds = sum(map(len, waveforms)) / SAMPLE_RATE
    count = min(max(1, round(seconds / RECORDING_SECONDS)), len(waveforms))
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for number, chosen in enumerate(np.array_split(order, count) if count else []):
        joined = join_words([waveforms[index] for index in chosen])
        soundfile.write(partial / f"{number:03}.flac", joined, SAMPLE_RATE, subtype="PCM_16")
    lines = [f"used {text}" for text in source]
    lines += [f"fault {path}\t{reason}" for path, reason in faults.items()]
    (partial / WORDS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return faults


def _faults_if_made(folder: Path, source: Sequence[str]) -> dict[str, str] | None:
    """The faults found when the folder was made of these files; None if it was not."""
    note = folder / WORDS_FILE
    if not note.is_file():
        return None
    lines = note.read_text(encoding="utf-8").splitlines()
    if [line.removeprefix("used ") for line in lines if line.startswith("used ")] != list(source):
        return None
    faults = (line.removeprefix("fault ") for line in lines if line.startswith("fault "))
    return dict(fault.split("\t", 1) for fault in faults)
