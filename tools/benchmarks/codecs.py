"""What each codec of the training augmentation costs for a crop of two seconds.

Bit rates are the lowest, the geometric mean and the highest of each codec. The crop is real speech
if it is at hand, noise otherwise.
"""

import argparse
from functools import partial

import numpy as np

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import read_crop
from simple_spk.data.codecs import CODECS, bit_rate_range, through_codec, unavailable_codecs
from tools.benchmarks.measure import Row, in_turns


def run(options: argparse.Namespace) -> list[Row]:
    """One row for each codec: milliseconds by bit rate."""
    data = options.data
    recordings = sorted(data.glob("speech/speechocean762/*/*.ogg")) if data else []
    if recordings:
        crop = read_crop(recordings[0], 2 * SAMPLE_RATE, 0.5, SAMPLE_RATE)
    else:
        crop = np.random.default_rng(0).normal(0, 0.1, 2 * SAMPLE_RATE).astype(np.float32)
    rows: list[Row] = []
    for name in CODECS:
        if name in unavailable_codecs():
            rows.append({"codec": name, "ms": unavailable_codecs()[name]})
            continue
        limits = bit_rate_range(name)
        rates = (
            [None] if limits is None else [limits[0], float(np.sqrt(np.prod(limits))), limits[1]]
        )
        seconds = in_turns({str(k): partial(through_codec, crop, name, k) for k in rates}, 15)
        kbits = " / ".join("one" if k is None else f"{k:.3g}" for k in rates)
        times = " / ".join(f"{1000 * value:.1f}" for value in seconds.values())
        rows.append({"codec": name, "kbit/s": kbits, "ms": times})
    return rows
