"""Losses with class vectors: equal to their formulas, within their limits, able to train."""

import math

import pytest
import torch
from torch.nn import functional

from simple_spk.hard_example_losses import BroadFaceLoss, CircleLoss, CurricularFaceLoss
from simple_spk.proxy_losses import (
    ArcFaceLoss,
    CosFaceLoss,
    GeneralizedSoftmaxLoss,
    NormFaceLoss,
    SoftmaxLoss,
    SphereFaceLoss,
)
from simple_spk.quality_losses import AdaFaceLoss, MagFaceLoss, SCFArcFaceLoss
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct
from simple_spk.sphereface2 import SphereFace2Loss

DIM, CLASSES = 6, 5
PROXY_LOSSES = [
    *(SoftmaxLoss, GeneralizedSoftmaxLoss, NormFaceLoss, SphereFaceLoss, CosFaceLoss, ArcFaceLoss),
    *(CircleLoss, CurricularFaceLoss, SphereFace2Loss, MagFaceLoss, AdaFaceLoss, BroadFaceLoss),
    SCFArcFaceLoss,
]


def clusters(n=20, dim=DIM, classes=CLASSES, length=1.0, dtype=torch.float64, seed=0):
    """Embeddings (n, dim) around a centre per class, and their labels (n,)."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dim, generator=generator, dtype=dtype)
    labels = torch.arange(n) % classes
    noise = torch.randn(n, dim, generator=generator, dtype=dtype)
    return (centres[labels] + 0.5 * noise) * length, labels


def make(loss_class, *args, **kwargs):
    """A loss in double precision, always the same."""
    torch.manual_seed(1)
    return loss_class(DIM, kwargs.pop("num_classes", CLASSES), *args, **kwargs).double()


def value_and_gradients(loss, function, embeddings, labels):
    """The loss with its gradients for embeddings and for all parameters."""
    embeddings = embeddings.clone().requires_grad_()
    value = function(embeddings, labels)
    wanted = [embeddings, *loss.parameters()]
    gradients = torch.autograd.grad(value, wanted, allow_unused=True)
    return [value.detach(), *gradients]


def assert_same(loss, slow, embeddings, labels):
    """The loss and a slow function of one embedding and its label have one value and gradient."""

    def mean(embeddings, labels):
        pairs = zip(embeddings, labels.tolist(), strict=True)
        return torch.stack([slow(x, y) for x, y in pairs]).mean()

    expected = value_and_gradients(loss, mean, embeddings, labels)
    actual = value_and_gradients(loss, loss, embeddings, labels)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def negative_log_share(logits, y):
    """-log softmax, written out around the largest."""
    logits = torch.stack(list(logits))
    return (logits - logits[y]).exp().sum().log()


def cosine(x, w):
    return (x * w).sum() / (x.square().sum().sqrt() * w.square().sum().sqrt())


def angular(loss, x, y, target, other=lambda c: c):
    """Scaled cross-entropy with ``target`` of the true class's cosine and ``other`` of the rest."""
    cosines = [cosine(x, w) for w in loss.class_vectors]
    logits = [target(c) if j == y else other(c) for j, c in enumerate(cosines)]
    return negative_log_share([loss.logit_scale * logit for logit in logits], y)


# ---- values and gradients -----------------------------------------------------------------------


def test_softmax_equals_its_formula():
    loss = make(SoftmaxLoss)
    torch.nn.init.normal_(loss.class_biases)

    def slow(x, y):
        pairs = zip(loss.class_vectors, loss.class_biases, strict=True)
        return negative_log_share([(w * x).sum() + c for w, c in pairs], y)

    assert_same(loss, slow, *clusters())


@pytest.mark.parametrize("margin", [0.0, 0.25])
def test_generalized_softmax_equals_its_formula(margin):
    """CE* without, CosFace* with a margin."""
    loss = make(GeneralizedSoftmaxLoss, angular_bias=0.25, margin=margin)

    def slow(x, y):
        lengths = [x.square().sum().sqrt() * w.square().sum().sqrt() for w in loss.class_vectors]
        cosines = [cosine(x, w) for w in loss.class_vectors]
        scores = [
            length * (c - 0.25 - margin * (j == y))
            for j, (length, c) in enumerate(zip(lengths, cosines, strict=True))
        ]
        return torch.log(1 + sum((s - scores[y]).exp() for j, s in enumerate(scores) if j != y))

    assert_same(loss, slow, *clusters(length=2.0))


