"""A training step's random numbers depend on where it stands, and on nothing else."""

import random

import numpy as np
import torch

from simple_spk.training.brain import seed_step


def numbers(*place: int) -> tuple[float, float, float]:
    seed_step(*place)
    return float(torch.rand(())), float(np.random.random()), random.random()


def test_the_same_place_gives_the_same_numbers_and_every_other_place_others() -> None:
    first = numbers(1, 2, 3)
    others = [numbers(*place) for place in ((2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 3, 2))]
    assert numbers(1, 2, 3) == first
    for kind in range(3):
        assert len({found[kind] for found in (first, *others)}) == 5
