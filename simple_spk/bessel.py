"""The modified Bessel function of the first kind, of any order and size, with its derivative."""

import math

import torch
from torch import Tensor


def log_bessel_i(order: float, values: Tensor) -> Tensor:
    """``log I_order`` of positive values (n,), by the power series: all its terms are positive.

    Computed in double precision with as many terms as the largest value needs, about its half.

    >>> log_bessel_i(0.5, torch.tensor([1.0]))  # I_1/2(x) = sqrt(2 / (pi x)) sinh x
    tensor([-0.0644])
    """
    halves = values.double()[:, None] / 2.0
    largest = float(halves.detach().max())
    peak = math.hypot(order / 2.0, largest) - order / 2.0  # the number of the largest term
    terms = torch.arange(
        int(peak + 12.0 * math.sqrt(peak)) + 30, dtype=torch.float64, device=values.device
    )
    logs = 2.0 * terms * halves.log() - torch.lgamma(terms + 1.0)
    logs = logs - torch.lgamma(terms + order + 1.0)
    return (torch.logsumexp(logs, dim=1) + order * halves[:, 0].log()).to(values.dtype)
