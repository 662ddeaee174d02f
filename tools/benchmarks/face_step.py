"""A training step of IResNet-100 with a queue of 524,288 faces: time and memory."""

import argparse
import multiprocessing
import time
from typing import Any

import torch

from recipes.Face.iresnet import IResNet
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.momentum_encoder import MomentumEncoder
from tools.benchmarks.measure import Row, memory

QUEUE_SIZE, EMBEDDING_DIM, PERSONS = 524_288, 512, 85_742
IMAGES = 512  # of a step: 128 persons x 4
AT_ONCE = 32  # in one pass through the network, as with grad_accumulation_factor 16
LIMIT_MIB = 24 * 1024


def run(options: argparse.Namespace) -> list[Row]:
    """A step of 512 faces of 112 x 112 by passes of 32, in a process of its own.

    All parts of setting C are included: encoder, momentum encoder, full queue, loss, gradient
    clipping, SGD with momentum. Raises if the process used more than 24 GiB.
    """
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_step, args=(queue, options.threads))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the step failed with code {process.exitcode}")
    row: Row = queue.get()
    if row["peak MiB"] > LIMIT_MIB:
        raise RuntimeError(f"the step took {row['peak MiB']:.0f} MiB, more than {LIMIT_MIB}")
    return [row]


def _step(results: Any, threads: int) -> None:
    """One step, and what it took, put into a queue of processes."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    output = {"form": "polar", "centered": True, "initial_length": 0.6931}
    encoder = IResNet(depth=100, embedding_dim=EMBEDDING_DIM, output=output).train()
    average = MomentumEncoder(encoder).train()
    loss = SimPLELoss(sharpness=2.0, scale=500.0)
    keys = KeyQueue(QUEUE_SIZE, EMBEDDING_DIM)
    for rows in torch.randint(PERSONS, (QUEUE_SIZE,)).split(65_536):
        directions = torch.nn.functional.normalize(torch.randn(len(rows), EMBEDDING_DIM), dim=1)
        keys.enqueue(0.6931 * directions, rows)
    parameters = [*encoder.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)
    labels = torch.arange(IMAGES // 4).repeat_interleave(4)
    before, started, total = memory("VmRSS"), time.perf_counter(), 0.0
    for some in labels.split(AT_ONCE):
        faces = torch.rand(AT_ONCE, 3, 112, 112) * 2.0 - 1.0
        queries, new = encoder(faces), average(faces)
        own = keys.enqueue(new, some)
        value = loss(queries, some, *keys.contents(), own) * (AT_ONCE / IMAGES)
        value.backward()
        total += float(value.detach())
    norm = torch.nn.utils.clip_grad_norm_(parameters, 100.0)
    optimizer.step()
    average.update(encoder)
    seconds = time.perf_counter() - started
    results.put(
        {
            "parameters": sum(p.numel() for p in encoder.parameters()),
            "queue": len(keys.contents()[1]),
            "loss": total,
            "gradient": float(norm),
            "seconds": seconds,
            "before MiB": before,
            "peak MiB": memory("VmHWM"),
        }
    )
