"""How often 95 % intervals by resampling speakers hold the true error rates, by simulation."""

import argparse
import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk.evaluation.bootstrap import MetricOptions, intervals
from tools.benchmarks.measure import Row

NORMAL = NormalDist()


class World(NamedTuple):
    """Lists that could have been drawn; score deviations are in units of a trial's own noise.

    A target trial's score is ``separation`` plus the ease of its speaker, a non-target trial's the
    sum of the likenesses of both speakers to others, all normal; each with noise of its own.
    """

    speakers: int
    targets_per_speaker: int
    nontargets: int
    ease: float  # deviation between speakers
    likeness: float
    separation: float = 4.0

    def draw(self, seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Scores, labels and both sides' speakers (n,) of a list of new speakers."""
        random = np.random.default_rng(seed)
        same = np.repeat(np.arange(self.speakers), self.targets_per_speaker)
        first = random.integers(self.speakers, size=self.nontargets)
        second = (first + random.integers(1, self.speakers, size=self.nontargets)) % self.speakers
        ease = random.normal(self.separation, self.ease, size=self.speakers)
        likeness = random.normal(0.0, self.likeness, size=self.speakers)
        means = np.concatenate([ease[same], likeness[first] + likeness[second]])
        is_target = np.arange(len(means)) < len(same)
        scores = means + random.normal(size=len(means))
        return scores, is_target, np.append(same, first), np.append(same, second)

    def truth(self) -> dict[str, float]:
        """The error rates over all speakers there could be."""
        of_targets, of_nontargets = (
            math.hypot(1.0, self.ease),
            math.hypot(1.0, self.likeness, self.likeness),
        )
        equal = 100 * NORMAL.cdf(-self.separation / (of_targets + of_nontargets))
        thresholds = np.linspace(-5.0, self.separation + 5.0, 4001).tolist()
        found = {"EER": equal}
        for prior in (0.01, 0.05):
            found[f"minDCF({prior})"] = min(
                NORMAL.cdf((t - self.separation) / of_targets)
                + (1 - prior) / prior * NORMAL.cdf(-t / of_nontargets)
                for t in thresholds
            )
        return found


WORLDS = {
    "few speakers": World(20, 60, 2000, ease=0.6, likeness=0.3, separation=3.0),
    "like Vox1-O": World(40, 470, 18800, ease=0.6, likeness=0.3),
    "speakers alike": World(40, 100, 8000, ease=0.3, likeness=0.1),
    "many speakers, few trials": World(300, 20, 8000, ease=0.5, likeness=0.2),
    "speakers do not matter": World(100, 20, 8000, ease=0.0, likeness=0.0),
}


def run(options: argparse.Namespace, lists: int = 100, replicates: int = 200) -> list[Row]:
    """How often 95 % intervals by resampling speakers hold the true error rates, by simulation."""
    rows = []
    for name, world in WORLDS.items():
        truth = world.truth()
        held = dict.fromkeys(truth, 0)
        widths = dict.fromkeys(truth, 0.0)
        for seed in tqdm(range(lists), name):
            found = intervals(*world.draw(seed), MetricOptions(replicates=replicates, seed=seed))
            bounds = [found["eer"], *found["min_dcf"].values()]
            for measure, (low, high) in zip(truth, bounds, strict=True):
                held[measure] += low <= truth[measure] <= high
                widths[measure] += (high - low) / lists
        for measure, value in truth.items():
            rows.append(
                {
                    "lists": name,
                    "speakers": world.speakers,
                    "trials": world.speakers * world.targets_per_speaker + world.nontargets,
                    "measure": measure,
                    "truth": value,
                    "mean width": widths[measure],
                    "held, percent": 100 * held[measure] / lists,
                }
            )
    return rows
