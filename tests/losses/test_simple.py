"""The loss against a double loop, its laws, and its behavior at the limits."""

import math

import pytest
import torch
from torch.nn import functional

from simple_spk.losses import pair_sums
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct


def make_pairs(n=13, m=47, dim=6, speakers=5, length=1.0, dtype=torch.float64, seed=0):
    """Queries, labels, keys, key labels and own keys, with clusters of speakers."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(speakers, dim, generator=generator, dtype=dtype)
    labels = torch.randint(speakers, (n,), generator=generator)
    key_labels = torch.randint(speakers, (m,), generator=generator)
    own_keys = torch.randperm(m, generator=generator)[:n]
    key_labels[own_keys] = labels
    noise = torch.randn(n + m, dim, generator=generator, dtype=dtype)
    queries = (centers[labels] + noise[:n]) * length
    keys = (centers[key_labels] + noise[n:]) * length
    return queries, labels, keys, key_labels, own_keys


def double_loop(loss, queries, labels, keys, key_labels, own_keys):
    """Eq. 8, pair by pair."""
    positive, negative = [], []
    for i in range(len(queries)):
        for j in range(len(keys)):
            if j == own_keys[i]:
                continue
            x, z = queries[i], keys[j]
            score = loss.similarity(x[None], z[None])[0, 0]
            if isinstance(loss.similarity, GeneralizedInnerProduct):
                norms = x.square().sum().sqrt() * z.square().sum().sqrt()
                score = (x * z).sum() - loss.similarity.angular_bias * norms
            logit = score + loss.bias
            zero = torch.zeros_like(logit)
            if labels[i] == key_labels[j]:
                positive.append(torch.logaddexp(zero, -logit / loss.sharpness))
            else:
                negative.append(torch.logaddexp(zero, logit * loss.sharpness))
    positives = loss.positive_weight * torch.stack(positive)
    negatives = (1 - loss.positive_weight) * torch.stack(negative)
    if loss.reduction == "joint":
        return loss.scale * torch.cat([positives, negatives]).mean()
    return loss.scale * (positives.mean() + negatives.mean())


def value_and_gradients(loss, function, queries, *others):
    """The loss with its gradients for queries and all parameters of the loss."""
    queries = queries.clone().requires_grad_()
    value = function(queries, *others)
    gradients = torch.autograd.grad(value, [queries, *loss.parameters()])
    return [value.detach(), *gradients]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("reduction", ["separate", "joint"])
@pytest.mark.parametrize("length", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("learnable", [True, False])
def test_equals_the_double_loop(dtype, tolerance, reduction, length, learnable, monkeypatch):
    monkeypatch.setitem(pair_sums.TILE_ELEMENTS, "cpu", 100)  # several tiles, the last one short
    similarity = GeneralizedInnerProduct(0.3, learnable=learnable)
    loss = SimPLELoss(similarity, 0.1, 2.0, 20.0, -1.5, reduction).to(dtype)
    data = make_pairs(length=length, dtype=dtype)
    expected = value_and_gradients(loss, lambda *pairs: double_loop(loss, *pairs), *data)
    assert len(expected) == (
        4 if learnable else 3
    )  # loss; queries, bias and, if learnable, b_theta
    for function in (loss, loss.reference):
        for actual, wanted in zip(
            value_and_gradients(loss, function, *data), expected, strict=True
        ):
            assert (actual - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_cosine_equals_the_double_loop():
    loss = SimPLELoss(CosineSimilarity(), 0.3, 3.0, 1.0, -0.5).double()
    data = make_pairs()
    expected = value_and_gradients(loss, lambda *pairs: double_loop(loss, *pairs), *data)
    for actual, wanted in zip(value_and_gradients(loss, loss, *data), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [1.0, 10.0, 100.0])
def test_large_scores_stay_exact(length):
    """Hard and easy pairs far beyond where exp overflows or vanishes."""
    loss = SimPLELoss(positive_weight=0.5, sharpness=3.0, initial_bias=-10.0).double()
    data = make_pairs(n=20, m=300, length=length)
    expected = value_and_gradients(loss, loss.reference, *data)
    for actual, wanted in zip(value_and_gradients(loss, loss, *data), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-12)


def test_easy_keys_are_skipped_without_a_trace():
    """When nearly all keys are easy negatives, value and gradient are still those of all keys."""
    data = make_pairs(n=16, m=4000, dim=256, speakers=400, length=0.3)
    hard = (data[3] != data[1][0]).nonzero()[:30, 0]
    data[2][hard] += data[0][0]  # a few keys of other speakers resemble the first query
    loss = SimPLELoss(positive_weight=0.5, sharpness=3.0, initial_bias=-10.0).double()
    logits = 3.0 * (loss.similarity(data[0], data[2]) + loss.bias)
    logits[data[1][:, None] == data[3]] = -math.inf
    easy = (logits.amax(dim=0) < math.log(torch.finfo(torch.float64).eps) - 7.0).double().mean()
    assert easy > 0.5  # the case is what it is called
    expected = value_and_gradients(loss, loss.reference, *data)
    for actual, wanted in zip(value_and_gradients(loss, loss, *data), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-14)


def test_own_key_has_no_influence():
    queries, labels, keys, key_labels, own_keys = make_pairs()
    loss = SimPLELoss(positive_weight=0.3, initial_bias=-1.0).double()
    one_query = slice(0, 1)
    before = loss(queries[one_query], labels[one_query], keys, key_labels, own_keys[one_query])
    keys = keys.clone()
    keys[own_keys[0]] *= -100.0
    after = loss(queries[one_query], labels[one_query], keys, key_labels, own_keys[one_query])
    assert torch.equal(before, after)
    others = (key_labels == labels[0]).nonzero()[:, 0]
    keys[others[others != own_keys[0]][0]] *= 2.0  # any other key of the speaker counts
    assert not torch.equal(
        after, loss(queries[one_query], labels[one_query], keys, key_labels, own_keys[one_query])
    )


@pytest.mark.parametrize("batches_before", range(6))
def test_own_key_is_left_out_at_every_pointer_position(batches_before):
    """Queue and loss together: what a query's twin holds never matters, wherever it is stored."""
    batch, size, dim = 4, 10, 3  # the batch does not divide the queue
    torch.manual_seed(0)
    loss = SimPLELoss(positive_weight=0.5, initial_bias=0.0).double()
    losses = []
    for twin_scale in (1.0, 50.0):
        torch.manual_seed(1)
        queue = KeyQueue(size, dim).double()
        for _ in range(batches_before):
            queue.enqueue(torch.randn(batch, dim, dtype=torch.float64), torch.arange(batch))
        keys, labels = torch.randn(batch, dim, dtype=torch.float64), torch.arange(batch)
        own_keys = queue.enqueue(keys, labels)
        queue.keys[own_keys[2]] *= twin_scale
        query = torch.ones(1, dim, dtype=torch.float64)
        losses.append(loss(query, labels[2:3], *queue.contents(), own_keys[2:3]))
    assert torch.equal(*losses)


