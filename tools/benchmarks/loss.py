"""The loss on a long queue: forward and backward, batch 512, dimension 256."""

import argparse
from collections.abc import Callable

import torch
from torch.nn import functional

from simple_spk.losses.simple import SimPLELoss
from tools.benchmarks.measure import Row, extra_memory, in_turns


def loss_candidates(batch: int, dim: int, queue_size: int, stage: str) -> dict[str, Callable]:
    """Our loss, the plain formula and the two bare products (whole, and tile by tile).

    The embeddings are those of 5,994 speakers at two moments of training: "start", when positives
    barely differ from negatives (cosines 0.2 and 0, length 2, b = -1), and "trained" (cosine of
    positives 0.7, of negatives 0 with deviation 0.1, length 7, b = -10): r is 3 in both.
    """
    generator = torch.Generator().manual_seed(0)
    positive_cosine, length, bias = {"start": (0.2, 2.0, -1.0), "trained": (0.7, 7.0, -10.0)}[stage]
    effective_dim = 100  # a trained embedding does not fill its space: deviation 0.1 of cosines
    centers = torch.randn(5994, effective_dim, generator=generator)

    def embeddings(labels: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(labels), effective_dim, generator=generator)
        mixed = positive_cosine**0.5 * centers[labels] + (1 - positive_cosine) ** 0.5 * noise
        padded = functional.pad(
            functional.normalize(mixed, dim=1) * length, (0, dim - effective_dim)
        )
        return padded

    labels = torch.randint(5994, (batch // 4,), generator=generator).repeat_interleave(4)
    key_labels = torch.randint(5994, (queue_size,), generator=generator)
    own_keys = torch.arange(batch)
    key_labels[own_keys] = labels
    queries, keys = embeddings(labels).requires_grad_(), embeddings(key_labels)
    rotation = torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q
    queries, keys = (queries @ rotation).detach().requires_grad_(), keys @ rotation
    loss = SimPLELoss(sharpness=3.0, initial_bias=bias)
    pairs = queries, labels, keys, key_labels, own_keys
    bare = queries.detach()

    def tiled_products() -> None:
        gradient = torch.zeros_like(bare)
        for tile in keys.split(2048):
            gradient.addmm_(bare @ tile.T, tile)

    return {
        "ours": lambda: loss(*pairs).backward(),
        "plain formula": lambda: loss.reference(*pairs).backward(),
        "two products": lambda: (bare @ keys.T) @ keys,
        "two products, tiled": tiled_products,
    }


def run(options: argparse.Namespace) -> list[Row]:
    """The loss on a long queue: forward and backward, batch 512, dimension 256."""
    rows = []
    for queue_size in (65536, 524288):
        for stage in ("start", "trained"):
            arguments = (512, 256, queue_size, stage)
            candidates = loss_candidates(*arguments)
            seconds = in_turns(candidates, rounds=1 if queue_size > 100_000 else 5)
            for name in candidates:
                row = {
                    "queue": queue_size,
                    "embeddings": stage,
                    "what": name,
                    "seconds": seconds[name],
                    "times the two products": seconds[name] / seconds["two products"],
                    "extra MiB": "",
                }
                if stage == "start":  # when no key is easy yet, so that nothing is skipped
                    row["extra MiB"] = extra_memory(loss_candidates, name, *arguments)
                rows.append(row)
            del candidates
    return rows
