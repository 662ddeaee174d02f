"""What is wrong with audio files: looked at from the header and the end, or decoded whole."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import AudioError, duration_seconds, read_crop, read_recording

FILES_PER_TASK = 64
FULL_SCALE = 0.999
# Just below one: the last of the crops that a recording has. Reading it shows whether the file
# reaches as far as its header says, without decoding the rest.
LAST_CROP = float(np.nextafter(1.0, 0.0))
END_SAMPLES = 160


class AudioFacts(NamedTuple):
    """Facts about n files, each (n,); nan in those that only decoding shows, if not decoded."""

    seconds: NDArray[np.float64]  # nan: the file cannot be used
    deviation: NDArray[np.float64]  # standard deviation of the samples, 1 being full scale
    full_scale_share: NDArray[np.float64]  # of the samples, as many touch full scale
    digests: NDArray[np.uint64]  # of the file's bytes; 0: not computed
    faults: dict[int, str]  # index of a file that cannot be used -> why


def inspect_audio(
    paths: Sequence[str],
    decode: bool = False,
    digest: NDArray[np.bool_] | None = None,
    workers: int = 1,
    progress: bool = True,
) -> AudioFacts:
    """Facts about files, gathered by ``workers`` processes; decode: from all of their samples.

    digest (n,) says for which files a digest of the bytes is wanted (None: for none).
    """
    digest = np.zeros(len(paths), dtype=bool) if digest is None else digest
    starts = range(0, len(paths), FILES_PER_TASK)
    tasks = [(paths[i : i + FILES_PER_TASK], digest[i : i + FILES_PER_TASK]) for i in starts]
    inspect = partial(_inspect_files, decode=decode)
    bar = tqdm(total=len(paths), unit="file", desc="inspect", disable=not progress)
    parts = []
    with bar:
        if workers <= 1:
            for task in tasks:
                parts.append(inspect(task))
                bar.update(len(task[0]))
        else:
            try:
                with ProcessPoolExecutor(workers) as pool:
                    for part in pool.map(inspect, tasks):
                        parts.append(part)
                        bar.update(len(part.seconds))
            except BrokenProcessPool as error:
                raise OSError(
                    "a process that inspects audio was killed, probably for want of memory: "
                    "give fewer --processes"
                ) from error
    faults = {
        start + index: fault
        for start, part in zip(starts, parts, strict=True)
        for index, fault in part.faults.items()
    }
    if not parts:
        return _inspect_files(([], digest), decode)
    return AudioFacts(
        np.concatenate([part.seconds for part in parts]),
        np.concatenate([part.deviation for part in parts]),
        np.concatenate([part.full_scale_share for part in parts]),
        np.concatenate([part.digests for part in parts]),
        faults,
    )


def _inspect_files(task: tuple[Sequence[str], NDArray[np.bool_]], decode: bool) -> AudioFacts:
    """Facts about a few files, which share a task."""
    paths, digest = task
    facts = AudioFacts(
        np.full(len(paths), np.nan),
        np.full(len(paths), np.nan),
        np.full(len(paths), np.nan),
        np.zeros(len(paths), dtype=np.uint64),
        {},
    )
    for index, path in enumerate(paths):
        try:
            if decode:
                waveform = read_recording(path, SAMPLE_RATE)
                facts.seconds[index] = len(waveform) / SAMPLE_RATE
                facts.deviation[index] = waveform.std(dtype=np.float64)
                facts.full_scale_share[index] = np.mean(np.abs(waveform) >= FULL_SCALE)
            else:
                seconds = duration_seconds(path)
                _require_end(path)
                facts.seconds[index] = seconds
            if digest[index]:
                facts.digests[index] = _digest(path)
        except (AudioError, OSError) as error:
            facts.faults[index] = str(error)
    return facts


def _require_end(path: str) -> None:
    """Raise AudioError if a file does not reach as far as its header says; little is decoded."""
    if not path.lower().endswith(".m4a"):
        read_crop(path, END_SAMPLES, LAST_CROP, SAMPLE_RATE)
        return
    # Crops of m4a are cut from the decoded whole, but its index says where its packets lie.
    with av.open(f"file:{path}", format="mp4", metadata_errors="replace") as container:
        index = container.streams.audio[0].index_entries
        end = index[len(index) - 1].pos + index[len(index) - 1].size if len(index) else 0
    size = os.path.getsize(path)
    if end > size:
        raise AudioError(
            f"{path} has {size} bytes, but packets up to byte {end}: fetch it again, or remove it"
        )


def _digest(path: str) -> int:
    """64 bits of a hash of a file's bytes."""
    with open(path, "rb") as file:
        return int.from_bytes(hashlib.blake2b(file.read(), digest_size=8).digest(), "little")
