"""What training with a setting will need: memory, time, and data fast enough.

Measured on a few small steps of the real thing, and extrapolated: all figures are estimates.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from simple_spk.data.dataset import speaker_crop_loader
from simple_spk.doctor.training_setting import TrainingSetting
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.momentum_encoder import MomentumEncoder
from simple_spk.models.resnet import ResNet

MEASURED_STEPS = 3
# Networks are measured on so many crops that they take this long: shorter runs tell of overheads.
LEAST_STEP_SECONDS = 0.5
LONGEST_MEASURED_SECONDS = 2.0  # longer crops cost in proportion
MEASURED_BATCHES_OF_LOADER = 6
# Beside what is kept for the backward pass, both passes need room to work in: with it, peaks of
# the process were 1.46 times what is kept.
WORKSPACE = 1.5
BATCHES_AHEAD_PER_WORKER = 2  # torch's DataLoader
SPARE_SPEED = 1.25


@dataclass(frozen=True)
class TrainingNeeds:
    """What a setting needs; memory in bytes, per process if one process trains."""

    parameters: int
    model_bytes: int  # weights, gradients, momentum of SGD, and the moving average
    queue_bytes: int
    activation_bytes_per_crop: float  # of the longest crops
    batch_bytes: int  # waveforms of a batch of the longest crops
    step_seconds: float  # of a whole batch of crops of mean length

    def memory_bytes(self, batch: int) -> float:
        """Of the device, with ``batch`` crops at a time."""
        return self.model_bytes + self.queue_bytes + batch * self.activation_bytes_per_crop


# ---- memory and time ----------------------------------------------------------------------------


def measure_needs(setting: TrainingSetting, device: str = "cpu") -> TrainingNeeds:
    """What training needs: the networks from a few steps on few crops, the loss as it will be."""
    mean_seconds, longest_seconds = setting.mean_crop_seconds, setting.longest_crop_seconds
    measured_seconds = min(mean_seconds, LONGEST_MEASURED_SECONDS)
    encoder = ResNet(
        num_mels=setting.num_mels,
        width=setting.width,
        blocks=setting.blocks,
        stem_stride=setting.stem_stride,
        embedding_dim=setting.embedding_dim,
    )
    step = _network_step(encoder, setting, torch.device(device))
    samples = round(measured_seconds * setting.sample_rate)
    crops, seconds = 2, 0.0
    while True:
        waveforms = 0.1 * torch.randn(crops, samples, device=device)
        counter = _CountSavedBytes()
        with counter:
            step(waveforms)  # warms up, too
        seconds = min(_timed(partial(step, waveforms), device) for _ in range(MEASURED_STEPS))
        if seconds >= LEAST_STEP_SECONDS or 2 * crops > setting.batch:
            break
        crops *= 2
    compare = _loss_step(setting, torch.device(device))
    loss_seconds = min(_timed(compare, device) for _ in range(MEASURED_STEPS))
    mean, longest = mean_seconds / measured_seconds, longest_seconds / measured_seconds
    parameters = sum(parameter.numel() for parameter in encoder.parameters())
    return TrainingNeeds(
        parameters=parameters,
        model_bytes=4 * 4 * parameters,
        queue_bytes=setting.queue_size * (4 * setting.embedding_dim + 8),
        activation_bytes_per_crop=WORKSPACE * counter.bytes / crops * longest,
        batch_bytes=round(setting.batch * longest_seconds * setting.sample_rate * 4),
        step_seconds=loss_seconds + setting.batch * seconds / crops * mean,
    )


def _network_step(
    encoder: ResNet, setting: TrainingSetting, device: torch.device
) -> Callable[[Tensor], None]:
    """What a training step does with the networks, on waveforms (n, samples)."""
    encoder.to(device).train()
    front_end = Fbank(sample_rate=setting.sample_rate, num_mels=setting.num_mels).to(device)
    average = MomentumEncoder(encoder).to(device).train()
    parameters = [*encoder.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)

    def step(waveforms: Tensor) -> None:
        features = front_end(waveforms)
        queries, keys = encoder(*features), average(*features)
        queries.backward(keys)  # any gradient of that shape costs the same
        torch.nn.utils.clip_grad_norm_(parameters, 100.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update(encoder)

    return step


def _loss_step(setting: TrainingSetting, device: torch.device) -> Callable[[], None]:
    """What a training step does between the networks: a whole batch against a full queue."""
    queue = KeyQueue(setting.queue_size, setting.embedding_dim).to(device)
    loss = SimPLELoss().to(device)
    keys = torch.randn(setting.queue_size, setting.embedding_dim, device=device)
    queue.enqueue(keys, torch.arange(setting.queue_size, device=device))
    labels = torch.arange(min(setting.batch, setting.queue_size), device=device) // 2
    queries = torch.randn(len(labels), setting.embedding_dim, device=device, requires_grad=True)

    def step() -> None:
        own_keys = queue.enqueue(queries.detach(), labels)
        loss(queries, labels, *queue.contents(), own_keys).backward()

    return step


def _timed(step: Callable[[], None], device: str) -> float:
    """Seconds of one step, its GPU work included."""
    start = time.perf_counter()
    step()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


class _CountSavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that are kept for backward passes, each storage once."""

    def __init__(self) -> None:
        self.bytes = 0
        self._seen: set[int] = set()
        super().__init__(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


# ---- data ---------------------------------------------------------------------------------------


def loader_crops_per_second(manifest: str | Path, setting: TrainingSetting, workers: int) -> float:
    """How many crops per second ``workers`` processes (0: this one) read, by reading some."""
    batches = MEASURED_BATCHES_OF_LOADER + workers * (1 + BATCHES_AHEAD_PER_WORKER)
    loader = speaker_crop_loader(
        manifest,
        sample_rate=setting.sample_rate,
        workers=workers,
        speakers_per_batch=1,  # a crop costs the same in any batch, and any manifest has a speaker
        recordings_per_speaker=32,
        crop_seconds=setting.crop_seconds,
        batches_per_epoch=batches,
    )
    crops = 0
    start = time.perf_counter()
    for number, batch in enumerate(loader):
        if number == 0 and workers:  # starting the processes does not count; each has read a batch
            start = time.perf_counter()
            crops -= (workers - 1) * len(batch.labels)
            continue
        crops += len(batch.labels)
    return crops / (time.perf_counter() - start)


def workers_needed(consumed: float, delivered: float, workers: int) -> int:
    """How many workers deliver what is consumed, with some to spare, if ``workers`` deliver that.

    >>> workers_needed(consumed=100.0, delivered=40.0, workers=2)
    7
    """
    return max(1, math.ceil(SPARE_SPEED * consumed / (delivered / max(1, workers))))
