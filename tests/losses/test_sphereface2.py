"""SphereFace2: equal to its formula, and started where its loss is least."""

import math

import pytest
import torch
from torch.nn import functional

from simple_spk.losses.margin import SphereFace2Loss
from tests.loss_formulas import assert_same, clusters, cosine, make, value_and_gradients


def test_sphereface2_equals_its_formula():
    loss = make(SphereFace2Loss, 0.3, 9.0, positive_weight=0.7, exponent=3.0, scale=5.0)

    def slow(x, y):
        total = 0.0
        for j, w in enumerate(loss.class_vectors):
            spread = 2 * ((cosine(x, w) + 1) / 2) ** 3 - 1
            if j == y:
                inner = -9.0 * (spread - 0.3) - loss.boundary_bias
                total = total + 0.7 / 9.0 * torch.log(1 + inner.exp())
            else:
                inner = 9.0 * (spread + 0.3) + loss.boundary_bias
                total = total + 0.3 / 9.0 * torch.log(1 + inner.exp())
        return 5.0 * total

    assert_same(loss, slow, *clusters())


def test_detached_sphereface2_has_the_value_of_the_spread_and_the_gradient_of_cosines():
    embeddings, labels = clusters()
    whole, detached = (make(SphereFace2Loss, detached=choice) for choice in (False, True))
    cosines = detached.cosines(embeddings, detached.class_vectors).detach()
    added = 2.0 * ((cosines + 1.0) / 2.0) ** 3 - 1.0 - cosines

    def constant_spread(embeddings, labels):
        values = detached.cosines(embeddings, detached.class_vectors) + added
        total = 0.0
        for row, y in zip(values, labels.tolist(), strict=True):
            for j, value in enumerate(row):
                sign, weight = (1.0, 0.7) if j == y else (-1.0, 0.3)
                logit = 32.0 * (value - sign * 0.2) + detached.boundary_bias
                total = total + weight * functional.softplus(-sign * logit)
        return 50.0 / 32.0 * total / len(labels)

    expected = value_and_gradients(detached, constant_spread, embeddings, labels)
    actual = value_and_gradients(detached, detached, embeddings, labels)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(actual[0], whole(embeddings, labels).detach())


def test_sphereface2_starts_at_the_bias_of_least_loss():
    embeddings, labels = clusters(classes=50, n=50)
    for settings in ({"margin_ramp": [3, 9]}, {}):  # with a ramp, that of no margin
        loss = make(SphereFace2Loss, 0.2, 20.0, num_classes=50, **settings)
        loss.class_vectors.data = torch.zeros_like(loss.class_vectors)  # all cosines 0
        loss.at_step(0)
        loss(embeddings, labels).backward()
        assert abs(float(loss.boundary_bias.grad)) < 1e-5
    with torch.no_grad():
        loss.boundary_bias += 0.1
    loss.zero_grad()
    loss(embeddings, labels).backward()
    assert float(loss.boundary_bias.grad) > 1e-3


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_sphereface2_starts_with_few_classes_and_wide_margins(classes):
    """The margin's share of the root is lost in rounding; if positives outweigh, it is all."""
    loss = make(SphereFace2Loss, 0.5, 64.0, num_classes=classes)
    negatives = 0.3 * (classes - 1)

    def slope(bias):  # of the loss at cosines 0, where g is -0.75
        positive, negative = 64.0 * -1.25 + bias, 64.0 * -0.25 + bias
        return negatives / (1 + math.exp(-negative)) - 0.7 / (1 + math.exp(positive))

    bias = float(loss.boundary_bias.detach())
    assert slope(bias - 0.01) < 0.0 < slope(bias + 0.01)
