"""Decoding of uploads in processes of their own, which a time limit or a crash may end.

A process turns an upload, which may be any bytes, into a wav file of 32-bit floats at the model's
rate. The service itself reads only those.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import soundfile

import simple_spk
from simple_spk.data.audio import (
    CANCELING,
    AudioError,
    channels_cancel,
    is_silent,
    read_header,
    recording_blocks,
)

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MOST_BYTES = 2**31  # of memory that decoding may take


class Decoders:
    """So many processes that decode; threads share them."""

    def __init__(
        self, count: int, sample_rate: int, longest_seconds: float, limit_seconds: float
    ) -> None:
        self._all = [_Decoder(sample_rate, longest_seconds, limit_seconds) for _ in range(count)]
        self._idle: queue.SimpleQueue[_Decoder] = queue.SimpleQueue()
        for decoder in self._all:
            self._idle.put(decoder)

    def decode(self, upload: Path, decoded: Path) -> int:
        """Write an upload as a wav file, and return its own sample rate; waits for a process.

        Raises AudioError, which has the path of the upload in its message.
        """
        decoder = self._idle.get()
        try:
            return decoder.decode(upload, decoded)
        finally:
            self._idle.put(decoder)

    def close(self) -> None:
        """End all processes."""
        for decoder in self._all:
            decoder.end()


class _Decoder:
    """A process that decodes one file at a time, and is started again when it had to be ended."""

    def __init__(self, *options: float) -> None:
        *self.options, self.limit_seconds = options
        self.start()

    def start(self) -> None:
        package = str(Path(simple_spk.__file__).parents[1])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "simple_spk.serve.decoding", *map(str, self.options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # messages of FFmpeg quote what files contain
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            encoding="utf-8",
            errors="surrogateescape",
        )
        self.is_ready = False

    def end(self) -> None:
        self.process.kill()
        with contextlib.suppress(OSError):
            self.process.communicate()

    def decode(self, upload: Path, decoded: Path) -> int:
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            process.kill()

        answer = ""
        with contextlib.suppress(OSError):
            if not self.is_ready:  # its imports take seconds, which are not those of the upload
                self.is_ready = bool(process.stdout.readline())
            timer = threading.Timer(self.limit_seconds, stop)
            timer.start()
            try:
                process.stdin.write(json.dumps([str(upload), str(decoded)]) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            finally:
                timer.cancel()
        if not answer or is_late.is_set():
            self.end()
            self.start()
            what = "cannot be decoded: convert it to wav or flac"
            if is_late.is_set():
                what = f"takes more than {self.limit_seconds:g} s to decode: send a shorter one"
            raise AudioError(f"{upload} {what}")
        found: int | str = json.loads(answer)
        if isinstance(found, str):
            raise AudioError(found)
        return found


def work(sample_rate: int, longest_seconds: float) -> None:
    """Decode what standard input asks for, until its end; errors are answers, too."""
    import scipy.signal  # noqa: F401 (resampling would import it within the time limit)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
    os.dup2(2, 1)  # libraries may print
    if resource is not None:
        used = Path("/proc/self/statm")
        pages = int(used.read_text(encoding="ascii").split()[0]) if used.exists() else 0
        most = pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        upload, decoded = map(Path, json.loads(line))
        try:
            answer: int | str = _convert(upload, decoded, sample_rate, longest_seconds)
        except (AudioError, OSError) as error:
            answer = str(error)
        except MemoryError:
            answer = f"{upload} takes too much memory to decode: convert it to wav or flac"
        print(json.dumps(answer), file=answers, flush=True)


def _convert(upload: Path, decoded: Path, sample_rate: int, longest_seconds: float) -> int:
    """Write an upload as a wav file, and return its own sample rate."""
    header = read_header(upload, longest_seconds)
    with soundfile.SoundFile(decoded, "w", sample_rate, 1, format="WAV", subtype="FLOAT") as file:
        for number, block in enumerate(recording_blocks(upload, sample_rate, longest_seconds)):
            if not number and len(block) and is_silent(block) and channels_cancel(upload):
                raise AudioError(f"{upload} {CANCELING}")
            file.write(block)
    return header.sample_rate


if __name__ == "__main__":
    work(int(sys.argv[1]), float(sys.argv[2]))
