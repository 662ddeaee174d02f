"""Calibration files."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.quality_measures import pack_background
from simple_spk.evaluation.ratio_spread import Spread
from tools.fuzzing.model_folder import ODD_VALUES
from tools.fuzzing.mutations import BYTE_DAMAGES, TEXT_DAMAGES, Damage, write_damaged


def write_originals(folder: Path) -> None:
    """Calibrations with and without quality measures."""
    rates = ((0.1, 1.0), (0.01, 4.5))
    plain = Calibration(2.0, -1.0, {}, 0.01, "list", 99, 9)
    replace(plain, nontarget_spread=Spread({}, {}, rates, 90)).save(folder / "plain.json")
    weights, ranges = {"least_log_duration": 0.5}, {"least_log_duration": (0.0, 3.0)}
    with_quality = replace(
        Calibration(2.0, -1.0, weights, 0.01, "list", 99, 9, ranges),
        quality_means=weights,
        background=pack_background(np.array([[0.5, -1.0]])),
        nontarget_spread=Spread(weights, weights, rates, 90),
        target_spread=Spread(weights, {}, rates, 9),
    )
    with_quality.save(folder / "quality.json")


def change_value(content: bytes, dice: random.Random) -> bytes:
    """Replace, remove or add a value at any depth."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):  # of an earlier damage
        return content
    place: Any = whole
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = dice.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or dice.random() < 0.3:
            place[key] = dice.choice(ODD_VALUES)
            if dice.random() < 0.2:
                del place[key]
            break
        place = place[key]
    return json.dumps(whole).encode()


DAMAGES: tuple[Damage, ...] = (*BYTE_DAMAGES, *TEXT_DAMAGES, *[change_value] * 5)


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged calibration."""
    return write_damaged(originals, place, dice, DAMAGES)


def read(path: Path) -> None:
    """Load a calibration, and use it; its ratios may be refused as infinite."""
    calibration = Calibration.load(path)
    quality = dict.fromkeys(calibration.quality_weights, np.array([1.0, 2.0]))
    try:
        assert np.isfinite(calibration.apply([0.5, -3.0], quality)).all()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    assert np.isfinite(calibration.threshold_at(1e-3).log_likelihood_ratio)