def test_queue_as_long_as_the_batch_equals_the_plain_loss():
    """With a queue of one batch, SimPLE over the queue is SimPLE over the pairs of the batch."""
    queries, labels, keys, _, _ = make_pairs(n=12, m=12)
    queue = KeyQueue(12, queries.shape[1]).double()
    queue.enqueue(torch.randn(7, queries.shape[1], dtype=torch.float64), torch.zeros(7).long())
    own_keys = queue.enqueue(keys, labels)
    loss = SimPLELoss(positive_weight=0.2, initial_bias=-1.0).double()
    on_queue = loss(queries, labels, *queue.contents(), own_keys)
    on_batch = loss.reference(queries, labels, keys, labels, torch.arange(12))
    torch.testing.assert_close(on_queue, on_batch, rtol=1e-12, atol=0)


def test_a_key_that_is_no_number_is_not_hidden():
    queries, labels, keys, key_labels, own_keys = make_pairs()
    keys[(key_labels != labels[0]).nonzero()[0]] = torch.nan
    assert torch.isnan(SimPLELoss().double()(queries, labels, keys, key_labels, own_keys))


def test_order_of_queries_and_keys_is_irrelevant():
    queries, labels, keys, key_labels, own_keys = make_pairs()
    loss = SimPLELoss(positive_weight=0.2, initial_bias=-1.0).double()
    expected = loss(queries, labels, keys, key_labels, own_keys)
    rows, columns = torch.randperm(len(queries)), torch.randperm(len(keys))
    moved = torch.argsort(columns)[own_keys]
    actual = loss(queries[rows], labels[rows], keys[columns], key_labels[columns], moved[rows])
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("sharpness, expected", [(1.0, 5.09), (2.0, 2.54), (3.0, 1.71)])
def test_first_loss_is_that_of_the_published_settings(sharpness, expected):
    """Loss weight 500, alpha 0.001, b = -10 and scores near zero: about what others see."""
    queries, labels, keys, key_labels, own_keys = make_pairs(length=1e-6, dtype=torch.float32)
    loss = SimPLELoss(sharpness=sharpness, scale=500.0)
    with torch.no_grad():
        first_loss = float(loss(queries, labels, keys, key_labels, own_keys))
    assert first_loss == pytest.approx(expected, rel=0.02)


