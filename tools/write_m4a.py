"""Write recordings as m4a, the format of VoxCeleb2, for tests and benchmarks."""

from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray


def write_m4a(
    path: Path, waveform: NDArray[np.float32], sample_rate: int = 16000, index_first: bool = False
) -> None:
    """Encode a waveform (samples,) or (channels, samples) with AAC.

    The container's index (moov) comes last, as encoders write it, or first, as servers like it.
    """
    channels = np.ascontiguousarray(np.atleast_2d(waveform), np.float32)
    layout = {1: "mono", 2: "stereo"}[len(channels)]
    options = {"movflags": "+faststart"} if index_first else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="mp4", options=options) as container:
        stream = container.add_stream("aac", rate=sample_rate, layout=layout)
        stream.bit_rate = 48000 * len(channels)
        frame = av.AudioFrame.from_ndarray(channels, format="fltp", layout=layout)
        frame.sample_rate, frame.pts = sample_rate, 0
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
