"""Cores, process groups and collectives; with one process every collective is the identity.

torch is imported only where it is used: processes that convert or inspect audio start at once.
"""

import atexit
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
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
    group = _group()
    return 0 if group is None else group.get_rank()


def world_size() -> int:
    """The number of processes that work together."""
    group = _group()
    return 1 if group is None else group.get_world_size()


def _group() -> Any:
    """torch.distributed if this process has joined a group, else None."""
    dist = sys.modules.get("torch.distributed")  # as long as nobody imports it, nobody has joined
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def join_group() -> None:
    """Join the process group if torchrun started several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and _group() is None:
        import torch.distributed as dist

        # Only plain data are exchanged, hence gloo. A process that is done waits for the slowest,
        # maybe longer than the default of half an hour; torchrun ends all if one dies.
        dist.init_process_group("gloo", timeout=LONGEST_WAIT)


def require_usable_device(device: "str | torch.device") -> None:
    """Raise unless tensors on a device have values."""
    import torch

    try:
        torch.zeros(1, device=device).item()  # fails on the device meta
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"the device {str(device)!r} cannot be used: {reason}") from error


def own_device(device: str) -> str:
    """The device of this process: with torchrun, each process has its own GPU."""
    if device == "cuda" and world_size() > 1:
        return f"cuda:{os.environ.get('LOCAL_RANK', rank())}"
    return device


def gather_in_rank_order(rows: "Tensor") -> "Tensor":
    """The rows (n, ...) of all processes, (world_size * n, ...), without gradient."""
    if world_size() == 1:
        return rows.detach()
    import torch

    rows = rows.detach().contiguous()  # also for the strides of the parts
    parts = [torch.empty_like(rows) for _ in range(world_size())]
    _group().all_gather(parts, rows)
    return torch.cat(parts)


def mean_over_ranks(values: "Tensor") -> "Tensor":
    """The mean of a tensor over all processes, equal on every process; carries no gradient."""
    values = values.detach().clone()
    if world_size() > 1:
        _group().all_reduce(values)
        values /= world_size()
    return values


def gather_objects(value: object) -> list:
    """The plain-data values of all processes, in rank order, on every process."""
    if world_size() == 1:
        return [value]
    gathered: list = [None] * world_size()
    _group().all_gather_object(gathered, value)
    return gathered


def copy_from_first_rank(tensors: "Iterable[Tensor]") -> None:
    """Overwrite tensors with those of the first process."""
    if world_size() > 1:
        for tensor in tensors:
            _group().broadcast(tensor.detach(), src=0)


def leave_group(exit_code: int = 0) -> None:
    """Exit once all processes are done; a process that is alone goes on.

    At a normal exit, a thread of the communication library may call the interpreter after it is
    gone, and the process aborts (SIGABRT): a finished run would count as failed.
    """
    group = _group()
    if group is None:
        return
    group.barrier()
    group.destroy_process_group()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def require_equal_on_all_ranks(tensors: "Mapping[str, Tensor]") -> None:
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
