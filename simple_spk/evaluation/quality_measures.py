"""Quality measures of recordings and trials, by which a calibration tells sure scores from others.

Every measure is of a recording, or of a voice of several. Those of a trial are the lesser and the
greater of its two sides.
"""

import base64
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.error_rates import require_all

DURATION = "log_duration"  # suffix of the names of the quality measures of durations
TYPICALITY = "typicality"  # the name of the measure by a background
NEAREST_SHARE = 0.05  # of a background, whose inner products count
BLOCK_ROWS = 4096  # of embeddings that are compared with a background at a time
# Measures of the sound of recordings: the logarithms of the seconds of speech and of how many they
# are, the signal-to-noise ratio, and 1 for a telephone's band (0 otherwise).
SOUND_MEASURES = ("log_speech", "log_recordings", "signal_to_noise_db", "narrow_band")

Values = NDArray[np.float64]
Quality = Mapping[str, NDArray[np.floating]]  # measures (n,) of the n trials, by name


def quality_measures(
    enroll: NDArray[np.integer],
    test: NDArray[np.integer],
    durations_seconds: NDArray[np.floating] | None = None,
    embeddings: NDArray[np.floating] | None = None,
    measures: Quality | None = None,
    background: str = "",
) -> dict[str, Values]:
    """Quality measures (n,) of trials whose sides (n,) are rows of what is known of recordings.

    They are the logarithm of ``durations_seconds`` (recordings,), the length of ``embeddings``
    (recordings, dim), which grows with the confidence of a SimPLE encoder, their typicality if
    there is a packed ``background``, and further ``measures`` (recordings,) by name. A trial has
    the lesser and the greater of its two sides, so that enrollment and test can change places;
    their difference is the mismatch of the sides.
    """
    lengths = None
    if embeddings is not None:
        lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1)
        if background:
            measures = {**(measures or {}), TYPICALITY: typicality(embeddings, background)}
    of_recordings = recording_measures(durations_seconds, lengths, measures)
    first, second = ({n: v[side] for n, v in of_recordings.items()} for side in (enroll, test))
    return pair_measures(first, second)


def recording_measures(
    durations_seconds: NDArray[np.floating] | None = None,
    embedding_lengths: NDArray[np.floating] | None = None,
    measures: Quality | None = None,
) -> dict[str, Values]:
    """The measures (n,) of n recordings or voices, of which those of trials are made."""
    found: dict[str, Values] = {}
    if durations_seconds is not None:
        require_all(durations_seconds > 0, durations_seconds, "durations must be positive")
        found[DURATION] = np.log(durations_seconds.astype(np.float64))
    if embedding_lengths is not None:
        found["length"] = embedding_lengths.astype(np.float64)
    return found | {name: values.astype(np.float64) for name, values in (measures or {}).items()}


def pair_measures(enroll: Quality, test: Quality) -> dict[str, Values]:
    """Quality measures (n,) of trials from those of their sides, (n,) or one for all (1,)."""
    found = {}
    for name, values in enroll.items():
        found[f"least_{name}"] = np.minimum(values, test[name])
        found[f"greatest_{name}"] = np.maximum(values, test[name])
    return found


def joined_measures(
    measures: NDArray[np.float64], recordings: NDArray[np.integer] | None = None
) -> NDArray[np.float64]:
    """The measures (k,) of several recordings (n, k) together; the first are SOUND_MEASURES.

    Speech and recordings add up; of the others it is the mean, weighted by ``recordings`` (n,).
    """
    joined = np.average(measures, axis=0, weights=recordings)
    joined[:2] = np.logaddexp.reduce(measures[:, :2], axis=0)
    return joined


def at_length(
    embeddings: NDArray[np.floating], lengths: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Embeddings (n, dim) brought to lengths (n,); those of length 0 stay.

    The mean of embeddings is shorter than they are, the more so the more they are. A length means
    confidence, which more recordings do not lower.
    """
    found = np.linalg.norm(embeddings.astype(np.float64), axis=1)
    return embeddings * (lengths / np.where(found > 0.0, found, np.inf))[:, None]


def typicality(embeddings: NDArray[np.floating], background: str) -> Values:
    """How typical embeddings (n, dim) are: the mean of their highest products with a background.

    The highest are those with similar voices and channels, so the measure sees a codec or a room
    that both sides of a trial share. It is the mean of the cohort in adaptive s-norm.
    """
    flat = np.frombuffer(base64.b64decode(background), "<f2").astype(np.float32)
    size = embeddings.shape[1]
    if not len(flat) or len(flat) % size:
        raise ValueError(
            f"the calibration has a background of {len(flat)} numbers, which are not embeddings of "
            f"{size}: it is of another model; train it again"
        )
    others = flat.reshape(-1, size)
    nearest = math.ceil(NEAREST_SHARE * len(others))
    found = np.empty(len(embeddings))
    for start in range(0, len(embeddings), BLOCK_ROWS):
        rows = embeddings[start : start + BLOCK_ROWS].astype(np.float32)
        products = np.partition(rows @ others.T, len(others) - nearest, axis=1)
        found[start : start + BLOCK_ROWS] = products[:, -nearest:].mean(axis=1, dtype=np.float64)
    return found


def pack_background(embeddings: NDArray[np.floating]) -> str:
    """Embeddings (m, dim) of a background as text for YAML files: 16-bit numbers in base64."""
    return base64.b64encode(embeddings.astype("<f2").tobytes()).decode("ascii")


def is_background(text: str) -> bool:
    """Whether a text is one of ``pack_background``."""
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f2")
    except ValueError:  # not base64, not ASCII, or half a number
        return False
    return bool(np.isfinite(numbers).all())
