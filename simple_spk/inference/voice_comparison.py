"""Comparison of voices with a model: scores, log likelihood ratios, thresholds and candidates."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simple_spk.evaluation.quality_measures import pair_measures
from simple_spk.inference.decisions import (
    Candidate,
    log_odds,
    number,
    posterior,
    strangers_in_words,
)
from simple_spk.inference.model import Model
from simple_spk.inference.voice_stores.voice import Hits, Voice, Voices, VoiceStore, best_places

MOST_CALIBRATED = 200  # voices for a recording, those of the highest scores
NOT_MEASURED = " (extrapolated: the calibration list is too short to measure it)"
NOBODY = "no voice is enrolled: enroll some first, or load them"

Quality = dict[str, NDArray[np.float64]]


class BestVoices(NamedTuple):
    """The likeliest voices for a recording, best first."""

    candidates: tuple[Candidate, ...]
    value: float  # of the first: its log likelihood ratio, or else its score
    anybody: float | None  # the probability that it is one of all voices
    total: int  # how many voices there are
    quality: Quality | None = None  # measures (1,) of the first


class VoiceComparison:
    """Compares voices with each other by the similarity and the calibration of a model."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self.model = model
        self.device = device

    @torch.no_grad()
    def keys(self, embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeddings (n, dim) as keys (n, lifted_dim) of the model's similarity."""
        on_device = torch.from_numpy(embeddings).to(self.device)
        return self.model.similarity.lift_keys(on_device).cpu().numpy()

    @torch.no_grad()
    def search(
        self,
        voices: Voices | VoiceStore,
        tests: Sequence[Voice],
        prior: float = 0.5,
        top: int | None = None,
    ) -> list[BestVoices]:
        """The likeliest of some voices for each of others; by score without a calibration.

        With more than ``MOST_CALIBRATED`` voices, those of the highest scores are calibrated.
        """
        if not tests or not len(voices):
            return []
        table = np.stack([test.template for test in tests])
        sizes = voices.dimension, table.shape[1]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"the enrolled voices have embeddings of {sizes[0]} numbers, this model makes "
                f"{sizes[1]}: enroll them again"
            )
        lifted = self.model.similarity.lift_queries(torch.from_numpy(table).to(self.device))
        calibration = self.model.calibration
        least = 1 if calibration is None else MOST_CALIBRATED
        all_hits = voices.search(lifted.cpu().numpy(), None if top is None else max(top, least))
        found = []
        for test, hits in zip(tests, all_hits, strict=True):
            if not hits.names:  # others removed them meanwhile
                raise ValueError(NOBODY)
            if calibration is None:
                found.append(_best(hits, hits.scores, top))
                continue
            alone = Voices.alone("", test, self.keys)
            measured = alone.quality() | calibration.background_measures(test.template[None])
            of_hits = hits.quality | calibration.background_measures(hits.templates)
            quality = pair_measures(of_hits, measured)
            ratios = calibration.apply(hits.scores, quality)
            best = _best(hits, ratios, top, prior)
            likeliest = int(best_places(ratios, 1)[0])
            own = {name: values[[likeliest]] for name, values in quality.items()}
            found.append(best._replace(quality=own))
        return found

    def misses(self, threshold: float | None, quality: Quality | None) -> float | None:
        """The expected share of genuine pairs of this quality below a threshold, if known."""
        calibration = self.model.calibration
        if calibration is None or threshold is None:
            return None
        rates = calibration.miss_rates([threshold], quality)
        return None if rates is None else float(rates[0])

    def threshold(
        self,
        prior: float | None,
        false_accept_rate: float | None,
        voices: int,
        quality: Quality | None = None,
    ) -> tuple[float, float | None, str]:
        """The prior, the threshold (a log likelihood ratio or else a score), and its reason.

        quality: the measures (1,) of the pair; without them, means.
        """
        calibration, own = self.model.calibration, self.model.threshold
        if calibration is None:
            for value, name in ((prior, "probabilities"), (false_accept_rate, "error rates")):
                if value is not None:
                    what = f"the model is not calibrated, so it knows no {name}"
                    raise ValueError(f"{what}: leave that out, or calibrate it")
            if own is None:
                return 0.5, None, "the model has neither a calibration nor a threshold of its own"
            return 0.5, own, f"accepted from the model's own threshold on, a score of {own:.3g}"
        prior = 0.5 if prior is None else prior
        neutral = float(np.log(voices) - log_odds(prior))
        if false_accept_rate is None:
            because = f"accepted from a probability of 0.5 on (prior {prior:g})"
            shares = calibration.false_accept_rates([neutral], quality)
            if voices > 1 and shares is not None:
                because += f", {strangers_in_words(voices * float(shares[0]), voices)}"
                because += NOT_MEASURED if calibration.is_beyond_list(float(shares[0])) else ""
            return prior, neutral, because
        ratio, is_extrapolated = calibration.threshold_at(false_accept_rate, voices, quality)
        because = f"accepted from a likelihood ratio of {number(math.exp(min(ratio, 700.0)))} on, "
        because += f"for a false-accept rate of {false_accept_rate:g}"
        because += f" / {voices}" if voices > 1 else ""
        because += NOT_MEASURED if is_extrapolated else ""
        return prior, ratio, because

    def likeness(self, first: Voice, second: Voice) -> float:
        """The log likelihood ratio of two voices, or else their score."""
        return self.search(Voices.alone("", first, self.keys), [second])[0].value


def _best(
    hits: Hits, values: NDArray[np.float64], top: int | None, prior: float | None = None
) -> BestVoices:
    """The candidates of a search by values (k,), log likelihood ratios if there is a prior."""
    rows = best_places(values, len(values) if top is None else min(top, len(values)))
    names, scores = [hits.names[row] for row in rows], hits.scores[rows].tolist()
    value = float(values[rows[0]])
    if prior is None:
        pairs = zip(names, scores, strict=True)
        candidates = tuple(Candidate(*pair, None, None) for pair in pairs)
        return BestVoices(candidates, value, None, hits.total)
    log_total = float(np.logaddexp.reduce(values))
    if others := hits.total - len(values):
        # They score less than all these. The mean ratio of different speakers is 1.
        log_total = float(np.logaddexp(log_total, math.log(others) + min(0.0, values.min())))
    ratios = np.append(values[rows], log_total)
    *probabilities, anybody = posterior(ratios, prior, hits.total, log_total).tolist()
    columns = (names, scores, values[rows].tolist(), probabilities)
    return BestVoices(tuple(map(Candidate, *columns)), value, anybody, hits.total)
