"""Losses of pytorch-metric-learning over the queue: equal to their formulas, own keys left out."""

import pytest
import torch
from torch.nn import functional

from simple_spk.losses.metric_learning import MetricLearningLoss, pairs_without_own

losses = pytest.importorskip("pytorch_metric_learning.losses", reason="an extra: [metric]")


def make_pairs(n=6, m=15, dim=5, speakers=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % speakers
    key_labels = torch.randint(speakers, (m,), generator=generator)
    own_keys = torch.randperm(m, generator=generator)[:n]
    key_labels[own_keys] = labels
    queries = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    keys = torch.randn(m, dim, generator=generator, dtype=torch.float64)
    return queries, labels, keys, key_labels, own_keys


def partners(labels, key_labels, own_keys, i):
    """The keys that are positive, and those that are negative, for query i."""
    keys = [j for j in range(len(key_labels)) if j != own_keys[i]]
    positive = [j for j in keys if key_labels[j] == labels[i]]
    return positive, [j for j in keys if key_labels[j] != labels[i]]


def nonzero_mean(values):
    values = torch.stack(values)
    return values[values > 0].mean()


def contrastive(cosines, sets):
    """Distances are Euclidean between unit vectors: d^2 = 2 - 2 cos."""
    distances = (2 - 2 * cosines).sqrt()
    positive = [distances[i, j] for i, (near, _) in enumerate(sets) for j in near]
    negative = [(1.0 - distances[i, j]).relu() for i, (_, far) in enumerate(sets) for j in far]
    return nonzero_mean(positive) + nonzero_mean(negative)


def triplet(cosines, sets):
    distances = (2 - 2 * cosines).sqrt()
    values = [
        (distances[i, p] - distances[i, n] + 0.2).relu()
        for i, (near, far) in enumerate(sets)
        for p in near
        for n in far
    ]
    return nonzero_mean(values)


def supervised_contrastive(cosines, sets):
    logits = cosines / 0.1
    values = []
    for i, (near, far) in enumerate(sets):
        total = logits[i, near + far].exp().sum().log()
        values.append(-(logits[i, near] - total).mean())
    return nonzero_mean(values)


def nt_xent(cosines, sets):
    logits = cosines / 0.07
    values = [
        -(logits[i, p] - logits[i, [p, *far]].exp().sum().log())
        for i, (near, far) in enumerate(sets)
        for p in near
    ]
    return torch.stack(values).mean()


def multi_similarity(cosines, sets):
    values = []
    for i, (near, far) in enumerate(sets):
        pull = torch.log(1 + (-2 * (cosines[i, near] - 0.5)).exp().sum()) / 2
        push = torch.log(1 + (50 * (cosines[i, far] - 0.5)).exp().sum()) / 50
        values.append(pull + push)
    return torch.stack(values).mean()


@pytest.mark.parametrize(
    "loss, formula",
    [
        (losses.ContrastiveLoss(), contrastive),
        (losses.TripletMarginLoss(margin=0.2), triplet),
        (losses.SupConLoss(temperature=0.1), supervised_contrastive),
        (losses.NTXentLoss(temperature=0.07), nt_xent),
        (losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), multi_similarity),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_equals_its_formula(loss, formula):
    queries, labels, keys, key_labels, own_keys = make_pairs()
    gradients = []
    for use_library in (True, False):
        queries = queries.detach().clone().requires_grad_()
        if use_library:
            value = MetricLearningLoss(loss)(queries, labels, keys, key_labels, own_keys)
        else:
            cosines = functional.normalize(queries) @ functional.normalize(keys).T
            sets = [partners(labels, key_labels, own_keys, i) for i in range(len(labels))]
            value = formula(cosines, sets)
        gradients.append((value.detach(), torch.autograd.grad(value, queries)[0]))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_pairs_are_all_but_own_ones():
    _, labels, _, key_labels, own_keys = make_pairs()
    a, p, b, n = pairs_without_own(labels, key_labels, own_keys)
    positive = set(zip(a.tolist(), p.tolist(), strict=True))
    negative = set(zip(b.tolist(), n.tolist(), strict=True))
    for i in range(len(labels)):
        near, far = partners(labels, key_labels, own_keys, i)
        assert {j for q, j in positive if q == i} == set(near)
        assert {j for q, j in negative if q == i} == set(far)


@pytest.mark.parametrize(
    "loss",
    [losses.ContrastiveLoss(neg_margin=1.0), losses.TripletMarginLoss(), losses.SupConLoss()],
    ids=lambda loss: type(loss).__name__,
)
def test_trains_a_toy_problem_to_separation(loss):
    torch.manual_seed(0)
    centers, adapter = torch.randn(8, 16), MetricLearningLoss(loss)
    encoder = torch.nn.Linear(22, 6)
    parameters = list(encoder.parameters())
    labels = torch.arange(48) % 8

    def inputs():
        clean = torch.cat([centers[labels], 2.0 * torch.randn(48, 6)], dim=1)
        return clean + 0.1 * torch.randn_like(clean)

    for step in range(60):  # each number goes a small way downhill, a smaller one each time
        crops = inputs()
        keys = encoder(crops).detach()
        value = adapter(encoder(crops), labels, keys, labels, torch.arange(48))
        gradients = torch.autograd.grad(value, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 0.05 * (1 - step / 60) * gradient.sign()
    with torch.no_grad():
        scores = adapter.similarity(*[encoder(inputs())] * 2)
    same = labels[:, None] == labels
    off_diagonal = ~torch.eye(48, dtype=torch.bool)
    assert scores[same & off_diagonal].quantile(0.02) > scores[~same].quantile(0.98)
