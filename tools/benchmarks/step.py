"""Parts of a training step, of the full ResNet-34 and of two small ones."""

import argparse
import statistics
import time

import torch

from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.momentum_encoder import MomentumEncoder
from simple_spk.models.resnet import ResNet
from tools.benchmarks.measure import Row


def run(options: argparse.Namespace) -> list[Row]:
    """Parts of a training step, of the full ResNet-34 and of two small ones.

    Everything but the encoder's forward and backward pass and the moving average's forward pass is
    overhead: front end, queue, loss, clipping, optimizer, moving average.
    """
    rows = []
    settings = {
        "ResNet-34, 16 crops of 3 s": (ResNet(), 16, 3.0, 65536),
        "ResNet-34 of width 8, stem stride 2, 64 crops of 2 s": (
            ResNet(width=8, stem_stride=2, embedding_dim=128),
            *(64, 2.0, 4096),
        ),
        "mini.yaml, 64 crops of 1.5 s": (
            ResNet(width=8, blocks=(1, 1, 1, 1), stem_stride=2, embedding_dim=128),
            *(64, 1.5, 4096),
        ),
    }
    for name, (encoder, batch, seconds, queue_size) in settings.items():
        parts = _time_step_parts(encoder, batch, seconds, queue_size)
        total = sum(parts.values())
        networks = ("encoder forward", "encoder backward", "momentum forward")
        overhead = sum(value for part, value in parts.items() if part not in networks)
        rows += [
            {
                "model": name,
                "part": part,
                "milliseconds": value * 1000,
                "percent": 100 * value / total,
            }
            for part, value in [*parts.items(), ("ALL OUTSIDE THE NETWORKS", overhead)]
        ]
    return rows


def _time_step_parts(
    encoder: ResNet, batch: int, seconds: float, queue_size: int
) -> dict[str, float]:
    """Median seconds of each part of a training step."""
    torch.manual_seed(0)
    front_end = Fbank().train()
    encoder.train()
    dim = encoder.output.linear.out_features
    momentum_encoder = MomentumEncoder(encoder).train()
    queue, loss = KeyQueue(queue_size, dim), SimPLELoss()
    queue.enqueue(torch.randn(queue_size, dim), torch.randint(5994, (queue_size,)))
    parameters = [*encoder.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, weight_decay=5e-4)
    waveforms = torch.randn(batch, int(seconds * 16000)) * 0.1
    labels = torch.arange(batch // 4).repeat_interleave(4)
    measured: dict[str, list[float]] = {}
    last = [0.0]

    def lap(part: str | None = None) -> None:
        now = time.perf_counter()
        if part is not None:
            measured.setdefault(part, []).append(now - last[0])
        last[0] = now

    for _ in range(6):
        lap()
        features, lengths = front_end(waveforms)
        lap("front end")
        queries = encoder(features, lengths)
        lap("encoder forward")
        keys = momentum_encoder(features, lengths)
        lap("momentum forward")
        own_keys = queue.enqueue(keys, labels)
        leaf = queries.detach().requires_grad_()
        value = loss(leaf, labels, *queue.contents(), own_keys)
        value.backward()
        lap("queue and loss")
        queries.backward(leaf.grad)
        lap("encoder backward")
        torch.nn.utils.clip_grad_norm_(parameters, 100.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        momentum_encoder.update(encoder)
        lap("clipping, optimizer, moving average")
    return {part: statistics.median(values[1:]) for part, values in measured.items()}
