"""Cores, process groups and collectives; with one process every collective is the identity."""

import atexit
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

LONGEST_WAIT = timedelta(days=7)


def usable_cores() -> int:
    """The number of CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def rank() -> int:
    """The rank of this process, 0 if it is alone."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """The number of processes that work together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def join_group() -> None:
    """Join the process group if torchrun started several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        # Only plain data are exchanged, hence gloo. A process that is done waits for the slowest,
        # maybe longer than the default of half an hour; torchrun ends all if one dies.
        dist.init_process_group("gloo", timeout=LONGEST_WAIT)


def own_device(device: str) -> str:
    """The device of this process: with torchrun, each process has its own GPU."""
    if device == "cuda" and world_size() > 1:
        return f"cuda:{os.environ.get('LOCAL_RANK', rank())}"
    return device


def gather_in_rank_order(rows: Tensor) -> Tensor:
    """The rows (n, ...) of all processes, (world_size * n, ...), without gradient."""
    if world_size() == 1:
        return rows.detach()
    parts = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(parts, rows.detach().contiguous())
    return torch.cat(parts)


def mean_over_ranks(values: Tensor) -> Tensor:
    """The mean of a tensor over all processes, equal on every process; carries no gradient."""
    values = values.detach().clone()
    if world_size() > 1:
        dist.all_reduce(values)
        values /= world_size()
    return values


def gather_objects(value: object) -> list:
    """The plain-data values of all processes, in rank order, on every process."""
    if world_size() == 1:
        return [value]
    gathered: list = [None] * world_size()
    dist.all_gather_object(gathered, value)
    return gathered


def copy_from_first_rank(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors with those of the first process."""
    if world_size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)


def leave_group(exit_code: int = 0) -> None:
    """Exit as soon as all other processes are done, too.

    At a normal exit, a thread of the communication library may call the interpreter after it is
    gone, and the process aborts (SIGABRT): a finished run would count as failed.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    dist.barrier()
    dist.destroy_process_group()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def require_equal_on_all_ranks(tensors: Mapping[str, Tensor]) -> None:
    """Raise unless each tensor is the same, to the bit, on all processes."""
    digests = {
        name: hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }
    first, *others = gather_objects(digests)
    for number, other in enumerate(others, start=1):
        different = [name for name in first if first[name] != other.get(name)]
        if different:
            raise RuntimeError(f"processes 0 and {number} disagree on {', '.join(different[:5])}")
