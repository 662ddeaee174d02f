"""Benchmarks: python tools/bench.py NAME [--json FILE]

Each benchmark times our code beside a stated reference in one and the same run, in turns, and
prints ratios: on shared machines only those mean something. Peak memory is taken in processes of
their own.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.fbank import Fbank
from simple_spk.key_queue import KeyQueue
from simple_spk.loss import SimPLELoss
from simple_spk.momentum import MomentumEncoder
from simple_spk.resnet import ResNet

Row = dict[str, Any]


def in_turns(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each candidate, run one after the other for several rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_number in range(rounds + 1):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            if round_number > 0:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def extra_memory(make: Callable[..., dict[str, Callable]], name: str, *arguments: Any) -> float:
    """MiB that one run of a candidate needs beyond its inputs, measured in a new process."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_report_peak, args=(queue, make, name, arguments))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"measuring the memory of {name} failed with code {process.exitcode}")
    return queue.get()


def _report_peak(queue: Any, make: Callable, name: str, arguments: tuple) -> None:
    """Put the growth of this process's peak memory during one run into a queue."""
    run = make(*arguments)[name]
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak so far
    before = _memory("VmRSS")
    run()
    queue.put(_memory("VmHWM") - before)


def _memory(kind: str) -> float:
    """MiB that this process holds (VmRSS) or held at most (VmHWM), according to Linux."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split(f"{kind}:")[1].split()[0]) / 1024


# ---- loss ----------------------------------------------------------------------------------------


def loss_candidates(batch: int, dim: int, queue_size: int, stage: str) -> dict[str, Callable]:
    """Our loss, the plain formula and the two bare products (whole, and tile by tile).

    The embeddings are those of 5,994 speakers at two moments of training: "start", when positives
    barely differ from negatives (cosines 0.2 and 0, length 2, b = -1), and "trained" (cosine of
    positives 0.7, of negatives 0 with deviation 0.1, length 7, b = -10): r is 3 in both.
    """
    generator = torch.Generator().manual_seed(0)
    positive_cosine, length, bias = {"start": (0.2, 2.0, -1.0), "trained": (0.7, 7.0, -10.0)}[stage]
    effective_dim = 100  # a trained embedding does not fill its space: deviation 0.1 of cosines
    centres = torch.randn(5994, effective_dim, generator=generator)

    def embeddings(labels: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(labels), effective_dim, generator=generator)
        mixed = positive_cosine**0.5 * centres[labels] + (1 - positive_cosine) ** 0.5 * noise
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
        "plain formula": lambda: loss.plain(*pairs).backward(),
        "two products": lambda: (bare @ keys.T) @ keys,
        "two products, tiled": tiled_products,
    }


def bench_loss(options: argparse.Namespace) -> list[Row]:
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


# ---- step ----------------------------------------------------------------------------------------


def bench_step(options: argparse.Namespace) -> list[Row]:
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


BENCHMARKS = {"loss": bench_loss, "step": bench_step}


def print_table(rows: list[Row]) -> None:
    """Rows as a Markdown table."""
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        cells = (f"{v:.3g}" if isinstance(v, float) else f"{v}" for v in row.values())
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Run one benchmark, print its table and, if asked, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=BENCHMARKS, help="which benchmark")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        (BENCHMARKS[options.name].__doc__ or "").splitlines()[0], f"({options.threads} threads)\n"
    )
    rows = BENCHMARKS[options.name](options)
    print_table(rows)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
