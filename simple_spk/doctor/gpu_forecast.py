"""What training will need on a GPU that is not here: counted operations, stated assumptions."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from simple_spk.doctor.finding import Finding, Status
from simple_spk.doctor.training_needs import WORKSPACE, TrainingSetting

FRAMES_PER_SECOND = 100


class Gpu(NamedTuple):
    """What its data sheet says: memory, memory bandwidth, and dense 16-bit matrix products with
    32-bit sums."""

    memory_bytes: float
    bytes_per_second: float
    operations_per_second: float
    precision: str = "bf16"


GPUS = {
    "A100-40GB": Gpu(40e9, 1.555e12, 312e12),
    "A100-80GB": Gpu(80e9, 2.039e12, 312e12),
    "H100": Gpu(80e9, 3.35e12, 989e12),
    "4090": Gpu(24e9, 1.008e12, 165e12),
    "3090": Gpu(24e9, 0.936e12, 71e12),
    "V100": Gpu(32e9, 0.9e12, 125e12, "fp16"),  # has no bf16
}
# Assumptions. No GPU has confirmed them.
SHARE_OF_OPERATIONS = 0.4  # of the data sheet, that convolutions reach
SHARE_OF_BANDWIDTH = 0.7
PASSES_OVER_ACTIVATIONS = 8.0  # reads and writes in both passes, for each byte kept for the second
PASSES_OVER_SCORES = 6.0  # of the batch against the queue
SHARE_OF_MEMORY = 0.9


class CropCost(NamedTuple):
    """What a crop costs the encoder in 16 bits."""

    forward_operations: float
    backward_operations: float
    kept_bytes: float  # of activations, between the passes


def crop_cost(setting: TrainingSetting, seconds: float) -> CropCost:
    """The cost of a crop, counted on tensors without data."""
    with torch.device("meta"):
        encoder = setting.encoder().train()
        features = torch.empty(2, round(seconds * FRAMES_PER_SECOND), setting.num_mels)
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage()._cdata] = tensor.numel() * 2
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        with FlopCounterMode(display=False) as forward:
            embeddings = encoder(features)
        with FlopCounterMode(display=False) as backward:
            embeddings.backward(torch.empty_like(embeddings))
    return CropCost(
        forward.get_total_flops() / 2, backward.get_total_flops() / 2, sum(kept.values()) / 2
    )


class Forecast(NamedTuple):
    """What a setting will need on each of some GPUs."""

    crops_per_chunk: int  # 0: not even two crops fit
    crops_per_gpu: int
    memory_bytes: float
    step_seconds: float
    total_hours: float
    checkpoint_bytes: float


def forecast(setting: TrainingSetting, gpu: Gpu, count: int = 1) -> Forecast:
    """Chunk size, memory and time on ``count`` GPUs of one machine."""
    if count < 1 or setting.speakers_per_batch % count:
        what = f"{setting.speakers_per_batch} speakers per batch"
        raise ValueError(f"{what} cannot be divided among {count} GPUs: name another number")
    longest = crop_cost(setting, setting.longest_crop_seconds)
    mean = crop_cost(setting, setting.mean_crop_seconds)
    with torch.device("meta"):
        weight_bytes = 4.0 * sum(p.numel() for p in setting.encoder().parameters())
    queue = setting.queue_size * (4.0 * setting.embedding_dim + 8.0)
    crops = setting.batch // count
    per_crop = WORKSPACE * longest.kept_bytes
    fixed = 4.0 * weight_bytes + queue  # also gradients, momentum and moving average
    room = (SHARE_OF_MEMORY * gpu.memory_bytes - fixed) / per_crop
    chunk = 0 if room < 2.0 else min(crops, 2 ** int(math.log2(room)))
    if room >= crops:
        chunk = crops
    forward_passes = 2.0 + (chunk < crops)  # that of the momentum encoder, and once more in chunks
    operations = forward_passes * mean.forward_operations + mean.backward_operations
    traffic = PASSES_OVER_ACTIVATIONS * (1.0 + (forward_passes - 1.0) / 3.0) * mean.kept_bytes
    seconds_per_crop = max(
        operations / (SHARE_OF_OPERATIONS * gpu.operations_per_second),
        traffic / (SHARE_OF_BANDWIDTH * gpu.bytes_per_second),
    )
    scores = PASSES_OVER_SCORES * 4.0 * crops * setting.queue_size
    step = crops * seconds_per_crop + scores / (SHARE_OF_BANDWIDTH * gpu.bytes_per_second)
    steps = setting.batches_per_epoch * setting.number_of_epochs
    return Forecast(
        crops_per_chunk=chunk,
        crops_per_gpu=crops,
        memory_bytes=fixed + chunk * per_crop,
        step_seconds=step,
        total_hours=step * steps / 3600.0,
        checkpoint_bytes=3.0 * weight_bytes + queue,
    )


def forecast_finding(setting: TrainingSetting, name: str, count: int = 1) -> Finding:
    """Whether a setting fits on GPUs of a kind, and how long it will take."""
    gpu = GPUS[name]
    found = forecast(setting, gpu, count)
    topic = f"training with batch {setting.batch} on {count} x {name} (counted, not measured)"
    fits = found.crops_per_chunk >= 2
    in_chunks = found.crops_per_chunk < found.crops_per_gpu
    how = f"--crops_per_chunk={found.crops_per_chunk if in_chunks else 'null'}"
    text = (
        f"{found.memory_bytes / 1e9:.1f} of {gpu.memory_bytes / 1e9:.0f} GB per GPU with "
        f"--precision={gpu.precision} {how}, {1.0 / found.step_seconds:.2f} steps/s, "
        f"{found.total_hours:.1f} h in all, {found.checkpoint_bytes / 1e6:.0f} MB per checkpoint. "
        f"Assumed: {SHARE_OF_OPERATIONS:.0%} of the data sheet's operations or "
        f"{SHARE_OF_BANDWIDTH:.0%} of its memory bandwidth, a loader that keeps up, GPUs that do "
        "not wait for each other"
    )
    metrics = {key: float(value) for key, value in found._asdict().items()}
    cure = "not even two crops fit: take a smaller queue or width, or shorter crops"
    return Finding(
        topic, "forecast", Status.OK if fits else Status.PROBLEM, text, cure, (), metrics
    )
