"""Retrieval metrics of 60,000 embeddings (128), relative to the product of all pairs."""

import argparse
from collections.abc import Callable

import torch

from simple_spk.models.similarity import GeneralizedInnerProduct
from simple_spk.vision.retrieval_metrics import clustering_nmi, retrieval_metrics
from tools.benchmarks.measure import Row, extra_memory, in_turns

COUNT, DIMENSIONS = 60_000, 128


def retrieval_candidates(classes: int) -> dict[str, Callable]:
    """Metrics of synthetic embeddings, far enough from their class centers to cause errors."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (COUNT,), generator=generator)
    centers = torch.randn(classes, DIMENSIONS, generator=generator)
    embeddings = centers[labels] + 2.5 * torch.randn(COUNT, DIMENSIONS, generator=generator)
    similarity = GeneralizedInnerProduct()
    queries, keys = similarity.lift_queries(embeddings), similarity.lift_keys(embeddings)

    def products() -> None:
        for block in queries.split(400):
            block @ keys.T

    return {
        "products": products,
        "all but NMI": lambda: retrieval_metrics(queries, keys, labels),
        "NMI": lambda: clustering_nmi(embeddings, labels),
    }


def run(options: argparse.Namespace) -> list[Row]:
    """Few large classes, and many small ones."""
    rows = []
    for classes in (100, 11_000):
        candidates = retrieval_candidates(classes)
        seconds = in_turns(candidates, rounds=1)
        rows += [
            {
                "classes": classes,
                "what": name,
                "seconds": seconds[name],
                "times the products": seconds[name] / seconds["products"],
                "extra MiB": extra_memory(retrieval_candidates, name, classes),
            }
            for name in candidates
        ]
    return rows
