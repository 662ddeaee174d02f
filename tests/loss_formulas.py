"""What tests of losses with class vectors share: data, and formulas written out one by one."""

import math

import torch

DIM, CLASSES = 6, 5


def clusters(n=20, dim=DIM, classes=CLASSES, length=1.0, dtype=torch.float64, seed=0):
    """Embeddings (n, dim) around a center per class, and their labels (n,)."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(classes, dim, generator=generator, dtype=dtype)
    labels = torch.arange(n) % classes
    noise = torch.randn(n, dim, generator=generator, dtype=dtype)
    return (centers[labels] + 0.5 * noise) * length, labels


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


def arc(cosine_value, margin):
    """cos(theta + m) and, beyond pi, what the published code puts there."""
    angle = torch.arccos(cosine_value)
    if angle + margin > math.pi:
        return cosine_value - margin * math.sin(margin)
    return torch.cos(angle + margin)
