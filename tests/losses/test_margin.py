"""Losses with class vectors: equal to their formulas, within their limits, able to train."""

import math

import pytest
import torch
from torch.nn import functional

from simple_spk.losses.hard_example import BroadFaceLoss, CircleLoss, CurricularFaceLoss
from simple_spk.losses.margin import (
    ArcFaceLoss,
    CosFaceLoss,
    GeneralizedSoftmaxLoss,
    NormFaceLoss,
    SoftmaxLoss,
    SphereFace2Loss,
    SphereFaceLoss,
)
from simple_spk.losses.quality_aware import AdaFaceLoss, MagFaceLoss, SCFArcFaceLoss
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct
from tests.loss_formulas import (
    CLASSES,
    DIM,
    angular,
    arc,
    assert_same,
    clusters,
    cosine,
    make,
    negative_log_share,
    value_and_gradients,
)

PROXY_LOSSES = [
    *(SoftmaxLoss, GeneralizedSoftmaxLoss, NormFaceLoss, SphereFaceLoss, CosFaceLoss, ArcFaceLoss),
    *(CircleLoss, CurricularFaceLoss, SphereFace2Loss, MagFaceLoss, AdaFaceLoss, BroadFaceLoss),
    SCFArcFaceLoss,
]


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


def test_subcenters_are_the_nearest_of_their_class():
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
    centers = torch.randn(classes, hidden)

    def batch(n):
        labels = torch.arange(n) % classes
        inputs = torch.cat([centers[labels], 2.0 * torch.randn(n, noise)], dim=1)
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


def test_the_nearest_other_classes_are_turned_nearer():
    """Against a loop over classes; the ramp of the margin is that of the penalty, too."""
    torch.manual_seed(0)
    loss = ArcFaceLoss(6, 9, 0.2, 30.0, hard_classes=3, hard_margin=0.1, margin_ramp=[0, 10])
    plain = ArcFaceLoss(6, 9, 0.2, 30.0, margin_ramp=[0, 10])
    plain.load_state_dict(loss.state_dict())
    embeddings, labels = torch.randn(5, 6), torch.tensor([0, 3, 8, 3, 1])
    for step in (5, 10):
        loss.at_step(step)
        plain.at_step(step)
        found = loss.logits(embeddings, labels, loss.class_vectors)
        expected = plain.logits(embeddings, labels, plain.class_vectors)
        cosines = functional.cosine_similarity(embeddings[:, None], loss.class_vectors, dim=2)
        for row, label in enumerate(labels.tolist()):
            others = sorted((j for j in range(9) if j != label), key=lambda j: -cosines[row, j])
            for j in others[:3]:
                angle = math.acos(float(cosines[row, j].detach())) - 0.1 * step / 10
                expected[row, j] = 30.0 * math.cos(max(angle, 0.0))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    on_class = loss.class_vectors.detach().clone().requires_grad_()
    loss(on_class[:5], torch.arange(1, 6)).backward()
    assert torch.isfinite(on_class.grad).all()


@pytest.mark.parametrize(
    "options", [{"hard_classes": 9}, {"hard_classes": -1}, {"hard_margin": -1}]
)
def test_impossible_penalties_raise(options):
    with pytest.raises(ValueError, match="hard_classes"):
        ArcFaceLoss(6, 9, **options)
