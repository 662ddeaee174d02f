"""Crops of 3 s out of recordings of 20 s, by one process: ours, whole files cut, SpeechBrain's.

"whole file" reads each recording and cuts the crop out of it, as recipes do that know no better.
"SpeechBrain" is its DynamicItemDataset with the pipeline of its VoxCeleb recipe, which reads from a
random start on, and its PaddedBatch. All three make the same batches of 64 from the same files.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch
from speechbrain.dataio.batch import PaddedBatch
from speechbrain.dataio.dataio import read_audio
from speechbrain.dataio.dataset import DynamicItemDataset

from simple_spk.data.dataset import CropDataset
from simple_spk.data.manifest import Manifest, read_manifest, write_manifest
from simple_spk.data.samplers import Crop, SpeakerSampler
from tools.benchmarks.measure import Row, in_turns

RECORDINGS, SECONDS, RATE, CROP_SECONDS = 128, 20, 16000, 3.0


Candidates = dict[str, Callable[[], torch.Tensor]]  # ways to make one and the same batch


def run(options: argparse.Namespace) -> list[Row]:
    """Crops per second of each way, for both formats."""
    return loading_rows(loader_candidates, options.data, "ours", "ours is faster by", rounds=5)


def loading_rows(
    candidates_of: Callable[[Path, str, Path | None], Candidates],
    data: Path | None,
    reference: str,
    title: str,
    rounds: int,
) -> list[Row]:
    """Crops per second of each way, and under ``title`` its time as a multiple of a reference."""
    rows = []
    torch.set_num_threads(1)  # as in a worker process
    with tempfile.TemporaryDirectory() as folder:
        for audio_format in ("flac", "wav"):
            candidates = candidates_of(Path(folder), audio_format, data)
            crops = len(candidates[reference]())
            seconds = in_turns(candidates, rounds)
            rows += [
                {
                    "format": audio_format,
                    "how": name,
                    "crops per second": crops / seconds[name],
                    title: seconds[name] / seconds[reference],
                }
                for name in candidates
            ]
    return rows


def write_recordings(folder: Path, audio_format: str, data: Path | None) -> Path:
    """Write recordings of one format; returns their manifest."""
    path = folder / f"{audio_format}.csv"
    names = [f"{number}.{audio_format}" for number in range(RECORDINGS)]
    for number, name in enumerate(names):
        soundfile.write(folder / name, speech_of(number, data), RATE)
    speakers = [f"s{number // 4}" for number in range(RECORDINGS)]
    write_manifest(path, names, names, [SECONDS] * RECORDINGS, speakers)
    return path


def batch_of(manifest: Manifest) -> list[Crop]:
    """The first batch of a manifest."""
    limits = (CROP_SECONDS, CROP_SECONDS)
    return SpeakerSampler(manifest.speaker_of_row, 16, 4, limits).batch(0)


def loader_candidates(folder: Path, audio_format: str, data: Path | None) -> Candidates:
    """Ours, whole files cut, and SpeechBrain's."""
    manifest = read_manifest(write_recordings(folder, audio_format, data))
    batch = batch_of(manifest)
    dataset = CropDataset(manifest)

    def ours() -> torch.Tensor:
        return torch.stack([dataset[crop].inputs for crop in batch])

    def whole_files() -> torch.Tensor:
        crops = []
        for crop in batch:
            whole, _ = soundfile.read(manifest.wav(crop.row), dtype="float32")
            start = int(crop.position * (len(whole) - crop.samples + 1))
            crops.append(torch.from_numpy(whole[start : start + crop.samples]))
        return torch.stack(crops)

    items = {
        str(place): {
            "wav": str(manifest.wav(crop.row)),
            "start": int(crop.position * (SECONDS * RATE - crop.samples + 1)),
            "samples": crop.samples,
            "speaker": crop.label,
        }
        for place, crop in enumerate(batch)
    }
    dynamic = DynamicItemDataset(items)
    dynamic.add_dynamic_item(_read_from_start, takes=["wav", "start", "samples"], provides="signal")
    dynamic.set_output_keys(["id", "signal", "speaker"])

    def speechbrain() -> torch.Tensor:
        return PaddedBatch([dynamic[place] for place in range(len(batch))]).signal.data

    assert torch.equal(ours(), whole_files()) and torch.equal(ours(), speechbrain())
    return {"ours": ours, "whole file, then cut": whole_files, "SpeechBrain": speechbrain}


def _read_from_start(wav: str, start: int, samples: int) -> torch.Tensor:
    """The step of a SpeechBrain pipeline that reads a part of a file."""
    return read_audio({"file": wav, "start": start, "stop": start + samples})


def speech_of(number: int, data: Path | None) -> np.ndarray:
    """Real speech joined to 20 s if there is any, else noise with the envelope of speech."""
    wanted = SECONDS * RATE
    if data is None:
        random = np.random.default_rng(number)
        envelope = np.interp(np.arange(wanted), np.arange(0, wanted, 2000), random.random(160) ** 3)
        return 0.3 * envelope * random.normal(size=wanted)
    files = sorted((data / "speech").rglob("*.ogg"))[40 * number : 40 * number + 12]
    joined = np.concatenate([soundfile.read(file, dtype="float32")[0] for file in files])
    return np.resize(joined, wanted)
