"""Time and memory, measured so that ratios mean something."""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def cpu_in_turns(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """As ``in_turns``, but CPU seconds of this process: they mean something on a busy machine."""
    return in_turns(candidates, rounds, time.process_time)


def in_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each candidate, run one after the other for several rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_number in range(rounds + 1):
        for name, run in candidates.items():
            start = clock()
            run()
            if round_number > 0:  # the first round warms up
                seconds[name].append(clock() - start)
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
    before = memory("VmRSS")
    run()
    queue.put(memory("VmHWM") - before)


def memory(kind: str) -> float:
    """MiB that this process holds (VmRSS) or held at most (VmHWM), according to Linux."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split(f"{kind}:")[1].split()[0]) / 1024
