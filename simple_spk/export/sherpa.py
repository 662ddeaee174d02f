"""A model for sherpa-onnx, whose front end computes the filterbank: from its features on, as ONNX.

sherpa-onnx (seen with 2.0.1) has one filterbank for such models, Kaldi's: 80 bands from 20 hertz to
400 hertz below half of the sample rate, Povey's window, no dither, and frames whose centers are at
5, 15, 25, ... milliseconds, with the recording mirrored at its ends. A model file can only set
sample rate and full scale. The graph adds the rest of ``Fbank``: it leaves out the mirrored first
frame, adds the energy of the dither, and subtracts the mean.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from simple_spk import __version__
from simple_spk.export.onnx import (
    CONFIG,
    PARITY,
    describe,
    parity_waveforms,
    read_parity,
    relative_difference,
    write_graph,
    write_parity,
)
from simple_spk.inference.model import Model
from simple_spk.io.atomic_file import atomic_write, write_text
from simple_spk.io.safe_yaml import read_plain_yaml
from simple_spk.models.fbank import INT16_SCALE, Fbank

GRAPH = "sherpa.onnx"
NYQUIST_MARGIN = 400.0  # hertz between sherpa's highest band and half of the sample rate
_HOW_TO_USE = """\
# A simple_spk model for sherpa-onnx: SpeakerEmbeddingExtractor with model=sherpa.onnx. Put
# leading_zeros zeros before each recording, and do not call input_finished(): then its frames and
# embeddings are those of simple_spk. Otherwise frames are shifted by leading_zeros samples.
# compute() keeps the lengths of embeddings. The score of embeddings x and z is scale times their
# cosine, or for GeneralizedInnerProduct <x, z> - angular_bias |x| |z|; from threshold on, the model
# accepts. SpeakerEmbeddingManager of sherpa-onnx normalizes embeddings and compares cosines: its
# thresholds are others, and a GeneralizedInnerProduct cannot be had from it.
"""


class SherpaEncoder(nn.Module):
    """The embedding (1, dim) of log-mel energies (1, frames, num_mels) of sherpa-onnx."""

    def __init__(self, front_end: Fbank, encoder: nn.Module) -> None:
        super().__init__()
        self.front_end, self.encoder = front_end, encoder

    def forward(self, logarithms: Tensor) -> Tensor:
        whole = logarithms[:, 1:]  # the first frame is half a mirror image
        return self.encoder(*self.front_end.normalized_logarithms(whole.exp(), None))


def export_sherpa(folder: str | Path, model: Model) -> None:
    """Write a model as a folder with an ONNX file for sherpa-onnx, and how to use and check it."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ValueError("writing ONNX needs onnx and onnxscript: pip install -e '.[onnx]'")
    check_front_end(model.front_end)
    folder, front_end = Path(folder), model.front_end
    waveforms, lengths = parity_waveforms(front_end.sample_rate)
    with torch.no_grad():
        embeddings = model.encoder(*front_end(waveforms, lengths))
    dim = embeddings.shape[1]
    metadata = {
        "framework": "wespeaker",  # of those that sherpa-onnx knows, the one with this front end
        "language": "multilingual",
        "sample_rate": front_end.sample_rate,
        "output_dim": dim,
        "normalize_samples": int(front_end.full_scale == 1.0),  # 0: multiplied by 32768
        "feature_normalize_type": "",  # the graph subtracts the mean, after the energy of dither
        "comment": f"simple_spk {__version__}: scores and use are in {CONFIG}",
    }
    features = torch.zeros(1, 100, front_end.num_mels)
    shapes = {"logarithms": {1: torch.export.Dim("frames", min=3)}}
    with atomic_write(folder / GRAPH) as partial:
        encoder = SherpaEncoder(front_end, model.encoder).eval()
        write_graph(partial, encoder, {"logarithms": features}, shapes, metadata)
    write_parity(folder / PARITY, waveforms, lengths, embeddings)
    # sherpa's second frame starts one and a half shifts minus half a frame after the first sample
    leading_zeros = (3 * front_end.shift_samples - front_end.frame_samples) // 2
    usage = f"leading_zeros: {leading_zeros}\n"
    write_text(folder / CONFIG, _HOW_TO_USE + usage + describe(model, dim))


def check_front_end(front_end: Fbank) -> None:
    """Raise a ValueError if sherpa-onnx cannot compute the features of a front end."""
    highest = front_end.sample_rate / 2 - NYQUIST_MARGIN
    expected = {
        "num_mels": 80,
        "frame_milliseconds": 25.0,
        "shift_milliseconds": 10.0,
        "lowest_hertz": 20.0,
        "window": "povey",
        "highest_hertz": highest,
    }
    arguments: dict[str, object] = front_end.arguments  # type: ignore[assignment]
    if type(front_end) is not Fbank:
        differing = [f"it is a {type(front_end).__name__}"]
    else:
        differing = [
            f"{name} is {arguments[name]}, not {value}"
            for name, value in expected.items()
            if arguments[name] != value
        ]
        if front_end.full_scale not in (1.0, INT16_SCALE):
            differing.append(f"full_scale is {front_end.full_scale}, not 1 or {INT16_SCALE:g}")
    if differing:
        raise ValueError(
            f"sherpa-onnx cannot compute the features of this model ({'; '.join(differing)}): "
            f"train with Fbank(highest_hertz={highest:g}) and its defaults, or use --format onnx, "
            "which has its own front end"
        )


def check_sherpa(folder: str | Path) -> float:
    """The largest relative difference between embeddings of sherpa-onnx and the stored ones."""
    folder = Path(folder)
    parity = read_parity(folder / PARITY)
    config = read_plain_yaml(folder / CONFIG)
    if find_spec("sherpa_onnx") is None:
        raise ValueError("checking this export needs sherpa-onnx: pip install -e '.[sherpa]'")
    import sherpa_onnx

    settings = sherpa_onnx.SpeakerEmbeddingExtractorConfig(model=str(folder / GRAPH))
    extractor = sherpa_onnx.SpeakerEmbeddingExtractor(settings)
    found = []
    for row, length in zip(parity["waveforms"], parity["lengths"], strict=True):
        stream = extractor.create_stream()
        padded = np.pad(row[:length], (config["leading_zeros"], 0))
        stream.accept_waveform(config["sample_rate"], padded)
        found.append(extractor.compute(stream))
    return relative_difference(np.array(found), parity["embeddings"])
