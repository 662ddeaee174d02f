"""Losses that weigh hard examples, or remember past ones, equal their formulas."""

import torch

from simple_spk.losses.hard_example import BroadFaceLoss, CircleLoss, CurricularFaceLoss
from simple_spk.losses.margin import ArcFaceLoss
from tests.loss_formulas import angular, arc, assert_same, clusters, cosine, make


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
