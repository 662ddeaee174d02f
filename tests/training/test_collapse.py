"""The geometry of a batch, against a loop over pairs, and the warning of a collapse."""

import math
from itertools import permutations
from statistics import mean

import pytest
import torch
from torch.nn import functional

from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.training.log import BatchGeometry, batch_geometry, collapse_warning

HEALTHY = BatchGeometry(3.0, -2.0, 0.8, 0.1, 2.0)


@pytest.mark.parametrize("similarity", [GeneralizedInnerProduct(), CosineSimilarity()])
def test_means_over_pairs(similarity: Similarity) -> None:
    torch.manual_seed(0)
    embeddings, labels = torch.randn(9, 4) + 0.5, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    geometry = batch_geometry(embeddings, labels, similarity)
    values: dict[tuple[str, bool], list[float]] = {}
    for i, j in permutations(range(9), 2):
        x, z, same = embeddings[i], embeddings[j], bool(labels[i] == labels[j])
        score = float(similarity.pairs(x[None], z[None]))
        cosine = float(functional.cosine_similarity(x, z, dim=0))
        values.setdefault(("similarity", same), []).append(score)
        values.setdefault(("cosine", same), []).append(cosine)
    expected = BatchGeometry(
        positive_similarity=mean(values["similarity", True]),
        negative_similarity=mean(values["similarity", False]),
        positive_cosine=mean(values["cosine", True]),
        negative_cosine=mean(values["cosine", False]),
        length=mean(float(x.norm()) for x in embeddings),
    )
    assert geometry == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [5, 5, 5, 5]], ids=["no positives", "no others"])
def test_one_recording_a_class_or_one_class_is_no_collapse(labels: list[int]) -> None:
    """A mean over no pairs is no number, and says nothing of how the other one compares."""
    torch.manual_seed(0)
    similarity = GeneralizedInnerProduct()
    geometry = batch_geometry(torch.randn(4, 3), torch.tensor(labels), similarity)
    missing, found = geometry.positive_cosine, geometry.negative_cosine
    if labels[0] == labels[1]:
        missing, found = found, missing
    assert math.isnan(missing) and math.isfinite(found) and geometry.length > 0.5
    assert collapse_warning(geometry, similarity) is None


def test_no_gradient_and_no_half_precision() -> None:
    """Geometry of half-precision queries is computed in single precision."""
    torch.manual_seed(0)
    embeddings = (100.0 * torch.randn(6, 512)).half().requires_grad_()
    labels = torch.arange(6) // 2
    geometry = batch_geometry(embeddings, labels, GeneralizedInnerProduct())
    expected = batch_geometry(embeddings.double(), labels, GeneralizedInnerProduct())
    assert geometry == pytest.approx(expected, rel=1e-4)


def test_warns_of_collapsed_training_only() -> None:
    assert collapse_warning(HEALTHY, GeneralizedInnerProduct()) is None
    shrunk = collapse_warning(HEALTHY._replace(length=0.013), GeneralizedInnerProduct())
    assert shrunk is not None
    assert "0.013" in shrunk
    indistinct = collapse_warning(
        HEALTHY._replace(positive_cosine=0.951, negative_cosine=0.949), GeneralizedInnerProduct()
    )
    assert indistinct is not None
    assert "0.951" in indistinct
    assert "0.949" in indistinct


@pytest.mark.parametrize("name", ["embeddings at zero", "one direction for all"])
def test_real_collapses_are_noticed(name: str) -> None:
    torch.manual_seed(0)
    embeddings = torch.randn(8, 4)
    if name == "embeddings at zero":
        embeddings = 1e-3 * embeddings
    else:
        embeddings = 5.0 * torch.ones(8, 4) + 1e-3 * embeddings
    geometry = batch_geometry(embeddings, torch.arange(8) // 2, GeneralizedInnerProduct())
    assert collapse_warning(geometry, GeneralizedInnerProduct()) is not None
