"""Bootstrap intervals and AS-norm of the Vox1-E list (or one of its size), in seconds and MiB."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from simple_spk.data.trials import Trials, read_trials, speakers_of_recordings
from simple_spk.evaluation.bootstrap import compare, intervals
from simple_spk.evaluation.score_norm import cohort_statistics, normalize
from simple_spk.models.similarity import GeneralizedInnerProduct
from tools.benchmarks.measure import Row, extra_memory

COHORT, DIM, TOP_N = 6000, 256, 300


def made_list() -> tuple[Trials, NDArray[np.int64]]:
    """A list of the size of Vox1-E, and the speaker of each of its recordings."""
    random = np.random.default_rng(0)
    speakers = np.sort(random.integers(1251, size=145_160))
    starts = np.searchsorted(speakers, np.arange(1252))
    enroll = random.integers(len(speakers), size=581_480)
    is_target = np.arange(len(enroll)) % 2 == 0
    first, after = starts[speakers[enroll]], starts[speakers[enroll] + 1]
    same = first + (random.random(len(enroll)) * (after - first)).astype(np.int64)
    test = np.where(is_target, same, random.integers(len(speakers), size=len(enroll)))
    is_target = speakers[enroll] == speakers[test]
    ids = [f"{speaker}/{number}" for number, speaker in enumerate(speakers.tolist())]
    return Trials(ids, enroll.astype(np.int32), test.astype(np.int32), is_target), speakers


def statistics_candidates(folder: Path | None) -> dict[str, Callable[[], object]]:
    """What is measured, ready to run, on the real list if a folder with it is given."""
    if folder is None:
        trials, speakers = made_list()
    else:
        trials = read_trials(folder / "voxceleb" / "list_test_all.txt.gz")
        speakers = speakers_of_recordings(trials)
    random = np.random.default_rng(0)
    centers = random.standard_normal((int(speakers.max()) + 1, DIM), dtype=np.float32)
    embeddings = random.standard_normal((len(speakers), DIM), dtype=np.float32)
    embeddings *= 2.2
    embeddings += centers[speakers]
    cohort = random.standard_normal((COHORT, DIM), dtype=np.float32)
    sides = (embeddings[trials.enroll], embeddings[trials.test])
    scores = np.einsum("nd,nd->n", *sides)
    noisy = scores + 20.0 * random.standard_normal(len(scores), dtype=np.float32)
    del sides
    assert trials.is_target is not None
    of_trials = (trials.is_target, speakers[trials.enroll], speakers[trials.test])
    similarity = GeneralizedInnerProduct()

    def adaptive_norm() -> NDArray[np.float64]:
        statistics = cohort_statistics(embeddings, cohort, similarity, TOP_N)
        return normalize(scores, trials.enroll, trials.test, statistics)

    def bare_products() -> None:
        keys = torch.from_numpy(cohort).T
        for rows in torch.from_numpy(embeddings).split(2048):
            rows @ keys

    return {
        "intervals, 1,000 replicates": lambda: intervals(scores, *of_trials),
        "compare, 1,000 replicates": lambda: compare(scores, noisy, *of_trials),
        f"AS-norm, top {TOP_N} of {COHORT}, dimension {DIM}": adaptive_norm,
        "the bare products of AS-norm": bare_products,
    }


def run(options: argparse.Namespace) -> list[Row]:
    """Bootstrap intervals and AS-norm of the Vox1-E list (or one of its size)."""
    folder = options.data
    print("trials: Vox1-E" if folder else "trials: made up, of the size of Vox1-E")
    candidates = statistics_candidates(folder)
    seconds = {}
    for name, measured in candidates.items():
        start = time.perf_counter()
        measured()
        seconds[name] = time.perf_counter() - start
    del candidates
    measured_too = [name for name in seconds if name.startswith(("intervals", "AS-norm"))]
    memory = {name: extra_memory(statistics_candidates, name, folder) for name in measured_too}
    return [
        {"what": name, "seconds": value, "extra MiB": memory.get(name, "")}
        for name, value in seconds.items()
    ]
