"""Embedding recordings of 1 to 20 s: ours, a plain loop of one at a time, the encoder alone.

"plain loop" reads a file with soundfile, computes features and encodes them, without gradients, as
one writes it. "encoder alone" is the network as it was trained on the padded features of batches of
similar length, features in memory. All embed the same recordings, in turns, to the same embeddings;
"ours in bf16", an option, to nearly the same.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from simple_spk.data.audio import read_recording
from simple_spk.inference.batch_embedding import BATCH_SECONDS, embed_recordings, length_batches
from simple_spk.inference.cpu_resnet import CpuEmbedding
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from tools.benchmarks.measure import Row, in_turns

RATE, SHORTEST_SECONDS, LONGEST_SECONDS = 16000, 1.0, 20.0
# Models, and how many recordings each embeds per round.
MODELS: dict[str, tuple[dict, int]] = {
    "ResNet-34": ({}, 24),
    "ResNet-34 of width 16, stem stride 2": ({"width": 16, "stem_stride": 2}, 96),
}


def run(options: argparse.Namespace) -> list[Row]:
    """Recordings per second and real-time factor of each way."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (shape, count) in MODELS.items():
            torch.manual_seed(0)
            paths, seconds = write_recordings(Path(folder), count, options.data)
            candidates = extract_candidates(ResNet(**shape).eval(), paths, seconds)
            times = in_turns(candidates, rounds=3)
            rows += [
                {
                    "model": name,
                    "how": how,
                    "recordings per second": count / times[how],
                    "times real time": float(seconds.sum()) / times[how],
                    "of ours": times[how] / times["ours"],
                }
                for how in candidates
            ]
    return rows


def extract_candidates(
    encoder: nn.Module, paths: list[Path], seconds: np.ndarray
) -> dict[str, Callable[[], torch.Tensor]]:
    """Four ways to embed the same recordings."""
    front_end = Fbank().eval()
    embed = CpuEmbedding(front_end, encoder)

    embed_bf16 = CpuEmbedding(front_end, encoder, torch.bfloat16)

    def ours() -> torch.Tensor:
        return torch.from_numpy(embed_recordings(paths, embed))

    def ours_bf16() -> torch.Tensor:
        return torch.from_numpy(embed_recordings(paths, embed_bf16))

    @torch.no_grad()
    def loop() -> torch.Tensor:
        embeddings = []
        for path in paths:
            waveform, _ = soundfile.read(path, dtype="float32")
            features, _ = front_end(torch.from_numpy(waveform)[None])
            embeddings.append(encoder(features))
        return torch.cat(embeddings)

    batches = length_batches(seconds, BATCH_SECONDS)
    padded = []
    with torch.no_grad():
        for batch in batches:
            read = [torch.from_numpy(soundfile.read(paths[i], dtype="float32")[0]) for i in batch]
            lengths = torch.tensor([len(waveform) for waveform in read])
            padded.append(front_end(pad_sequence(read, batch_first=True), lengths))

    @torch.no_grad()
    def encoder_alone() -> torch.Tensor:
        embeddings = torch.cat([encoder(*features) for features in padded])
        return embeddings[torch.from_numpy(np.argsort(np.concatenate(batches)))]

    expected = loop()
    for other, tolerance in ((ours(), 1e-4), (encoder_alone(), 1e-4), (ours_bf16(), 1e-2)):
        assert ((other - expected).norm(dim=1) / expected.norm(dim=1)).max() < tolerance
    return {
        "ours": ours,
        "ours in bf16": ours_bf16,
        "plain loop": loop,
        "encoder alone": encoder_alone,
    }


def write_recordings(folder: Path, count: int, data: Path | None) -> tuple[list[Path], np.ndarray]:
    """Flac files of speech, and their lengths in seconds."""
    random = np.random.default_rng(0)
    seconds = random.uniform(SHORTEST_SECONDS, LONGEST_SECONDS, count).round(2)
    paths = [folder / f"{count}-{number}.flac" for number in range(count)]
    for number, path in enumerate(paths):
        soundfile.write(path, speech(seconds[number], RATE, data, number), RATE)
    return paths, seconds


def speech(seconds: float, sample_rate: int, data: Path | None, seed: int) -> NDArray[np.float32]:
    """So much real speech (samples,), if there is a folder of it, else noise like it."""
    wanted = int(seconds * sample_rate)
    files = sorted((data / "speech").rglob("*.ogg"))[:400] if data else []
    if files:
        start = 9 * seed % len(files)
        some = [read_recording(file, sample_rate) for file in files[start : start + 8]]
        return np.resize(np.concatenate(some), wanted)
    random = np.random.default_rng(seed)
    corners = random.random(wanted // 2000 + 2) ** 3
    envelope = np.interp(np.arange(wanted) / 2000, np.arange(len(corners)), corners)
    return (0.3 * envelope * random.standard_normal(wanted)).astype(np.float32)
