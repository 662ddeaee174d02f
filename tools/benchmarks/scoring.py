"""Scoring the VoxCeleb1 lists: from the text of a list and embeddings (256) to error rates."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import cosine_similarity

from simple_spk.data.trials import Trials, read_trials
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.scoring import TRIALS_AT_ONCE, score_trials
from simple_spk.models.similarity import GeneralizedInnerProduct
from tools.benchmarks.measure import Row, in_turns

LISTS = {
    "Vox1-O": "veri_test2.txt.gz",
    "Vox1-E": "list_test_all.txt.gz",
    "Vox1-H": "list_test_hard.txt.gz",
}
DIM = 256
SAMPLED_TRIALS = 2000  # a call per trial is timed on so many, and multiplied


def run(options: argparse.Namespace) -> list[Row]:
    """Seconds of each stage, of the whole, of the floor, and of a call per trial.

    The floor is what numpy cannot do without: rows gathered, multiplied, and sorted; once as one
    would write it down, and once in blocks that stay in the processor's cache. A call of sklearn's
    cosine_similarity per trial is what scripts often do; it is timed on a sample of the list, and
    its seconds are extrapolated.
    """
    folder = lists_folder(options.data)
    rows = []
    for name, file in LISTS.items():
        path = folder / file
        trials = read_trials(path)
        generator = np.random.default_rng(0)
        embeddings = generator.standard_normal((len(trials.ids), DIM), dtype=np.float32)
        similarity = GeneralizedInnerProduct()
        scores = score_trials(trials, embeddings, similarity)
        seconds = in_turns(candidates(path, trials, embeddings, scores), rounds=3)
        per_trial = seconds_per_call(trials, embeddings)
        rows.append(
            {
                "list": name,
                "trials": len(trials),
                "recordings": len(trials.ids),
                "parse s": seconds["parse"],
                "score s": seconds["score"],
                "metrics s": seconds["metrics"],
                "whole s": seconds["whole"],
                "floor s": seconds["floor"],
                "floor in blocks s": seconds["floor in blocks"],
                "whole / floor": seconds["whole"] / seconds["floor"],
                "whole / floor in blocks": seconds["whole"] / seconds["floor in blocks"],
                "call per trial s (extrapolated)": per_trial * len(trials),
                "call per trial / whole": per_trial * len(trials) / seconds["whole"],
            }
        )
    return rows


def lists_folder(data: Path | None) -> Path:
    """Where the official lists are."""
    folder = (data or Path()) / "voxceleb"
    if not all((folder / file).is_file() for file in LISTS.values()):
        raise SystemExit(
            f"no {', '.join(LISTS.values())} in {folder}: name the folder that holds voxceleb/ "
            "with --data or SIMPLE_SPK_DATA"
        )
    return folder


def candidates(
    path: Path, trials: Trials, embeddings: NDArray[np.float32], scores: NDArray[np.float32]
) -> dict[str, Callable[[], object]]:
    """The stages, the whole and the floor."""
    similarity, is_target = GeneralizedInnerProduct(), trials.is_target
    assert is_target is not None

    def whole() -> None:
        read = read_trials(path)
        assert read.is_target is not None
        summary(score_trials(read, embeddings, similarity), read.is_target)

    def floor() -> None:
        np.sort(np.einsum("ij,ij->i", embeddings[trials.enroll], embeddings[trials.test]))

    def floor_in_blocks() -> None:
        products = np.empty(len(trials), dtype=np.float32)
        for start in range(0, len(trials), TRIALS_AT_ONCE):
            some = slice(start, start + TRIALS_AT_ONCE)
            enroll, test = embeddings[trials.enroll[some]], embeddings[trials.test[some]]
            np.einsum("ij,ij->i", enroll, test, out=products[some])
        products.sort()

    return {
        "parse": lambda: read_trials(path),
        "score": lambda: score_trials(trials, embeddings, similarity),
        "metrics": lambda: summary(scores, is_target),
        "whole": whole,
        "floor": floor,
        "floor in blocks": floor_in_blocks,
    }


def seconds_per_call(trials: Trials, embeddings: NDArray[np.float32]) -> float:
    """Seconds of one call of sklearn's cosine_similarity for one trial."""
    sample = np.random.default_rng(0).choice(len(trials), SAMPLED_TRIALS, replace=False)
    start = time.perf_counter()
    for enroll, test in zip(trials.enroll[sample], trials.test[sample], strict=True):
        cosine_similarity(embeddings[enroll : enroll + 1], embeddings[test : test + 1])
    return (time.perf_counter() - start) / SAMPLED_TRIALS