def test_normface_and_cosface_equal_their_formulas():
    loss = make(NormFaceLoss, logit_scale=7.0)
    assert_same(loss, lambda x, y: angular(loss, x, y, lambda c: c), *clusters())
    cosface = make(CosFaceLoss, margin=0.35, logit_scale=7.0)
    assert_same(cosface, lambda x, y: angular(cosface, x, y, lambda c: c - 0.35), *clusters())


def arc(cosine_value, margin):
    """cos(theta + m) and, beyond pi, what the published code puts there."""
    angle = torch.arccos(cosine_value)
    if angle + margin > math.pi:
        return cosine_value - margin * math.sin(margin)
    return torch.cos(angle + margin)


@pytest.mark.parametrize("margin", [0.2, 0.5, 1.5])
def test_arcface_equals_its_formula(margin):
    loss = make(ArcFaceLoss, margin=margin, logit_scale=7.0)
    embeddings, labels = clusters(n=60)
    with torch.no_grad():
        angles = torch.arccos(loss.similarity(embeddings, loss.class_vectors))
    if margin == 1.5:
        assert (angles.gather(1, labels[:, None]) + margin > math.pi).any(), "both branches occur"
    assert_same(
        loss, lambda x, y: angular(loss, x, y, lambda c: arc(c, margin)), embeddings, labels
    )


def test_subcentres_are_the_nearest_of_their_class():
    loss = make(ArcFaceLoss, margin=0.2, logit_scale=7.0, vectors_per_class=3)
    assert len(loss.class_vectors) == 3 * CLASSES

    def slow(x, y):
        groups = [loss.class_vectors[3 * j : 3 * j + 3] for j in range(CLASSES)]
        cosines = [max(cosine(x, w) for w in group) for group in groups]
        logits = [7.0 * (arc(c, 0.2) if j == y else c) for j, c in enumerate(cosines)]
        return negative_log_share(logits, y)

    assert_same(loss, slow, *clusters())


