"""Identification, 1:N: probes are sought in a gallery that may or may not hold their subject."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk.evaluation.error_rates import error_rates
from simple_spk.evaluation.metrics import true_positive_rate_at
from simple_spk.evaluation.scoring import queries_and_keys
from simple_spk.models.similarity import Similarity

PROBES_AT_ONCE = 512  # their scores against some thousand templates are a few megabytes
# A search answers with a list of candidates; a mate further down is not found (Klare et al., 2015).
CANDIDATES = 20
FPIRS = (0.01, 0.1)
TOPS = (1, 5)


@dataclass(frozen=True, eq=False)
class Searches:
    """What came of searches in one gallery; a probe's mate is the template of its own subject."""

    mate_scores: NDArray[np.float32]  # (mated,)
    mate_ranks: NDArray[np.int64]  # (mated,), from 1; a tie counts against the mate
    best_scores: NDArray[np.float32]  # (probes without a mate,), against the whole gallery
    highest_other_scores: NDArray[np.float32]  # falling, of all pairs of different subjects


def search(
    probes: NDArray[np.float32],
    gallery: NDArray[np.float32],
    mates: NDArray[np.int64],
    similarity: Similarity,
    others_kept: int = 0,
    block: int = PROBES_AT_ONCE,
    progress: bool = False,
    name: str = "search",
) -> Searches:
    """Seek probes (p, dim) in a gallery (g, dim); mates (p,) are its rows, -1 where there is none.

    ``others_kept`` of the highest scores between different subjects are kept. The scores of a block
    of probes are all that is in memory.
    """
    queries = queries_and_keys(probes, similarity)[0].cpu().numpy()
    keys = queries_and_keys(gallery, similarity)[1].cpu().numpy()
    is_mated = mates >= 0
    mate_scores = np.full(len(probes), -np.inf, dtype=np.float32)
    best_others = np.empty(len(probes), dtype=np.float32)
    ranks = np.zeros(len(probes), dtype=np.int64)
    highest = np.empty(0, dtype=np.float32)
    with tqdm(total=len(probes), desc=name, unit="probe", delay=1.0, disable=not progress) as bar:
        for start in range(0, len(probes), block):
            some = slice(start, start + block)
            scores = queries[some] @ keys.T
            rows = np.flatnonzero(is_mated[some])
            columns = mates[some][rows]
            mate_scores[some][rows] = scores[rows, columns]
            scores[rows, columns] = -np.inf
            ranks[some] = 1 + np.count_nonzero(scores >= mate_scores[some, None], axis=1)
            best_others[some] = scores.max(axis=1)
            if others_kept:
                highest = _highest(np.append(highest, scores), others_kept)
            bar.update(len(scores))
    highest = np.sort(highest[np.isfinite(highest)])[::-1]
    return Searches(mate_scores[is_mated], ranks[is_mated], best_others[~is_mated], highest)


def open_set_rates(
    searches: Searches,
    false_positive_rates: Sequence[float] = FPIRS,
    tops: Sequence[int] = TOPS,
    candidates: int = CANDIDATES,
) -> dict[str, Any]:
    """Rates of identification in percent as plain data.

    ``top_k``: how many mated probes have their mate among the first k. ``tpir_at_fpir``: how many
    have it among the candidates and at or above a threshold that is the lowest at which the share
    of probes without a mate that find anybody (FPIR) is within the limit.
    """
    mated, unmated = len(searches.mate_scores), len(searches.best_scores)
    if not mated or not unmated:
        raise ValueError(
            f"found {mated} probes with a mate in the gallery and {unmated} without; some of each "
            "are needed: these galleries and probes do not belong together"
        )
    is_listed = searches.mate_ranks <= candidates
    found = searches.mate_scores[is_listed]
    tpir = dict.fromkeys(map(str, false_positive_rates), 0.0)
    if len(found):
        rates = error_rates(
            np.append(found, searches.best_scores), np.arange(len(found) + unmated) < len(found)
        )
        for limit in false_positive_rates:
            share = true_positive_rate_at(rates, limit) * len(found) / mated
            tpir[str(limit)] = 100.0 * share
    return {
        **_tops(searches, tops),
        "tpir_at_fpir": tpir,
        "mated_probes": mated,
        "unmated_probes": unmated,
    }


def pooled_rates(
    searches: Searches,
    false_positive_rates: Sequence[float] = FPIRS,
    tops: Sequence[int] = TOPS,
) -> dict[str, Any]:
    """Rates in percent as InsightFace's and the paper's scripts count them: every probe has a mate.

    Their threshold is the score that so many pairs of different subjects reach as the limit is of
    the number of probes; mates must be above it. This is no FPIR, but the published tables have it.
    """
    mated = len(searches.mate_scores)
    assert mated and not len(searches.best_scores), "every probe must have a mate"
    tpir = {}
    for limit in false_positive_rates:
        place = min(others_needed(mated, [limit]), len(searches.highest_other_scores)) - 1
        above = searches.mate_scores > searches.highest_other_scores[place]
        tpir[str(limit)] = 100.0 * float(np.mean(above))
    return {**_tops(searches, tops), "tpir_at_fpir": tpir, "mated_probes": mated}


def others_needed(probes: int, false_positive_rates: Sequence[float] = FPIRS) -> int:
    """How many of the highest scores between different subjects ``pooled_rates`` asks for."""
    return math.ceil(max(false_positive_rates) * probes)


def _tops(searches: Searches, tops: Sequence[int]) -> dict[str, float]:
    return {f"top_{k}": 100.0 * float(np.mean(searches.mate_ranks <= k)) for k in tops}


def _highest(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The highest of some values, at most ``count``, in any order."""
    return values if len(values) <= count else np.partition(values, -count)[-count:]
