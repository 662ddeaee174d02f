"""What training with a setting will need: memory, time, and a data loader that keeps up.

Measured on a few small steps of real training, and extrapolated: all numbers are estimates.
"""

import math
import re
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simple_spk import SAMPLE_RATE
from simple_spk.data.dataset import speaker_crop_loader
from simple_spk.data.samplers import crop_limits
from simple_spk.io.safe_yaml import read_tagged_yaml
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.momentum_encoder import MomentumEncoder
from simple_spk.models.resnet import ResNet
from simple_spk.schedules import StepwiseValue

MEASURED_STEPS = 3
# Networks are measured on so many crops that a step takes this long: shorter ones are overhead.
LEAST_STEP_SECONDS = 0.5
LONGEST_MEASURED_SECONDS = 2.0  # longer crops cost in proportion
MEASURED_BATCHES_OF_LOADER = 6
CROPS_OF_LOADER = 32  # in a batch
# Both passes need working memory beside the saved activations: measured peaks of the process were
# 1.46 times what is saved.
WORKSPACE = 1.5
# In chunks there is one more forward pass beside two of these and a backward pass, which costs two.
TIME_OF_CHUNKS = 1.25
BATCHES_AHEAD_PER_WORKER = 2  # torch's DataLoader
RESNET = "!new:simple_spk.models.resnet.ResNet"
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Limits = tuple[float, float]


@dataclass(frozen=True)
class TrainingSetting:
    """The options that cost time or memory; the defaults are those of simple_resnet34.yaml."""

    speakers_per_batch: int = 128
    recordings_per_speaker: int = 4
    crop_seconds: Limits | Mapping[int, Limits] = (3.0, 8.0)  # or by first epoch
    batches_per_epoch: int = 1000
    number_of_epochs: int = 70
    queue_size: int = 524288
    sample_rate: int = SAMPLE_RATE
    num_mels: int = 80
    width: int = 32
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    stem_stride: int = 1
    embedding_dim: int = 256
    workers: int = 8
    crops_per_chunk: int = 64  # 0: the whole batch
    precision: str = "bf16"  # of the encoder

    def __post_init__(self) -> None:
        self.crop_stages()
        if self.precision not in TYPES:
            raise ValueError(f"precision is {self.precision}; expected {', '.join(TYPES)}")
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("workers", "crops_per_chunk") else 1
            if isinstance(value, int | float) and value < least:
                raise ValueError(f"{field.name} is {value}; expected at least {least}")

    @property
    def batch(self) -> int:
        """Crops in a batch."""
        return self.speakers_per_batch * self.recordings_per_speaker

    @property
    def crops_at_once(self) -> int:
        """Crops whose activations are in memory at a time."""
        return min(self.crops_per_chunk or self.batch, self.batch)

    def encoder(self) -> ResNet:
        """The encoder, on the default device of torch."""
        names = ("num_mels", "width", "blocks", "stem_stride", "embedding_dim")
        return ResNet(**{name: getattr(self, name) for name in names})

    @property
    def longest_crop_seconds(self) -> float:
        """Of any epoch."""
        return max(longest for _, longest in self.crop_stages().values)

    @property
    def mean_crop_seconds(self) -> float:
        """Over all epochs."""
        limits_at = self.crop_stages()
        epochs = range(1, self.number_of_epochs + 1)
        return sum(sum(limits_at(epoch)) / 2 for epoch in epochs) / len(epochs)

    def crop_stages(self) -> StepwiseValue[Limits]:
        """From an epoch to the shortest and the longest crop."""
        return StepwiseValue("crop_seconds", self.crop_seconds, crop_limits)


def read_setting(path: str | Path) -> TrainingSetting:
    """The setting of an experiment's YAML file, of which nothing is built or executed."""
    path = Path(path)
    content = read_tagged_yaml(path)
    encoder = content.get("encoder")
    if not isinstance(encoder, dict) or encoder.get("") != RESNET:
        raise ValueError(f"{path}: only needs of an encoder {RESNET[1:]} can be estimated")
    if not isinstance(content.get("queue"), dict):
        raise ValueError(f"{path}: only needs of a loss over a queue can be estimated")
    values: dict[str, Any] = {"crops_per_chunk": 0, "precision": "fp32"}
    for field in fields(TrainingSetting):
        found = encoder.get(field.name, content.get(field.name))
        if isinstance(found, str):  # <name>, what is left of !ref <name>
            reference = re.fullmatch(r"<(\w+)>", found)
            found = content.get(reference[1]) if reference else found
        if found is not None:
            is_number = field.name != "precision"
            values[field.name] = _number(path, field.name, found) if is_number else str(found)
    try:
        return replace(TrainingSetting(), **values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _number(path: Path, name: str, found: Any) -> int | float | tuple | dict:
    """The number of a YAML file, a tuple of several, or a mapping of those by first epoch."""
    if isinstance(found, dict) and name == "crop_seconds":
        return {start: _number(path, name, value) for start, value in found.items()}
    numbers = found if isinstance(found, list) else [found]
    if not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"{path}: {name} is {found!r}; expected a number, or a list of numbers")
    return tuple(found) if isinstance(found, list) else found


