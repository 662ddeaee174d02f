"""Converting recordings to 16-bit mono flac or wav in many processes, safe against being killed.

A target is written beside its place, read back and compared, and only then renamed, so a file that
exists is whole. A journal holds what is done; a killed run continues from there, and its result
equals that of an undisturbed run to the byte, whatever the number of processes.
"""

import contextlib
import io
import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import soundfile
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk import SAMPLE_RATE
from simple_spk.corpora.inspection import SILENT, AudioFile, fault_of, length_fault
from simple_spk.corpora.journal import Journal, Outcome
from simple_spk.data.audio import SHORTEST_SECONDS, is_silent
from simple_spk.data.decoding import AudioError, decode
from simple_spk.io.atomic_file import atomic_write, lock_file, lock_folder

logger = logging.getLogger(__name__)

AudioFormat = Literal["flac", "wav"]
# Faults of the way to a source, not of the source: they are not remembered, but tried again.
PASSING_FAULTS = ("unreadable", "vanished")
FILES_AHEAD = 8  # given to a worker before it answers, so that it never waits


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Refuse if another run holds the folder, and wait for workers that a killed run left behind.

    The system frees both locks when their processes end, however they end.
    """
    with lock_folder(folder, "converting"):
        with (folder / "workers.lock").open("a") as workers:
            lock_file(workers)
        yield


class ConversionStoppedError(OSError):
    """A conversion that cannot continue; the same command takes it up again."""


@dataclass(frozen=True)
class Settings:
    """The form of the converted recordings."""

    audio_format: AudioFormat = "flac"
    sample_rate: int = SAMPLE_RATE
    shortest_seconds: float = SHORTEST_SECONDS  # shorter ones are left out

    def target_name(self, source_name: str) -> str:
        """Where the recording of a source goes, relative to the folder of targets."""
        return f"{os.path.splitext(source_name)[0]}.{self.audio_format}"


def convert(
    source_folder: Path,
    sources: Sequence[AudioFile],
    target_folder: Path,
    journal_folder: Path,
    settings: Settings,
    workers: int = 1,
    retry_faulty: bool = False,
) -> list[Outcome]:
    """Convert all sources that are not done yet; returns the outcomes of all, by name.

    Sources with faults are tried again only if they changed since, or with ``retry_faulty``.
    Raises ConversionStoppedError if nothing more can be written or a process dies.
    """
    for folder in (target_folder, journal_folder):
        folder.mkdir(parents=True, exist_ok=True)
    task = _Task(source_folder, target_folder, journal_folder, settings)
    form = {"audio_format": settings.audio_format, "sample_rate": settings.sample_rate}
    with (
        run_lock(journal_folder),
        contextlib.closing(Journal(journal_folder / "journal.jsonl", form, Outcome)) as journal,
    ):
        if journal.unreadable_lines:
            count = f"{journal.unreadable_lines} unreadable lines"
            logger.warning(f"{journal.path}: {count}; their sources are converted again")
        done = {}
        for source in tqdm(sources, unit="file", desc="look up", disable=not journal.rows):
            known = journal.rows.get(source.name)
            # What is too short is judged again, as the limit may be another.
            if (
                known is not None
                and known[1:3] == source[1:3]
                and (
                    (known.fault not in ("", "too short") and not retry_faulty)
                    or task.is_made(known)
                )
            ):
                done[source.name] = known
        todo = [source.name for source in sources if source.name not in done]
        journal.rows.clear()  # a million of them take some room
        stream = contextlib.closing(_outcomes(task, todo, workers))
        bar = tqdm(total=len(sources), initial=len(done), unit="file", desc="convert")
        with bar, stream as outcomes:
            for outcome in outcomes:
                if outcome.fault not in PASSING_FAULTS:
                    journal.append(outcome)
                done[outcome.name] = outcome
                bar.update()
        result = [done[name] for name in sorted(done)]
        journal.rewrite(o for o in result if o.fault not in PASSING_FAULTS)
    return result


class _Task(NamedTuple):
    """What a worker needs to know beside the names of files."""

    source_folder: Path
    target_folder: Path
    journal_folder: Path
    settings: Settings

    def is_made(self, outcome: Outcome) -> bool:
        """Whether the target that an outcome tells of is there, and long enough."""
        seconds = outcome.samples / self.settings.sample_rate
        if outcome.fault or seconds < self.settings.shortest_seconds:
            return False
        target = f"{self.target_folder}/{self.settings.target_name(outcome.name)}"
        with contextlib.suppress(FileNotFoundError):
            return os.stat(target).st_size == outcome.target_bytes
        return False


class _Worker(NamedTuple):
    """A process that converts, its connection, and the names that it has not answered yet."""

    process: SpawnProcess
    connection: Connection
    names: deque[str]

    def give(self, name: str) -> None:
        """Let it convert one more file."""
        self.names.append(name)
        with contextlib.suppress(ConnectionError):  # it died, which ``answer`` will notice
            self.connection.send(name)

    def answer(self) -> Outcome:
        """The outcome of the file that it was given first."""
        try:
            answer: Outcome | ConversionStoppedError = self.connection.recv()
        except (EOFError, ConnectionError) as error:
            raise ConversionStoppedError(
                f"a worker process died while it converted {self.names[0]}: if memory ran out, run "
                "the same command with fewer --workers; if it is always this file, remove it"
            ) from error
        if isinstance(answer, ConversionStoppedError):
            raise answer
        self.names.popleft()
        return answer


def _outcomes(task: _Task, names: Sequence[str], workers: int) -> Generator[Outcome, None, None]:
    """Convert in worker processes; yields the outcomes as they come.

    Not the standard library's pool, which can hang when a process dies early, and does not tell
    which file killed it.
    """
    remaining = iter(names)
    with _started_workers(min(workers, len(names)), task) as started:
        for worker, name in zip(started * FILES_AHEAD, remaining, strict=False):
            worker.give(name)
        busy = {worker.connection: worker for worker in started if worker.names}
        while busy:
            for connection in wait(list(busy)):
                worker = busy[cast(Connection, connection)]
                outcome = worker.answer()
                for name in islice(remaining, 1):
                    worker.give(name)
                if not worker.names:
                    del busy[worker.connection]
                yield outcome


@contextlib.contextmanager
def _started_workers(count: int, task: _Task) -> Iterator[list[_Worker]]:
    """Worker processes, which end when the parent closes their connection, or dies."""
    # Forked ones would inherit the lock of the run; spawned ones are small.
    context = multiprocessing.get_context("spawn")
    resource_tracker.ensure_running()  # starting it later would let interrupts through
    workers = []
    try:
        # Ctrl-C is for the parent: processes that start while it is blocked never see it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, task), daemon=True)
                process.start()
                theirs.close()
                workers.append(_Worker(process, ours, deque()))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield workers
    finally:
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.join()


def _work(connection: Connection, task: _Task) -> None:
    """The loop of a worker process: names in, outcomes out, until the parent is gone."""
    parent = multiprocessing.parent_process()
    path = task.journal_folder / "workers.lock"
    try:
        lock = path.open("r+")
    except OSError as error:
        connection.send(ConversionStoppedError(f"cannot open {path} ({error.strerror})"))
        return
    with lock, contextlib.suppress(EOFError, ConnectionError):
        lock_file(lock, shared=True)  # the next run waits for the end of this process
        # That run may have begun before the lock: then this worker has no parent any more.
        while parent is not None and parent.is_alive():
            name = connection.recv()
            try:
                connection.send(_convert_file(task, name))
            except ConversionStoppedError as error:
                connection.send(error)


def _convert_file(task: _Task, name: str) -> Outcome:
    """Convert a file, or say what is wrong with it."""
    source, settings = task.source_folder / name, task.settings
    target = task.target_folder / settings.target_name(name)
    identity = (name, 0, 0)
    try:
        status = os.stat(source)
        identity = (name, status.st_size, status.st_mtime_ns)
        scaled = np.rint(decode(source, settings.sample_rate) * 32768.0)
        samples = np.clip(scaled, -32768, 32767).astype(np.int16)
        fault = length_fault(len(samples) / settings.sample_rate, settings.shortest_seconds)
        if fault is None and is_silent(samples / 32768.0):
            fault = SILENT
    except (AudioError, OSError) as error:
        fault = fault_of(error)
    try:
        if fault is None:
            return Outcome(*identity, _write(target, samples, settings), len(samples))
        target.unlink(missing_ok=True)  # of an earlier run
        return Outcome(*identity, fault=fault[0], details=fault[1])
    except (OSError, soundfile.LibsndfileError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConversionStoppedError(
            f"cannot {'remove' if fault else 'write'} {target} ({reason}): make room or correct "
            "the permissions; the same command then goes on from here"
        ) from error


def _write(target: Path, samples: NDArray[np.int16], settings: Settings) -> int:
    """Write a recording and compare what was written; returns its bytes.

    It is encoded in memory because libsndfile does not tell a full disk from other errors.
    """
    encoded = io.BytesIO()
    form = settings.audio_format.upper()
    soundfile.write(encoded, samples, settings.sample_rate, format=form, subtype="PCM_16")
    # Not synced one by one: the journal knows each size, and a million syncs take hours.
    with atomic_write(target, durable=False) as partial:
        partial.write_bytes(encoded.getbuffer())
        found, found_rate = soundfile.read(partial, dtype="int16")
        if found_rate != settings.sample_rate or not np.array_equal(found, samples):
            raise OSError("it reads back other samples than were written: check the disk")
    return len(encoded.getbuffer())
