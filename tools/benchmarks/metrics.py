"""EER and minDCF of 10 and 100 million scores, beside one np.sort of them."""

import argparse
from collections.abc import Callable

import numpy as np

from simple_spk.evaluation import error_rates as error_rates
from simple_spk.evaluation import metrics
from tools.benchmarks.measure import Row, extra_memory, in_turns


def metrics_candidates(count: int, kind: str, target_share: float) -> dict[str, Callable]:
    """Readings of made-up scores (count,) of two normal classes with an EER of 5 %."""
    random = np.random.default_rng(0)
    is_target = random.random(count) < target_share
    scores = random.standard_normal(count, dtype=np.float32).astype(kind)
    scores += 3.29 * is_target

    def eer_and_min_dcf() -> tuple[float, float]:
        trials = error_rates.sort_trials(scores, is_target)
        cost = metrics.minimum_detection_cost(metrics.around_minimum_cost(trials, 0.01))
        return metrics.equal_error_rate(metrics.around_equal_rates(trials)).rate, cost.cost

    def whole_curve() -> tuple[float, float]:
        rates = error_rates.error_rates(scores, is_target)
        return metrics.equal_error_rate(rates).rate, metrics.minimum_detection_cost(rates).cost

    return {
        "np.sort": lambda: np.sort(scores),
        "EER and minDCF": eer_and_min_dcf,
        "the same from the whole curve": whole_curve,
        "summary": lambda: metrics.summary(scores, is_target),
    }


def run(options: argparse.Namespace) -> list[Row]:
    """EER and minDCF of 10 and 100 million scores, beside one np.sort of them."""
    rows = []
    for count, kind, target_share in (
        (10_000_000, "float64", 0.5),
        (10_000_000, "float64", 0.1),
        (10_000_000, "float32", 0.5),
        (100_000_000, "float64", 0.5),
    ):
        arguments = (count, kind, target_share)
        candidates = metrics_candidates(*arguments)
        if count > 10_000_000:  # what needs a whole curve is measured on the shorter lists alone
            candidates = {name: candidates[name] for name in ("np.sort", "EER and minDCF")}
        seconds = in_turns(candidates, rounds=2 if count > 10_000_000 else 4)
        names = list(candidates)
        del candidates
        array_mebibytes = count * np.dtype(kind).itemsize / 2**20
        for name in names:
            extra: float | str = ""
            if name != "np.sort":
                extra = extra_memory(metrics_candidates, name, *arguments) / array_mebibytes
            rows.append(
                {
                    "scores": count,
                    "type": kind,
                    "targets": target_share,
                    "what": name,
                    "seconds": seconds[name],
                    "times np.sort": seconds[name] / seconds["np.sort"],
                    "extra memory, times the array": extra,
                }
            )
    return rows