@dataclass(frozen=True)
class TrainingNeeds:
    """What a setting needs; memory in bytes, if one process trains."""

    parameters: int
    model_bytes: int  # weights, gradients, momentum of SGD, and the moving average
    queue_bytes: int
    activation_bytes_per_crop: float  # of the longest crops
    batch_bytes: int  # waveforms of a batch of the longest crops
    step_seconds: float  # of a whole batch of crops of mean length

    def memory_bytes(self, batch: int) -> float:
        """Memory of the device with ``batch`` crops at a time."""
        return self.model_bytes + self.queue_bytes + batch * self.activation_bytes_per_crop

    def largest_chunk(self, available_bytes: float) -> int:
        """The largest power of two of crops that fits at a time; 0 if none does."""
        crops = (available_bytes - self.memory_bytes(0)) / self.activation_bytes_per_crop
        return 2 ** int(math.log2(crops)) if crops >= 1.0 else 0


def measure_needs(setting: TrainingSetting, device: str = "cpu") -> TrainingNeeds:
    """What training needs: the networks from a few steps on few crops, the loss as it will be."""
    mean_seconds, longest_seconds = setting.mean_crop_seconds, setting.longest_crop_seconds
    measured_seconds = min(mean_seconds, LONGEST_MEASURED_SECONDS)
    encoder = setting.encoder()
    step = _network_step(encoder, setting, device)
    samples = round(measured_seconds * setting.sample_rate)
    saved_bytes: dict[int, int] = {}  # for the backward pass, by storage

    def count(tensor: Tensor) -> Tensor:
        saved_bytes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    crops, seconds = 1, 0.0
    while crops == 1 or (seconds < LEAST_STEP_SECONDS and 2 * crops <= setting.batch):
        crops *= 2
        waveforms = 0.1 * torch.randn(crops, samples, device=device)
        saved_bytes.clear()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            step(waveforms)  # warms up, too
        seconds = _fastest(partial(step, waveforms), device)
    loss_seconds = _fastest(_loss_step(setting, device), device)
    mean, longest = mean_seconds / measured_seconds, longest_seconds / measured_seconds
    again = 1.0 if setting.crops_at_once == setting.batch else TIME_OF_CHUNKS
    parameters = sum(parameter.numel() for parameter in encoder.parameters())
    return TrainingNeeds(
        parameters=parameters,
        model_bytes=4 * 4 * parameters,
        queue_bytes=setting.queue_size * (4 * setting.embedding_dim + 8),
        activation_bytes_per_crop=WORKSPACE * sum(saved_bytes.values()) / crops * longest,
        batch_bytes=round(setting.batch * longest_seconds * setting.sample_rate * 4),
        step_seconds=loss_seconds + setting.batch * seconds / crops * mean * again,
    )


def _network_step(
    encoder: ResNet, setting: TrainingSetting, device: str
) -> Callable[[Tensor], None]:
    """What a training step does with the networks, on waveforms (n, samples)."""
    encoder.to(device).train()
    front_end = Fbank(sample_rate=setting.sample_rate, num_mels=setting.num_mels).to(device)
    average = MomentumEncoder(encoder).to(device).train()
    parameters, lower = [*encoder.parameters()], TYPES[setting.precision]
    optimizer = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)

    def step(waveforms: Tensor) -> None:
        features = front_end(waveforms)
        with torch.autocast(torch.device(device).type, lower, enabled=lower != torch.float32):
            queries, keys = encoder(*features), average(*features)
        queries.backward(keys)  # any gradient of that shape costs the same
        torch.nn.utils.clip_grad_norm_(parameters, 100.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update(encoder)

    return step


def _loss_step(setting: TrainingSetting, device: str) -> Callable[[], None]:
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


def _fastest(step: Callable[[], None], device: str) -> float:
    """Seconds of the fastest of a few steps, their GPU work included."""

    def synchronized() -> None:
        step()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)

    return min(timeit.repeat(synchronized, number=1, repeat=MEASURED_STEPS))


def loader_crops_per_second(manifest: str | Path, setting: TrainingSetting, workers: int) -> float:
    """How many crops per second ``workers`` processes (0: this one) read, by reading some."""
    batches = MEASURED_BATCHES_OF_LOADER + workers * (1 + BATCHES_AHEAD_PER_WORKER)
    loader = speaker_crop_loader(
        manifest,
        sample_rate=setting.sample_rate,
        workers=workers,
        speakers_per_batch=1,  # a crop costs the same in any batch, and any manifest has a speaker
        recordings_per_speaker=CROPS_OF_LOADER,
        crop_seconds=setting.crop_seconds,
        batches_per_epoch=batches,
    )
    start = time.perf_counter()
    for number, _ in enumerate(loader):
        if number == 0 and workers:  # starting the processes does not count; each has read a batch
            start = time.perf_counter()
    return (batches - workers) * CROPS_OF_LOADER / (time.perf_counter() - start)