def test_sharpness_one_is_weighted_binary_cross_entropy():
    queries, labels, keys, key_labels, own_keys = make_pairs()
    loss = SimPLELoss(positive_weight=0.3, sharpness=1.0, initial_bias=-1.0, reduction="joint")
    loss = loss.double()
    keep = torch.ones(len(queries), len(keys), dtype=torch.bool)
    keep[torch.arange(len(queries)), own_keys] = False
    same = (labels[:, None] == key_labels).double()
    expected = functional.binary_cross_entropy_with_logits(
        (loss.similarity(queries, keys) + loss.bias)[keep],
        same[keep],
        weight=(0.7 - 0.4 * same)[keep],
    )
    actual = loss(queries, labels, keys, key_labels, own_keys)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("positive_weight", [None, 0.1])
def test_the_naive_and_the_balanced_loss_are_settings_of_it(positive_weight):
    """The paper's Eq. 5 (two halves, doubled) and Eq. 7 (with the sign of b that Eq. 8 has)."""
    queries, labels, keys, key_labels, own_keys = make_pairs()
    if positive_weight is None:
        loss = SimPLELoss(None, 0.5, 1.0, 2.0, -1.0, "joint").double()
        weights = 1.0, 1.0
    else:
        loss = SimPLELoss(None, positive_weight, 1.0, 1.0, -1.0, "joint").double()
        weights = positive_weight, 1.0 - positive_weight
    terms = []
    for i in range(len(queries)):
        for j in range(len(keys)):
            if j != own_keys[i]:
                x, z = queries[i], keys[j]
                score = float(x @ z - loss.similarity.angular_bias * x.norm() * z.norm())
                if labels[i] == key_labels[j]:
                    terms.append(weights[0] * math.log(1 + math.exp(-score + 1.0)))
                else:
                    terms.append(weights[1] * math.log(1 + math.exp(score - 1.0)))
    actual = loss(queries, labels, keys, key_labels, own_keys)
    assert float(actual.detach()) == pytest.approx(sum(terms) / len(terms), rel=1e-9)


def test_settings_change_at_their_steps_and_the_loss_with_them():
    batch = make_pairs(dtype=torch.float32)
    changing = SimPLELoss(None, {0: 0.3, 20: 0.1}, {0: 1.0, 10: 4.0}, {0: 2.0, 20: 50.0}, -1.0)
    for step, numbers in ((0, (0.3, 1.0, 2.0)), (10, (0.3, 4.0, 2.0)), (25, (0.1, 4.0, 50.0))):
        changing.at_step(step)
        constant = SimPLELoss(None, *numbers, -1.0)
        assert torch.equal(changing(*batch), constant(*batch))


