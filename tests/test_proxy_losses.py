"""Losses with class vectors: equal to their formulas, within their limits, able to train."""

import math

import pytest
import torch

from simple_spk.proxy_losses import SoftmaxLoss
from simple_spk.similarity import CosineSimilarity

DIM, CLASSES = 6, 5


def clusters(n=20, dim=DIM, classes=CLASSES, length=1.0, dtype=torch.float64, seed=0):
    """Embeddings (n, dim) around a centre per class, and their labels (n,)."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dim, generator=generator, dtype=dtype)
    labels = torch.arange(n) % classes
    noise = torch.randn(n, dim, generator=generator, dtype=dtype)
    return (centres[labels] + 0.5 * noise) * length, labels


def value_and_gradients(loss, function, embeddings, labels):
    """The loss with its gradients for embeddings and for all parameters."""
    embeddings = embeddings.clone().requires_grad_()
    value = function(embeddings, labels)
    return [value.detach(), *torch.autograd.grad(value, [embeddings, *loss.parameters()])]


def assert_same(loss, slow, embeddings, labels):
    expected = value_and_gradients(loss, slow, embeddings, labels)
    for actual, wanted in zip(
        value_and_gradients(loss, loss, embeddings, labels), expected, strict=True
    ):
        torch.testing.assert_close(actual, wanted, rtol=1e-8, atol=1e-10)


def negative_log_share(logits, label):
    """-log softmax, written out."""
    return -torch.log(logits[label].exp() / logits.exp().sum())


def test_softmax_equals_its_formula():
    torch.manual_seed(0)
    loss = SoftmaxLoss(DIM, CLASSES).double()
    torch.nn.init.normal_(loss.class_biases)

    def slow(embeddings, labels):
        losses = []
        for x, label in zip(embeddings, labels, strict=True):
            pairs = zip(loss.class_vectors, loss.class_biases, strict=True)
            logits = torch.stack([(w * x).sum() + c for w, c in pairs])
            losses.append(negative_log_share(logits, label))
        return torch.stack(losses).mean()

    assert_same(loss, slow, *clusters())


def test_softmax_without_knowledge_is_log_of_the_number_of_classes():
    embeddings, labels = clusters(length=0.0, dtype=torch.float32)
    loss = SoftmaxLoss(DIM, CLASSES)(embeddings, labels)
    assert float(loss.detach()) == pytest.approx(math.log(CLASSES))


def train_toy(loss, steps=60):
    """Cosines of test pairs of the same and of other classes, after training a linear encoder."""
    torch.manual_seed(0)
    classes, hidden, noise = 8, 16, 6
    centres = torch.randn(classes, hidden)

    def batch(n):
        labels = torch.arange(n) % classes
        inputs = torch.cat([centres[labels], 3.0 * torch.randn(n, noise)], dim=1)
        return inputs + 0.1 * torch.randn_like(inputs), labels

    encoder = torch.nn.Linear(hidden + noise, DIM)
    optimizer = torch.optim.Adam([*encoder.parameters(), *loss.parameters()], lr=0.05)
    for _ in range(steps):
        inputs, labels = batch(64)
        optimizer.zero_grad()
        loss(encoder(inputs), labels).backward()
        optimizer.step()
    with torch.no_grad():
        inputs, labels = batch(40)
        embeddings = encoder(inputs)
        scores = loss.similarity(embeddings, embeddings)
        same = labels[:, None] == labels
        return scores[same & ~torch.eye(40, dtype=torch.bool)], scores[~same]


@pytest.mark.parametrize("make", [SoftmaxLoss])
def test_trains_a_toy_problem_to_separation(make):
    torch.manual_seed(0)
    same, other = train_toy(make(DIM, 8))
    assert same.quantile(0.02) > other.quantile(0.98)


@pytest.mark.parametrize("make", [SoftmaxLoss])
def test_scores_with_the_cosine(make):
    assert isinstance(make(DIM, CLASSES).similarity, CosineSimilarity)


@pytest.mark.parametrize("make", [SoftmaxLoss])
def test_half_precision_embeddings_are_summed_in_single_precision(make):
    embeddings, labels = clusters(dtype=torch.float32)
    torch.manual_seed(0)
    loss = make(DIM, CLASSES)
    expected = loss(embeddings, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = loss(embeddings.bfloat16(), labels)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=3e-2, atol=0)


def test_labels_and_sizes_that_do_not_fit_are_explained():
    embeddings, labels = clusters(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"num_classes: 3.*number of training speakers"):
        SoftmaxLoss(DIM, 3)(embeddings, labels)
    with pytest.raises(ValueError, match="same embedding_dim"):
        SoftmaxLoss(DIM + 1, CLASSES)(embeddings, labels)
    with pytest.raises(ValueError, match="num_classes"):
        SoftmaxLoss(DIM, 1)
