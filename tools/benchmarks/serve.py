"""Verification of clips of 3 s over HTTP: requests a second and waiting times of 1 to 32 clients.

The server is a process of its own, simple-spk serve with the built-in model. Each client sends the
next request when it has an answer. "of the library" is the rate of Extractor.verify in one process,
measured before. The last row is a soak: 32 clients of whom some send damaged files, for
SIMPLE_SPK_SOAK_SECONDS (default 600); the server must answer all of them and not grow. Its memory,
with that of the processes it started, is given at eleven moments of the soak.
Other durations: SIMPLE_SPK_LOAD_SECONDS (default 30).
"""

import argparse
import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import soundfile

from simple_spk.inference.extractor import Extractor
from tools.benchmarks.extract import RATE, speech
from tools.benchmarks.measure import Row

THREADS = 1
SECONDS, CLIENTS, SOAKING_CLIENTS = 3.0, (1, 8, 32), 32
DAMAGED_SHARE = 0.1  # of the requests of the soak
LOAD_SECONDS = float(os.environ.get("SIMPLE_SPK_LOAD_SECONDS", "30"))
SOAK_SECONDS = float(os.environ.get("SIMPLE_SPK_SOAK_SECONDS", "600"))
MAIN = Path(__file__).parents[2]


def run(options: argparse.Namespace) -> list[Row]:
    """A row for each number of clients, and one for the soak."""
    with tempfile.TemporaryDirectory() as folder:
        clips = []
        for seed in range(8):
            path = Path(folder, f"{seed}.wav")
            soundfile.write(path, speech(SECONDS, RATE, options.data, seed), RATE)
            clips.append(path)
        alone = library_rate(clips)
        bodies = [clip.read_bytes() for clip in clips]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "simple_spk.cli.main", "serve", "--rate", "1e9"]
        environment = os.environ | {"PYTHONPATH": str(MAIN)}
        environment["OMP_NUM_THREADS"] = str(options.threads)
        server = subprocess.Popen(
            [*command, "--port", str(port)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address, server)
            load(address, bodies, 2, 3.0)  # warms up
            rows = []
            for clients in CLIENTS:
                row = load(address, bodies, clients, LOAD_SECONDS)
                row["of the library"] = row["a second"] / alone
                rows.append(row | {"MB": f"{memory_of(server):.0f}"})
            curve: list[float] = []
            ended = threading.Event()
            watch = threading.Thread(target=watched, args=(server, curve, ended))
            watch.start()
            row = load(address, bodies, SOAKING_CLIENTS, SOAK_SECONDS, DAMAGED_SHARE)
            ended.set()
            watch.join()
            row["of the library"] = row["a second"] / alone
            rows.append(row | {"MB": " ".join(f"{one:.0f}" for one in curve)})
            return rows
        finally:
            server.terminate()
            server.wait()


def library_rate(clips: list[Path]) -> float:
    """Calls of Extractor.verify a second, one after the other."""
    extractor = Extractor.load()
    extractor.verify(clips[0], clips[1])
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < min(LOAD_SECONDS, 10.0):
        extractor.verify(clips[count % 8], clips[(count + 1) % 8])
        count += 1
    return count / (time.perf_counter() - started)


def wait_for(address: str, server: subprocess.Popen) -> None:
    """Wait until a server answers."""
    while True:
        try:
            httpx.get(f"{address}/health", timeout=None).raise_for_status()
            return
        except httpx.TransportError:
            if server.poll() is not None:
                raise RuntimeError("the server ended: is simple_spk[serve] installed?") from None
            time.sleep(0.2)


def load(
    address: str, bodies: list[bytes], clients: int, seconds: float, damaged: float = 0.0
) -> Row:
    """What clients that ask one after the other for some seconds are answered, and how fast."""
    times: list[float] = []
    statuses: dict[int | str, int] = {}
    lock = threading.Lock()
    until = time.perf_counter() + seconds

    def work(seed: int) -> None:
        dice = random.Random(seed)
        with httpx.Client(base_url=address, timeout=None) as client:
            while time.perf_counter() < until:
                first, second = dice.sample(bodies, 2)
                if dice.random() < damaged:
                    cut = dice.randrange(len(second))
                    second = dice.choice([second[:cut], dice.randbytes(cut), second[cut:]])
                files = [("first", ("a.wav", first)), ("second", ("b.wav", second))]
                started = time.perf_counter()
                try:
                    status: int | str = client.post("/verify", files=files).status_code
                except httpx.TransportError as error:
                    status = type(error).__name__
                with lock:
                    times.append(time.perf_counter() - started)
                    statuses[status] = statuses.get(status, 0) + 1

    started = time.perf_counter()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - started
    middle, late = np.percentile(times, [50, 95])
    return {
        "clients": clients,
        "seconds": taken,
        "a second": len(times) / taken,
        "median, ms": 1000 * float(middle),
        "95th percentile, ms": 1000 * float(late),
        "statuses": ", ".join(f"{s}: {n}" for s, n in sorted(statuses.items(), key=str)),
    }


def watched(server: subprocess.Popen, curve: list[float], ended: threading.Event) -> None:
    """Append the memory of a server to a curve ten times during the soak, and at its end."""
    while not ended.wait(SOAK_SECONDS / 10 if curve else 0.0):
        curve.append(memory_of(server))
    curve.append(memory_of(server))


def memory_of(server: subprocess.Popen) -> float:
    """MiB that a process and those it started hold, without what they share."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="utf-8")
    total = 0
    for one in [server.pid, *map(int, children.split())]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            memory = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="utf-8")
            total += int(memory.split("Pss:")[1].split()[0])
    return total / 1024