def test_keys_that_want_a_gradient_get_it():
    queries, labels, keys, key_labels, own_keys = make_pairs()
    keys.requires_grad_()
    SimPLELoss().double()(queries, labels, keys, key_labels, own_keys).backward()
    assert keys.grad is not None and keys.grad.abs().sum() > 0


def test_no_positive_pairs_is_no_error():
    queries, _, keys, _, _ = make_pairs()
    labels, key_labels = torch.arange(len(queries)), torch.arange(len(keys)) + 100
    own_keys = torch.zeros(len(queries), dtype=torch.long)
    assert torch.isfinite(SimPLELoss().double()(queries, labels, keys, key_labels, own_keys))


def test_half_precision_queries_are_summed_in_single_precision():
    data = list(make_pairs(dtype=torch.float32))
    expected = SimPLELoss()(*data)
    data[0] = data[0].bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = SimPLELoss()(*data)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"positive_weight": 0.0},
        {"positive_weight": 1.0},
        {"sharpness": 0.0},
        {"sharpness": {0: 2.0, 9: -1.0}},
        {"scale": {5: 2.0}},
        {"reduction": "sum"},
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SimPLELoss(**wrong)


def template_loop(loss, queries, labels, keys, key_labels, own_keys):
    """The loss against the mean key of each speaker, speaker by speaker."""
    positive, negative = [], []
    for i, x in enumerate(queries):
        for speaker in key_labels.unique():
            members = [j for j in range(len(keys)) if key_labels[j] == speaker]
            if speaker == labels[i]:
                members = [j for j in members if j != own_keys[i]]
            if not members:
                continue
            logit = loss.similarity(x[None], keys[members].mean(dim=0)[None])[0, 0] + loss.bias
            if speaker == labels[i]:
                positive.append(functional.softplus(-logit / loss.sharpness))
            else:
                negative.append(functional.softplus(logit * loss.sharpness))
    return loss.scale * (
        loss.positive_weight * torch.stack(positive).mean()
        + (1 - loss.positive_weight) * torch.stack(negative).mean()
    )


@pytest.mark.parametrize("similarity", [GeneralizedInnerProduct(0.9), CosineSimilarity(8.0)])
def test_templates_are_the_mean_keys_of_the_others(similarity):
    loss = SimPLELoss(similarity, 0.2, 2.0, 20.0, initial_bias=0.5, templates=True).double()
    pairs = make_pairs(speakers=9)
    expected = value_and_gradients(loss, lambda *p: template_loop(loss, *p), *pairs)
    for found, wanted in zip(value_and_gradients(loss, loss, *pairs), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_templates_of_single_keys_are_these_keys():
    """With one other key a speaker, the loss against templates is the loss against keys."""
    queries, labels, keys, _, _ = make_pairs(n=6, m=6, speakers=6, seed=3)
    labels = torch.arange(6)
    keys = torch.cat([keys, keys + 0.1])
    arguments = queries, labels, keys, torch.arange(12) % 6, torch.arange(6)
    single, mean = (SimPLELoss(initial_bias=0.0, templates=t).double() for t in (False, True))
    positives = [loss.at_step(0) or loss for loss in (single, mean)]
    for loss in positives:
        loss.positive_weight = 1.0  # negatives of a speaker count twice among single keys
    torch.testing.assert_close(mean(*arguments), single(*arguments))


def test_a_speaker_with_only_the_own_key_has_no_positive_pair():
    loss = SimPLELoss(initial_bias=0.0, templates=True).double()
    keys = torch.randn(3, 4, dtype=torch.float64)
    labels = torch.arange(3)
    value = loss(keys, labels, keys, labels, labels)
    assert torch.isfinite(value)
    torch.testing.assert_close(value, template_negatives(loss, keys, labels))


def template_negatives(loss, keys, labels):
    scores = loss.similarity(keys, keys) + loss.bias
    others = scores[labels[:, None] != labels[None, :]]
    return (1 - loss.positive_weight) * functional.softplus(others * loss.sharpness).mean()
