"""The randomness of a training step, so that a resumed run repeats it."""

import random

import numpy as np
import torch

from simple_spk.distributed import rank


def seed_step(seed: int, epoch: int, step: int) -> None:
    """Make all random numbers of a training step a function of where the step stands."""
    state = np.random.SeedSequence((seed, epoch, step, rank())).generate_state(3)
    torch.manual_seed(int(state[0]))
    np.random.seed(int(state[1]))
    random.seed(int(state[2]))
