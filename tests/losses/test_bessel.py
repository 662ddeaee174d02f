"""The Bessel function against scipy's, and its derivative against the handbook's."""

import numpy as np
import pytest
import torch
from scipy import special

from simple_spk.losses.quality_aware import log_bessel_i


@pytest.mark.parametrize("order", [0.0, 0.5, 2.0, 31.0, 127.0, 255.0])
def test_equals_scipy(order):
    values = torch.tensor([0.3, 1.0, 7.0, 40.0, 300.0, 2000.0], dtype=torch.float64)
    scaled = special.ive(order, values.numpy())
    known = scaled > 1e-250  # where scipy does not vanish
    assert known.sum() >= 2
    expected = np.log(scaled[known]) + values.numpy()[known]
    np.testing.assert_allclose(log_bessel_i(order, values).numpy()[known], expected, rtol=1e-9)


@pytest.mark.parametrize("order", [0.0, 2.0, 127.0])
def test_derivative_is_that_of_the_handbooks(order):
    values = torch.tensor([5.0, 40.0, 300.0], dtype=torch.float64, requires_grad=True)
    log_bessel_i(order, values).sum().backward()
    k = values.detach().numpy()
    expected = special.ive(order + 1, k) / special.ive(order, k) + order / k
    np.testing.assert_allclose(values.grad.numpy(), expected, rtol=1e-9)


def test_single_precision_stays_single_and_exact():
    values = torch.tensor([0.01, 50.0, 500.0])
    result = log_bessel_i(127.0, values)
    assert result.dtype == torch.float32 and torch.isfinite(result).all()
