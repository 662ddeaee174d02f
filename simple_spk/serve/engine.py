"""From uploads to what the extractor heard: a bounded queue, decoding, and batches.

Requests that wait at the same time are embedded in one batch. Long recordings have a thread of
their own, so that short ones do not wait for them.
"""

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import soundfile

from simple_spk.inference.batch_embedding import Recording, Unusable
from simple_spk.inference.extractor import Extractor, Side
from simple_spk.serve.decoding import Decoders

STREAM_RATE = 16000  # of samples that come in memory, in hertz
MOST_TOGETHER, SECONDS_TOGETHER = 16, 120.0  # requests, and audio, of a batch
LONG_SECONDS = 60.0  # a request of more audio is a long one
USUAL_SECONDS = 0.1  # of a request, until some are measured

logger = logging.getLogger(__name__)
Heard = list[Side | Unusable]


class BusyError(Exception):
    """The queue is full: ask again after some seconds."""

    def __init__(self, retry_seconds: int) -> None:
        super().__init__(f"the server is busy: try again in {retry_seconds} s")
        self.retry_seconds = retry_seconds


class Upload(NamedTuple):
    """A file that a client sent: its own name, where its bytes are, and where to decode it."""

    name: str
    path: Path
    decoded: Path


class _Job(NamedTuple):
    sides: Sequence[Sequence[Recording]]
    seconds: float
    answer: "Future[Heard]"


class Engine:
    """Decodes and listens for many requests at once."""

    def __init__(self, extractor: Extractor, decoders: Decoders, workers: int, most: int) -> None:
        self.extractor, self.decoders, self.most = extractor, decoders, most
        self.waiting = self.streams = 0  # of the event loop's thread alone
        self.batches = self.batched = 0
        self._seconds_each = USUAL_SECONDS
        self._decoding = ThreadPoolExecutor(workers, "decode")
        self._long = ThreadPoolExecutor(1, "long")
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen_to_all, name="listen", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it can serve."""
        return self._thread.is_alive()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place in the queue; raises BusyError if all are taken."""
        if self.waiting >= self.most:
            raise BusyError(max(1, math.ceil(self.waiting * self._seconds_each)))
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def decode(self, uploads: Sequence[Upload]) -> list[int]:
        """Decode uploads, and return the sample rate of each; raises AudioError."""
        loop = asyncio.get_running_loop()
        tasks = [
            loop.run_in_executor(self._decoding, self.decoders.decode, one.path, one.decoded)
            for one in uploads
        ]
        found = await asyncio.gather(*tasks, return_exceptions=True)  # nothing is left running
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return [one for one in found if isinstance(one, int)]

    async def listen(self, sides: Sequence[Sequence[Recording]]) -> Heard:
        """What the extractor hears of sides of decoded files or of samples at STREAM_RATE."""
        seconds = sum(_seconds(one) for side in sides for one in side)
        if seconds > LONG_SECONDS:
            return await self.run_long(lambda: self.extractor.listen(STREAM_RATE, *sides))
        job = _Job(sides, seconds, Future())
        self._jobs.put(job)
        return await asyncio.wrap_future(job.answer)

    async def run_long(self, task: Callable[[], Any]) -> Any:
        """The result of something that takes long, one after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._long, task)

    def close(self) -> None:
        """End all threads and processes, after the batch that is running."""
        self._jobs.put(None)
        self._thread.join()
        for pool in (self._decoding, self._long):
            pool.shutdown(cancel_futures=True)
        self.decoders.close()

    def _listen_to_all(self) -> None:
        """Take what waits, and listen to it, until the end."""
        held: _Job | None = None
        while True:
            jobs = [held or self._jobs.get()]
            held = None
            if jobs[0] is None:
                return
            seconds = jobs[0].seconds
            with contextlib.suppress(queue.Empty):
                while len(jobs) < MOST_TOGETHER:
                    following = self._jobs.get_nowait()
                    if following is None:
                        self._jobs.put(None)
                        break
                    seconds += following.seconds
                    if seconds > SECONDS_TOGETHER:
                        held = following
                        break
                    jobs.append(following)
            self._listen_together([job for job in jobs if job is not None])

    def _listen_together(self, jobs: list[_Job]) -> None:
        """Answer some jobs in one call; if that fails, each alone, so that one cannot hurt all."""
        started = time.monotonic()
        try:
            sides = chain.from_iterable(job.sides for job in jobs)
            heard = iter(self.extractor.listen(STREAM_RATE, *sides))
            answers = [[next(heard) for _ in job.sides] for job in jobs]
        except Exception as error:
            if len(jobs) == 1 and jobs[0].answer.set_running_or_notify_cancel():
                jobs[0].answer.set_exception(error)
            for job in jobs if len(jobs) > 1 else ():
                self._listen_together([job])
            return
        for job, answer in zip(jobs, answers, strict=True):
            if job.answer.set_running_or_notify_cancel():  # its client may be gone
                job.answer.set_result(answer)
        self.batches, self.batched = self.batches + 1, self.batched + len(jobs)
        each = (time.monotonic() - started) / len(jobs)
        self._seconds_each += 0.1 * (each - self._seconds_each)


def _seconds(recording: Recording) -> float:
    """The length of a decoded file, or of samples."""
    if isinstance(recording, str | Path):
        return soundfile.info(recording).duration
    return recording.shape[-1] / STREAM_RATE
