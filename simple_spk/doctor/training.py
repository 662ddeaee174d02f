"""Will training fit into the memory, how long will it take, and is the data loader fast enough?"""

import math
import os
import shutil
from pathlib import Path

import torch

from simple_spk.distributed import usable_cores
from simple_spk.doctor.finding import Finding, Status, not_checked
from simple_spk.doctor.installation import SHARED_MEMORY
from simple_spk.doctor.training_needs import (
    BATCHES_AHEAD_PER_WORKER,
    TrainingNeeds,
    TrainingSetting,
    loader_crops_per_second,
    measure_needs,
    read_setting,
)

USABLE_SHARE_OF_MEMORY = 0.9
SPARE_SPEED = 1.25  # of a loader


def check_training(
    setting: TrainingSetting, device: str = "cpu", manifest: Path | None = None
) -> list[Finding]:
    """What training needs of a device and, with a manifest, of the data loader."""
    topic = f"training with batch {setting.batch} on {device} (estimates from a few small steps)"
    try:
        needs = measure_needs(setting, device)
    except torch.OutOfMemoryError as error:
        text = f"even the few crops of a trial do not fit: {error}"
        cure = "free the GPU (nvidia-smi), or take a smaller --queue or --width"
        return [Finding(topic, "memory", Status.PROBLEM, text, cure)]
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # of this computer
    if torch.device(device).type == "cuda":
        available = torch.cuda.get_device_properties(device).total_memory
    loader = not_checked(topic, "loader", "give --manifest to measure it")
    if manifest is not None:
        workers = min(setting.workers, usable_cores())  # more than cores read no faster
        delivered = loader_crops_per_second(manifest, setting, workers)
        consumed = setting.batch / needs.step_seconds
        loader = loader_finding(topic, consumed, delivered, workers)
    return [
        memory_finding(topic, setting, needs, available),
        _time_finding(topic, setting, needs),
        shared_memory_finding(topic, setting, needs),
        loader,
    ]


def memory_finding(
    topic: str, setting: TrainingSetting, needs: TrainingNeeds, available_bytes: float
) -> Finding:
    """Whether a batch fits; if not, which chunks of it do."""
    needed = needs.memory_bytes(setting.crops_at_once)
    text = (
        f"{_amount(needed)} of {_amount(available_bytes)}: {needs.parameters / 1e6:.2f} M "
        f"parameters with gradient, momentum and moving average {_amount(needs.model_bytes)}, "
        f"queue {_amount(needs.queue_bytes)}, "
        f"activations {_amount(needs.activation_bytes_per_crop)} per crop of "
        f"{setting.longest_crop_seconds:g} s in {setting.precision}, "
        f"{setting.crops_at_once} at a time"
    )
    room = USABLE_SHARE_OF_MEMORY * available_bytes
    chunk = needs.largest_chunk(room)
    cure = "even two crops at a time do not fit: take a smaller width or queue, or shorter crops"
    if chunk >= 2:
        half = "with --precision=bf16 or " if setting.precision == "fp32" else ""
        cure = (
            f"embed the batch in chunks: train.py --crops_per_chunk={chunk}, which takes a quarter "
            f"more time; or train {half}on several GPUs"
        )
    metrics = {**vars(needs), "needed_bytes": needed, "available_bytes": available_bytes}
    status = Status.OK if needed <= room else Status.PROBLEM
    return Finding(topic, "memory", status, text, cure, metrics=metrics)


def memory_advice(settings_file: Path) -> str:
    """What to do if a GPU does not have the memory for the batches of a run's YAML file."""
    try:
        setting = read_setting(settings_file)
    except ValueError:  # only a ResNet with a queue can be estimated
        return (
            "embed each batch in chunks: set crops_per_chunk to half of what a process has or less"
        )
    needs = measure_needs(setting)  # on the CPU, as the GPU is full
    available = needs.memory_bytes(setting.crops_at_once)  # less than that, as it did not fit
    if torch.cuda.is_available():
        available = min(available, torch.cuda.get_device_properties().total_memory)
    return memory_finding("", setting, needs, available).cure


def _time_finding(topic: str, setting: TrainingSetting, needs: TrainingNeeds) -> Finding:
    """How long a step, an epoch and the whole will take."""
    seconds, crops_per_second = needs.step_seconds, setting.batch / needs.step_seconds
    epoch_hours = seconds * setting.batches_per_epoch / 3600
    total_hours = epoch_hours * setting.number_of_epochs
    text = (
        f"{_in_words(seconds)} per step ({crops_per_second:.3g} crops/s), "
        f"{_in_words(3600 * epoch_hours)} per epoch of {setting.batches_per_epoch} steps, "
        f"{_in_words(3600 * total_hours)} in all"
    )
    metrics = {"step_seconds": seconds, "crops_per_second": crops_per_second}
    metrics |= {"epoch_hours": epoch_hours, "total_hours": total_hours}
    return Finding(topic, "time", Status.OK, text, metrics=metrics)


def _amount(size: float) -> str:
    """Bytes as MB or GB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _in_words(seconds: float) -> str:
    """A duration in a suitable unit."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            number = seconds / length
            return f"{number:.3g} {unit}" if number < 1000.0 else f"{number:,.0f} {unit}"
    return f"{seconds:.3g} s"


def shared_memory_finding(topic: str, setting: TrainingSetting, needs: TrainingNeeds) -> Finding:
    """Whether the batches that workers read ahead fit into the shared memory."""
    if not SHARED_MEMORY.is_dir() or setting.workers == 0:
        return not_checked(topic, "shared memory", "none is needed here")
    needed = needs.batch_bytes * BATCHES_AHEAD_PER_WORKER * setting.workers
    free = shutil.disk_usage(SHARED_MEMORY).free
    status = Status.OK if needed <= free else Status.PROBLEM
    text = f"{setting.workers} workers hold up to {_amount(needed)}, {_amount(free)} are free"
    cure = f"fewer --workers, or a larger {SHARED_MEMORY} (docker run --shm-size=...)"
    metrics = {"needed_bytes": needed, "free_bytes": free}
    return Finding(topic, "shared memory", status, text, cure, metrics=metrics)


def loader_finding(topic: str, consumed: float, delivered: float, workers: int) -> Finding:
    """Whether ``workers`` that deliver so many crops per second keep up, and how many would."""
    wanted = max(1, math.ceil(SPARE_SPEED * consumed / (delivered / max(1, workers))))
    keeps_up = delivered >= consumed
    text = (
        f"the model takes {consumed:.3g} crops/s, {workers} workers deliver {delivered:.3g} "
        f"(without augmentation): the loader is {'not ' if keeps_up else ''}the bottleneck "
        f"(use {wanted} workers)"
    )
    cure = f"--workers={wanted}"
    if wanted > usable_cores():
        cure += f", but only {usable_cores()} cores can be used: wav reads faster than flac"
    metrics = {"consumed": consumed, "delivered": delivered, "workers": wanted}
    status = Status.OK if keeps_up else Status.PROBLEM
    return Finding(topic, "loader", status, text, cure, metrics=metrics)