@pytest.mark.parametrize("scale", [7.0, None])
@pytest.mark.parametrize("version", ["v0", "v1", "v2"])
@pytest.mark.parametrize("margin", [1.5, 4.0])
def test_sphereface_equals_its_formula(version, scale, margin):
    loss = make(SphereFaceLoss, margin=margin, logit_scale=scale, version=version)

    def target(c):
        angle = margin * torch.arccos(c)
        if version == "v2":
            return c
        if version == "v1":
            return torch.cos(angle) if angle < math.pi else torch.full_like(angle, -1.0) + 0 * c
        k = int(angle // math.pi)
        return (-1) ** k * torch.cos(angle) - 2 * k

    def slow(x, y):
        cosines = [cosine(x, w) for w in loss.class_vectors]
        length = x.square().sum().sqrt() if scale is None else scale
        others = [torch.cos(torch.arccos(c) / margin) if version == "v2" else c for c in cosines]
        logits = [length * (target(c) if j == y else others[j]) for j, c in enumerate(cosines)]
        return negative_log_share(logits, y)

    assert_same(loss, slow, *clusters(n=40, length=2.0))


@pytest.mark.parametrize("version", ["v0", "v1", "v2"])
def test_detached_sphereface_has_the_value_of_the_margin_and_the_gradient_of_cosines(version):
    """As published: what the margin adds to the cosines is a constant to the gradient."""
    embeddings, labels = clusters()
    whole, detached = (
        make(SphereFaceLoss, 1.5, 7.0, version, detached=choice) for choice in (False, True)
    )
    with torch.no_grad():
        turned = whole.logits(embeddings, labels, whole.class_vectors) / 7.0
        added = turned - whole.cosines(embeddings, whole.class_vectors)

    def constant_margin(embeddings, labels):
        logits = 7.0 * (detached.cosines(embeddings, detached.class_vectors) + added)
        return functional.cross_entropy(logits, labels)

    expected = value_and_gradients(detached, constant_margin, embeddings, labels)
    actual = value_and_gradients(detached, detached, embeddings, labels)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(actual[0], whole(embeddings, labels).detach())
    assert not torch.allclose(actual[1], value_and_gradients(whole, whole, embeddings, labels)[1])


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


def test_circle_equals_its_formula():
    loss = make(CircleLoss, margin=0.25, logit_scale=8.0)

    def slow(x, y):
        cosines = [cosine(x, w) for w in loss.class_vectors]
        positive = cosines[y]
        weight = max(0.0, 1.25 - positive.item())
        total = 0.0
        for j, c in enumerate(cosines):
            if j != y:
                negative = 8.0 * max(0.0, c.item() + 0.25) * (c - 0.25)
                total = total + (negative - 8.0 * weight * (positive - 0.75)).exp()
        return torch.log(1 + total)

    assert_same(loss, slow, *clusters())


def test_curricularface_equals_its_formula_and_remembers_its_mean():
    loss = make(CurricularFaceLoss, margin=0.3, logit_scale=7.0, newest_weight=0.2)
    first, second = clusters(seed=0), clusters(seed=1)
    loss(*first)

    def mean_target(embeddings, labels):
        pairs = zip(embeddings, labels.tolist(), strict=True)
        with torch.no_grad():
            return torch.stack([cosine(x, loss.class_vectors[y]) for x, y in pairs]).mean()

    t = 0.2 * mean_target(*first)
    torch.testing.assert_close(loss.mean_target, t)
    t = 0.8 * t + 0.2 * mean_target(*second)

    def slow(x, y):
        positive = arc(cosine(x, loss.class_vectors[y]), 0.3)
        return angular(
            loss, x, y, lambda c: arc(c, 0.3), lambda c: c * (t + c) if c > positive else c
        )

    assert_same(loss, slow, *second)
    torch.testing.assert_close(loss.mean_target, t)
    loss.eval()(*first)
    torch.testing.assert_close(loss.mean_target, t)  # only training moves it


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


def test_sphereface2_starts_at_the_bias_of_least_loss():
    embeddings, labels = clusters(classes=50, n=50)
    for settings in ({}, {"margin_ramp": [3, 9]}):  # with a ramp, that of no margin
        loss = make(SphereFace2Loss, 0.2, 20.0, num_classes=50, **settings)
        loss.class_vectors.data = torch.zeros_like(loss.class_vectors)  # all cosines 0
        loss.at_step(0)
        loss(embeddings, labels).backward()
        assert abs(float(loss.boundary_bias.grad)) < 1e-5
    loss = make(SphereFace2Loss, 0.2, 20.0, num_classes=50)
    loss.class_vectors.data = torch.zeros_like(loss.class_vectors)
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
    special = pytest.importorskip("scipy.special")
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


def test_broadface_equals_its_formula():
    loss = make(BroadFaceLoss, 0.2, 7.0, memory_size=50)
    first, second = clusters(seed=0), clusters(seed=1)
    loss(*first)
    old_vectors = loss.class_vectors.detach().clone()
    with torch.no_grad():
        loss.class_vectors += 0.3 * torch.randn_like(loss.class_vectors)
    embeddings = second[0].clone().requires_grad_()
    value = loss(embeddings, second[1])
    of_embeddings, of_vectors = torch.autograd.grad(value, [embeddings, loss.class_vectors])

    plain = make(ArcFaceLoss, 0.2, 7.0)
    plain.class_vectors.data = loss.class_vectors.detach().clone()
    now = plain.class_vectors.detach()
    moved = []
    for x, y in zip(first[0], first[1].tolist(), strict=True):
        stretch = x.norm() / old_vectors[y].norm()
        moved.append(x + stretch * (now[y] - old_vectors[y]))
    remembered = torch.cat([torch.stack(moved), second[0]])
    labels = torch.cat([first[1], second[1]])
    twin = second[0].clone().requires_grad_()
    encoder_part = plain(twin, second[1])
    class_part = plain(remembered, labels)
    torch.testing.assert_close(value, encoder_part + class_part)
    torch.testing.assert_close(of_embeddings, torch.autograd.grad(encoder_part, twin)[0])
    expected = torch.autograd.grad(class_part, plain.class_vectors)[0]
    torch.testing.assert_close(of_vectors, expected)


def test_broadface_remembers_the_newest():
    loss = make(BroadFaceLoss, memory_size=30)
    for seed in range(3):
        loss(*clusters(seed=seed))
    assert len(loss.memory.contents()[0]) == 30


# ---- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reduced",
    [
        lambda: make(CosFaceLoss, margin=0.0),
        lambda: make(ArcFaceLoss, margin=0.0),
        *(lambda v=v: make(SphereFaceLoss, margin=1.0, version=v) for v in ("v0", "v1", "v2")),
        lambda: make(MagFaceLoss, margins=(0.0, 0.0), length_weight=0.0),
        lambda: make(AdaFaceLoss, margin=0.0),
        lambda: make(SCFArcFaceLoss, margin=0.0, confidence_weight=0.0),
    ],
)
def test_without_a_margin_it_is_normface(reduced):
    loss, normface = reduced(), make(NormFaceLoss)
    embeddings, labels = clusters()
    expected = value_and_gradients(normface, normface, embeddings, labels)
    for one, other in zip(
        value_and_gradients(loss, loss, embeddings, labels), expected, strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_other_known_limits():
    embeddings, labels = clusters()
    expected = make(ArcFaceLoss, margin=0.3)(embeddings, labels)
    for loss in (
        make(ArcFaceLoss, margin=0.3, vectors_per_class=1),
        make(MagFaceLoss, margins=(0.3, 0.3), length_weight=0.0),
        make(AdaFaceLoss, margin=0.3, concentration=0.0),  # cos theta - m: that of CosFace
    ):
        if isinstance(loss, AdaFaceLoss):
            expected = make(CosFaceLoss, margin=0.3)(embeddings, labels)
        torch.testing.assert_close(loss(embeddings, labels), expected)
    # CosFace* without a margin is CE*; CE* without an angular bias is softmax without class biases.
    plain = make(SoftmaxLoss)(embeddings, labels)
    torch.testing.assert_close(
        make(GeneralizedSoftmaxLoss, angular_bias=0.0)(embeddings, labels), plain
    )
    # CurricularFace whose hard classes count as they are: no class is hard if all embeddings fit.
    easy = make(CurricularFaceLoss, margin=0.1)
    own = easy.class_vectors.detach()
    torch.testing.assert_close(
        easy(own, torch.arange(CLASSES)), make(ArcFaceLoss, margin=0.1)(own, torch.arange(CLASSES))
    )


def test_softmax_without_knowledge_is_log_of_the_number_of_classes():
    embeddings, labels = clusters(length=0.0, dtype=torch.float32)
    loss = SoftmaxLoss(DIM, CLASSES)(embeddings, labels)
    assert float(loss.detach()) == pytest.approx(math.log(CLASSES))


def test_margins_rise_along_their_ramp():
    loss = make(ArcFaceLoss, margin=0.4, margin_ramp=[100, 300])
    assert loss.margin == 0.4  # whoever uses no steps has the full margin
    margins = []
    for step in (0, 100, 200, 300, 1000):
        loss.at_step(step)
        margins.append(loss.margin)
    assert margins == pytest.approx([0.0, 0.0, 0.2, 0.4, 0.4])
    sphereface = make(SphereFaceLoss, margin=3.0, margin_ramp=[0, 10])
    sphereface.at_step(5)
    assert sphereface.margin == pytest.approx(2.0)
    embeddings, labels = clusters()
    loss.at_step(0)
    torch.testing.assert_close(loss(embeddings, labels), make(NormFaceLoss)(embeddings, labels))
    fixed = make(ArcFaceLoss, margin=0.4)
    fixed.at_step(0)
    assert fixed.margin == 0.4


# ---- what all have in common --------------------------------------------------------------------


@pytest.mark.parametrize("loss_class", PROXY_LOSSES)
def test_extreme_embeddings_give_finite_values_and_gradients(loss_class):
    """Embeddings exactly on their class vector, opposite to it, very long and very short."""
    torch.manual_seed(0)
    loss = loss_class(DIM, CLASSES)
    on = loss.class_vectors.detach()
    embeddings = torch.cat([on, -on, 1e4 * on, 1e-4 * on]).requires_grad_()
    value = loss(embeddings, torch.arange(CLASSES).repeat(4))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(embeddings.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in loss.parameters())


def train_toy(loss, steps=60, length=1.0):
    """Scores of test pairs of the same and of other classes, after training a linear encoder."""
    torch.manual_seed(0)
    classes, hidden, noise = 8, 16, 6
    centres = torch.randn(classes, hidden)

    def batch(n):
        labels = torch.arange(n) % classes
        inputs = torch.cat([centres[labels], 2.0 * torch.randn(n, noise)], dim=1)
        return inputs + 0.1 * torch.randn_like(inputs), labels

    encoder = torch.nn.Linear(hidden + noise, DIM)
    parameters = [*encoder.parameters(), *loss.parameters()]
    for step in range(steps):  # each number goes a small way downhill, a smaller one each time
        inputs, labels = batch(64)
        gradients = torch.autograd.grad(loss(length * encoder(inputs), labels), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 0.05 * (1 - step / steps) * gradient.sign()
    with torch.no_grad():
        inputs, labels = batch(40)
        embeddings = length * encoder(inputs)
        scores = functional.cosine_similarity(embeddings[:, None], embeddings[None], dim=2)
        same = labels[:, None] == labels
        return scores[same & ~torch.eye(40, dtype=torch.bool)], scores[~same]


@pytest.mark.parametrize("loss_class", PROXY_LOSSES)
def test_trains_a_toy_problem_to_separation(loss_class):
    torch.manual_seed(0)
    loss = loss_class(DIM, 8)
    same, other = train_toy(loss, length=10.0 if loss_class is MagFaceLoss else 1.0)
    assert same.quantile(0.02) > other.quantile(0.98)


@pytest.mark.parametrize("loss_class", PROXY_LOSSES)
def test_scores_with_its_own_similarity(loss_class):
    kind = GeneralizedInnerProduct if loss_class is GeneralizedSoftmaxLoss else CosineSimilarity
    assert isinstance(loss_class(DIM, CLASSES).similarity, kind)


@pytest.mark.parametrize("loss_class", PROXY_LOSSES)
def test_half_precision_embeddings_are_summed_in_single_precision(loss_class):
    embeddings, labels = clusters(dtype=torch.float32)
    torch.manual_seed(0)
    loss = loss_class(DIM, CLASSES).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = loss(embeddings.bfloat16(), labels)
    torch.manual_seed(0)
    expected = loss_class(DIM, CLASSES).eval()(embeddings.bfloat16().float(), labels)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected)


def test_labels_and_sizes_that_do_not_fit_are_explained():
    embeddings, labels = clusters(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"num_classes: 3.*number of training speakers"):
        SoftmaxLoss(DIM, 3)(embeddings, labels)
    with pytest.raises(ValueError, match="same embedding_dim"):
        SoftmaxLoss(DIM + 1, CLASSES)(embeddings, labels)
    with pytest.raises(ValueError, match="num_classes"):
        SoftmaxLoss(DIM, 1)


@pytest.mark.parametrize(
    "loss_class, wrong",
    [
        (ArcFaceLoss, {"margin": -0.1}),
        (ArcFaceLoss, {"margin_ramp": [5, 5]}),
        (ArcFaceLoss, {"vectors_per_class": 0}),
        (CosFaceLoss, {"logit_scale": 0.0}),
        (SphereFaceLoss, {"margin": 0.5}),
        (SphereFaceLoss, {"version": "v3"}),
        (GeneralizedSoftmaxLoss, {"margin": -1.0}),
        (GeneralizedSoftmaxLoss, {"angular_bias": 2.0}),
        (SphereFace2Loss, {"positive_weight": 1.0}),
        (SphereFace2Loss, {"exponent": 0.0}),
        (CurricularFaceLoss, {"newest_weight": 0.0}),
        (MagFaceLoss, {"margins": [0.3, 0.1]}),
        (MagFaceLoss, {"lengths": [0.0, 1.0]}),
        (MagFaceLoss, {"length_weight": -1.0}),
        (AdaFaceLoss, {"newest_weight": 2.0}),
        (SCFArcFaceLoss, {"concentration_per_length": 0.0}),
        (BroadFaceLoss, {"memory_size": 0}),
    ],
)
def test_wrong_settings_are_refused(loss_class, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[-1]):
        loss_class(DIM, CLASSES, **wrong)
