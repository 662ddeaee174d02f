"""Speech told from music, tones and noise by silero-vad, where the extra [vad] is installed.

Its package carries the network as an ONNX file, which is read directly: importing the package would
import more than is needed.
"""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16000
FRAME_SAMPLES, CONTEXT_SAMPLES, STATES = 512, 64, 128
LEAST_PROBABILITY = 0.5
NETWORK = "data/silero_vad_16k_sequence.onnx"


@functools.cache
def _session() -> Any:
    """The network, or None if it or its runtime is not installed."""
    package = importlib.util.find_spec("silero_vad")
    if package is None or package.origin is None or importlib.util.find_spec("onnxruntime") is None:
        return None
    path = Path(package.origin).parent / NETWORK
    if not path.is_file():  # an older release
        return None
    import onnxruntime  # slow to import, and needed only here

    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        str(path), sess_options=options, providers=["CPUExecutionProvider"]
    )


class SpeechDetector:
    """Finds the speech in a recording that comes in parts; None without the extra."""

    def __init__(self, sample_rate: int) -> None:
        self._network = _session() if sample_rate == SAMPLE_RATE else None
        self._held = np.zeros(CONTEXT_SAMPLES, np.float32)  # the context, and less than a frame
        self._hidden = self._cell = np.zeros((1, 1, STATES), np.float32)
        self._flags: list[NDArray[np.bool_]] = []

    def add(self, waveform: NDArray[np.float32]) -> None:
        """Listen to the next samples (samples,)."""
        if self._network is None:
            return
        held = np.concatenate([self._held, waveform])
        count = (len(held) - CONTEXT_SAMPLES) // FRAME_SAMPLES
        self._held = held[count * FRAME_SAMPLES :].copy()
        if count:
            size = CONTEXT_SAMPLES + FRAME_SAMPLES
            frames = np.lib.stride_tricks.sliding_window_view(held, size)[::FRAME_SAMPLES][:count]
            found, self._hidden, self._cell = self._network.run(
                ["speech_probs", "hn", "cn"],
                {"input": np.ascontiguousarray(frames), "h": self._hidden, "c": self._cell},
            )
            self._flags.append(found.reshape(-1) > LEAST_PROBABILITY)

    @property
    def flags(self) -> NDArray[np.bool_] | None:
        """Which frames of FRAME_SAMPLES are speech, so far."""
        if self._network is None:
            return None
        return np.concatenate([np.empty(0, np.bool_), *self._flags])

    @property
    def seconds(self) -> float | None:
        """The seconds of speech so far."""
        flags = self.flags
        return None if flags is None else int(flags.sum()) * FRAME_SAMPLES / SAMPLE_RATE
