"""Losses in which lengths say how good a recording is equal their formulas."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from simple_spk.losses.quality_aware import AdaFaceLoss, MagFaceLoss, SCFArcFaceLoss, log_bessel_i
from tests.loss_formulas import DIM, angular, arc, assert_same, clusters, cosine, make


def test_magface_equals_its_formula():
    loss = make(MagFaceLoss, (0.1, 0.4), (2.0, 3.5), 3.0, 7.0)
    embeddings, labels = clusters(n=40)
    lengths = embeddings.norm(dim=1)
    assert (lengths < 2.0).any() and (lengths > 3.5).any(), "both ends occur"

    def slow(x, y):
        a = x.square().sum().sqrt().clamp(2.0, 3.5)
        margin = 0.1 + (a - 2.0) / 1.5 * 0.3
        price = 3.0 * (1.0 / a + a / 3.5**2)
        return price + angular(loss, x, y, lambda c: torch.cos(torch.arccos(c) + margin))

    assert_same(loss, slow, embeddings, labels)


def test_adaface_equals_its_formula_and_remembers_lengths():
    loss = make(AdaFaceLoss, margin=0.4, logit_scale=7.0, concentration=0.7, newest_weight=0.6)
    embeddings, labels = clusters(n=40)
    lengths = embeddings.norm(dim=1)
    mean = 0.4 * 20.0 + 0.6 * lengths.mean()
    deviation = 0.4 * 100.0 + 0.6 * lengths.std()
    loss.length_mean.copy_(torch.tensor(20.0))
    loss(embeddings, labels)
    torch.testing.assert_close(loss.length_mean, mean)
    torch.testing.assert_close(loss.length_deviation, deviation)
    loss.length_mean.copy_(lengths.mean())
    loss.length_deviation.copy_(lengths.std())  # moments that this very batch keeps

    def slow(x, y):
        z = 0.7 * (float(x.detach().norm()) - lengths.mean()) / (lengths.std() + 1e-3)
        z = max(-1.0, min(1.0, float(z)))
        return angular(loss, x, y, lambda c: torch.cos(torch.arccos(c) - 0.4 * z) - (0.4 * z + 0.4))

    assert_same(loss, slow, embeddings, labels)


def test_scf_equals_its_formula():
    loss = make(SCFArcFaceLoss, 0.2, 7.0, confidence_weight=0.5, concentration_per_length=3.0)
    order = DIM / 2 - 1

    class LogBessel(torch.autograd.Function):
        """log I of scipy, with the derivative of the handbooks: I_(v+1) / I_v + v / k."""

        @staticmethod
        def forward(ctx, k):
            ctx.k = float(k)
            return torch.tensor(math.log(special.ive(order, ctx.k)) + ctx.k, dtype=k.dtype)

        @staticmethod
        def backward(ctx, gradient):
            ratio = special.ive(order + 1, ctx.k) / special.ive(order, ctx.k)
            return gradient * (ratio + order / ctx.k)

    def slow(x, y):
        k = 3.0 * x.square().sum().sqrt()
        near = float(cosine(x, loss.class_vectors[y]))
        surprise = -k * near - order * k.log() + LogBessel.apply(k)
        surprise = surprise + DIM / 2 * math.log(2 * math.pi * 7.0**2)
        return angular(loss, x, y, lambda c: arc(c, 0.2)) + 0.5 * surprise

    assert_same(loss, slow, *clusters())


@pytest.mark.parametrize("order", [0.0, 0.5, 2.0, 31.0, 127.0, 255.0])
def test_log_bessel_equals_scipy(order):
    values = torch.tensor([0.3, 1.0, 7.0, 40.0, 300.0, 2000.0], dtype=torch.float64)
    scaled = special.ive(order, values.numpy())
    known = scaled > 1e-250  # where scipy does not vanish
    assert known.sum() >= 2
    expected = np.log(scaled[known]) + values.numpy()[known]
    np.testing.assert_allclose(log_bessel_i(order, values).numpy()[known], expected, rtol=1e-9)


@pytest.mark.parametrize("order", [0.0, 2.0, 127.0])
def test_the_derivative_of_log_bessel_is_that_of_the_handbooks(order):
    values = torch.tensor([5.0, 40.0, 300.0], dtype=torch.float64, requires_grad=True)
    log_bessel_i(order, values).sum().backward()
    k = values.detach().numpy()
    expected = special.ive(order + 1, k) / special.ive(order, k) + order / k
    np.testing.assert_allclose(values.grad.numpy(), expected, rtol=1e-9)


def test_log_bessel_in_single_precision_stays_single_and_exact():
    values = torch.tensor([0.01, 50.0, 500.0])
    result = log_bessel_i(127.0, values)
    assert result.dtype == torch.float32 and torch.isfinite(result).all()
