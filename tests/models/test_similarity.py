"""Laws of similarities, against the paper's formula written as a loop."""

import pytest
import torch
from torch import Tensor

from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

SIMILARITIES = (
    GeneralizedInnerProduct(),
    GeneralizedInnerProduct(-0.7),
    GeneralizedInnerProduct(0.2, learnable=True),
    CosineSimilarity(),
)
every_similarity = pytest.mark.parametrize("similarity", SIMILARITIES)


def embeddings(count: int, dim: int = 5, seed: int = 0) -> Tensor:
    """Embeddings of very different lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.rand(count, 1, generator=generator, dtype=torch.float64).mul(6.0).exp()
    return torch.randn(count, dim, generator=generator, dtype=torch.float64) * lengths


@pytest.mark.parametrize("angular_bias", [-1.0, 0.0, 0.3, 1.0])
def test_generalized_inner_product_is_equation_6(angular_bias: float) -> None:
    similarity = GeneralizedInnerProduct(angular_bias).double()
    queries, keys = embeddings(4), embeddings(7, seed=1)
    scores = similarity(queries, keys)
    bias = float(torch.tensor(angular_bias))  # the module keeps it in single precision
    for i, x in enumerate(queries):
        for j, z in enumerate(keys):
            expected = x.dot(z) - bias * x.norm() * z.norm()
            torch.testing.assert_close(scores[i, j], expected)


def test_cosine_is_the_cosine_and_ignores_lengths() -> None:
    similarity = CosineSimilarity()
    queries, keys = embeddings(4), embeddings(7, seed=1)
    scores = similarity(queries, keys)
    for i, x in enumerate(queries):
        for j, z in enumerate(keys):
            torch.testing.assert_close(scores[i, j], x.dot(z) / (x.norm() * z.norm()))
    torch.testing.assert_close(similarity(1e-3 * queries, 1e4 * keys), scores)


def test_the_generalized_inner_product_scales_with_both_lengths() -> None:
    similarity = GeneralizedInnerProduct()
    queries, keys = embeddings(4).float(), embeddings(7, seed=1).float()
    torch.testing.assert_close(similarity(2 * queries, 8 * keys), 16 * similarity(queries, keys))


@every_similarity
def test_symmetric(similarity: Similarity) -> None:
    first, second = embeddings(4).float(), embeddings(7, seed=1).float()
    torch.testing.assert_close(similarity(first, second), similarity(second, first).T)


@every_similarity
def test_pairs_are_the_diagonal(similarity: Similarity) -> None:
    enroll, test = embeddings(6).float(), embeddings(6, seed=1).float()
    torch.testing.assert_close(similarity.pairs(enroll, test), similarity(enroll, test).diagonal())


@every_similarity
def test_keys_are_lifted_without_parameters(similarity: Similarity) -> None:
    """What a queue stores must stay valid while parameters change."""
    assert not similarity.lift_keys(embeddings(3).float()).requires_grad


def test_a_learnable_bias_gets_the_gradient_of_the_formula() -> None:
    """Equation 6 differentiated by b_theta gives minus the product of the lengths."""
    similarity = GeneralizedInnerProduct(0.3, learnable=True).double()
    queries, keys = embeddings(4), embeddings(7, seed=1)
    similarity(queries, keys).sum().backward()
    assert similarity.angular_bias.grad is not None
    expected = -queries.norm(dim=1).sum() * keys.norm(dim=1).sum()
    torch.testing.assert_close(similarity.angular_bias.grad, expected)


def test_a_fixed_bias_is_saved_but_not_trained() -> None:
    similarity = GeneralizedInnerProduct(0.3)
    assert not list(similarity.parameters())
    other = GeneralizedInnerProduct(-0.9)
    other.load_state_dict(similarity.state_dict())
    queries = embeddings(4).float()
    assert torch.equal(other(queries, queries), similarity(queries, queries))


@pytest.mark.parametrize("angular_bias", [1.01, -1.5, float("nan")])
def test_a_bias_that_is_no_cosine_raises(angular_bias: float) -> None:
    with pytest.raises(ValueError, match=str(angular_bias)):
        GeneralizedInnerProduct(angular_bias)
