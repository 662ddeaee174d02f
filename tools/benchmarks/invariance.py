"""Does an embedding depend on its batch, its order or on earlier calls? The built-in model.

Each of 200 recordings is embedded alone, which the others are compared with: all at once, shuffled,
as the padded batches that GPUs compute, alone once more after 1,000 other calls. The difference is
that of two embeddings, divided by the length of the first; the largest is shown.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from simple_spk import Extractor
from simple_spk.data.audio import read_recording
from tools.benchmarks.extract import write_recordings
from tools.benchmarks.measure import Row

THREADS = 1
RECORDINGS, OTHER_CALLS, PADDED_AT_ONCE = 200, 1000, 8


def run(options: argparse.Namespace) -> list[Row]:
    """The largest relative difference of each way to embed the same recordings."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        paths, _ = write_recordings(folder, RECORDINGS, options.data)
        extractor = Extractor.load()
        alone = one_by_one(extractor, paths, "alone")
        order = np.random.default_rng(0).permutation(len(paths))
        shuffled = np.empty_like(alone)
        shuffled[order] = extractor.embed([paths[place] for place in order])
        found = {
            "all at once": extractor.embed(paths),
            "shuffled": shuffled,
            "padded batches": padded(extractor, paths),
        }
        others = np.random.default_rng(1).integers(len(paths), size=OTHER_CALLS)
        one_by_one(extractor, [paths[place] for place in others], "other calls")
        found["alone, after other calls"] = one_by_one(extractor, paths, "alone again")
    lengths = np.linalg.norm(alone, axis=1)
    return [
        {
            "how": how,
            "largest relative difference": float(
                (np.linalg.norm(embeddings - alone, axis=1) / lengths).max()
            ),
        }
        for how, embeddings in found.items()
    ]


def one_by_one(extractor: Extractor, paths: list[Path], what: str) -> NDArray[np.float32]:
    """Embeddings (n, dim), each of a call of its own."""
    return np.concatenate([extractor.embed(path) for path in tqdm(paths, what)])


@torch.no_grad()
def padded(extractor: Extractor, paths: list[Path]) -> NDArray[np.float32]:
    """Embeddings (n, dim) by the network as it was trained, recordings of any length together."""
    model, batches = extractor.model, []
    for start in tqdm(range(0, len(paths), PADDED_AT_ONCE), "padded"):
        some = paths[start : start + PADDED_AT_ONCE]
        read = [torch.from_numpy(read_recording(path)) for path in some]
        lengths = torch.tensor([len(waveform) for waveform in read])
        features = model.front_end(pad_sequence(read, batch_first=True), lengths)
        batches.append(model.encoder(*features).numpy())
    return np.concatenate(batches)
