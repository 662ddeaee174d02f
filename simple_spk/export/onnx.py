"""A model as an ONNX file, from waveforms to embeddings, for any runtime.

The graph has filterbank, mean normalization and encoder; resampling stays outside. The folder also
has config.yaml, which says how to score, and a few waveforms with PyTorch's embeddings of them, to
check a runtime.
"""

import logging
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save
from torch import Tensor, nn

from simple_spk.inference.model import Model
from simple_spk.io.array_file import open_safetensors
from simple_spk.io.atomic_file import atomic_write, write_text
from simple_spk.models.fbank import Fbank

GRAPH, CONFIG, PARITY = "model.onnx", "config.yaml", "parity.safetensors"
FORMAT = 1
LARGEST_DIFFERENCE = 1e-3  # relative, between embeddings of PyTorch and of a runtime
PARITY_SECONDS = (0.5, 1.7, 3.0)
_HOW_TO_USE = """\
# A simple_spk model as ONNX. Inputs of model.onnx:
#   waveforms (n, samples), 32-bit floats in [-1, 1], at sample_rate (in hertz), padded with zeros
#   lengths (n,), 64-bit integers: how many samples of each row are not padding
# Output: embeddings (n, embedding_dim). The score of embeddings x and z is scale times their
# cosine, or for GeneralizedInnerProduct <x, z> - angular_bias |x| |z|; from threshold on, the model
# accepts.
# Calibrated log likelihood ratio: offset + score_weight * score + the sum of quality_weights times
# their measures, each kept within its quality_ranges; least_ and greatest_ are of the two sides of
# a trial. Logarithms are natural:
#   length: of the embedding; log_duration, log_speech: of the seconds of audio, of speech
#   log_recordings: of how many recordings a side has; signal_to_noise_db: in decibels
#   narrow_band: 1 for a telephone's band, else 0
#   typicality: mean of the highest 5 % (rounded up) of the inner products with background, which is
#     base64 of 16-bit floats (rows, embedding_dim), little endian
# simple-spk verify --json shows what it measures; quality_means stand in for what you do not.
# simple-spk export --check FOLDER compares a runtime's embeddings with those stored here.
"""


class WaveformEncoder(nn.Module):
    """Embeddings (n, dim) of waveforms (n, samples) and lengths (n,), with operations of ONNX.

    The spectrum is linear in the frame: the spectra of impulses are the matrix that computes it, in
    double precision like the front end itself.
    """

    spectra_of_impulses: Tensor  # (frame_samples, 2 * bins)

    def __init__(self, front_end: Fbank, encoder: nn.Module) -> None:
        super().__init__()
        self.front_end, self.encoder = front_end, encoder
        impulses = torch.eye(front_end.frame_samples, dtype=torch.float64)
        spectra = front_end.spectrum(impulses)[:, 0, :-1]  # no mel filter reaches the Nyquist bin
        self.register_buffer("spectra_of_impulses", torch.cat(spectra.unbind(-1), dim=-1))

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        shift, size = self.front_end.shift_samples, self.front_end.frame_samples
        waveforms = self.front_end.padded(waveforms, lengths)
        count = (waveforms.shape[1] - size) // shift + 1
        samples = torch.arange(count)[:, None] * shift + torch.arange(size)
        frames = waveforms.index_select(1, samples.flatten()).unflatten(1, samples.shape)
        real, imaginary = (frames.double() @ self.spectra_of_impulses).chunk(2, dim=-1)
        energies = (real.square() + imaginary.square()).float() @ self.front_end.mel
        return self.encoder(*self.front_end.normalized_logarithms(energies, lengths))


def export_onnx(folder: str | Path, model: Model) -> None:
    """Write a model as a folder with an ONNX file, its configuration and its parity check."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ValueError("writing ONNX needs onnx and onnxscript: pip install -e '.[onnx]'")
    folder = Path(folder)
    encoder = WaveformEncoder(model.front_end, model.encoder).eval()
    waveforms, lengths = parity_waveforms(model.front_end.sample_rate)
    with torch.no_grad():  # of the model itself, not of its rewritten front end
        embeddings = model.encoder(*model.front_end(waveforms, lengths))
    number = torch.export.Dim("n")
    samples = torch.export.Dim("samples", min=model.front_end.frame_samples)
    shapes = {"waveforms": {0: number, 1: samples}, "lengths": {0: number}}
    with atomic_write(folder / GRAPH) as partial:
        write_graph(partial, encoder, {"waveforms": waveforms, "lengths": lengths}, shapes)
    write_parity(folder / PARITY, waveforms, lengths, embeddings)
    write_text(folder / CONFIG, _HOW_TO_USE + describe(model, embeddings.shape[1]))


def check_onnx(folder: str | Path) -> float:
    """The largest relative difference between a runtime's embeddings and the stored ones.

    Each stored waveform is embedded alone, and padded in a batch with the others.
    """
    folder = Path(folder)
    parity = read_parity(folder / PARITY)
    waveforms, lengths, expected = (parity[n] for n in ("waveforms", "lengths", "embeddings"))
    if find_spec("onnxruntime") is None:
        raise ValueError("checking ONNX needs onnxruntime: pip install -e '.[onnx]'")
    import onnxruntime

    graph = folder / GRAPH
    if not graph.is_file():
        raise FileNotFoundError(f"{graph} is missing: the export is incomplete")
    try:
        session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
        (together,) = session.run(None, {"waveforms": waveforms, "lengths": lengths})
        alone = [
            session.run(None, {"waveforms": row[None, :n], "lengths": np.array([n])})[0]
            for row, n in zip(waveforms, lengths, strict=True)
        ]
        return relative_difference(np.stack([together, np.concatenate(alone)]), expected)
    except Exception as error:  # a runtime raises classes of its own
        raise ValueError(f"{graph} does not run ({error}): export the model again") from error


def relative_difference(found: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    """The largest |found - expected| / |expected| of embeddings (..., dim); NaN counts as inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.linalg.norm(found - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    return float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max())


def write_graph(
    path: Path,
    encoder: nn.Module,
    inputs: dict[str, Tensor],
    dynamic_shapes: dict[str, Any],
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Write the graph of an encoder of these inputs, whose shapes may differ as stated."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it reports its internals
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            encoder,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=["embeddings"],
            dynamic_shapes=dynamic_shapes,
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # None is for the older exporter
    program.model.metadata_props.update({n: str(value) for n, value in (metadata or {}).items()})
    program.save(path)


def write_parity(path: Path, waveforms: Tensor, lengths: Tensor, embeddings: Tensor) -> None:
    """Write waveforms (n, samples) and their embeddings, with which a runtime is checked."""
    parity = {"waveforms": waveforms, "lengths": lengths, "embeddings": embeddings}
    with atomic_write(path) as partial:
        partial.write_bytes(save({name: tensor.numpy() for name, tensor in parity.items()}))


def describe(model: Model, embedding_dim: int) -> str:
    """The configuration of the graph as YAML."""
    arguments: dict[str, Any] = model.similarity.arguments  # type: ignore[assignment]
    numbers = {name: value for name, value in arguments.items() if isinstance(value, float)}
    numbers |= {name: float(value) for name, value in model.similarity.state_dict().items()}
    config = {
        "onnx_format": FORMAT,
        "sample_rate": model.front_end.sample_rate,
        "least_samples": model.front_end.frame_samples,
        "embedding_dim": embedding_dim,
        "similarity": {"class": type(model.similarity).__name__, **numbers},
        "threshold": model.threshold,
        "calibration": None if model.calibration is None else model.calibration.plain(),
        "training_data": model.training_data,
    }
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def parity_waveforms(sample_rate: int) -> tuple[Tensor, Tensor]:
    """Harmonic tones in noise, (n, samples) padded with zeros, and their lengths (n,)."""
    generator = np.random.default_rng(0)
    lengths = [round(seconds * sample_rate) for seconds in PARITY_SECONDS]
    waveforms = np.zeros((len(lengths), max(lengths)), dtype=np.float32)
    for number, (row, length) in enumerate(zip(waveforms, lengths, strict=True)):
        time = np.arange(length) / sample_rate
        harmonics = np.arange(1, 9)[:, None]
        tones = np.sin(2 * np.pi * (90.0 + 70.0 * number) * harmonics * time) / harmonics
        loudness = 0.1 * (1.2 + np.sin(6.0 * time))
        row[:length] = loudness * tones.sum(axis=0) + 0.01 * generator.standard_normal(length)
    return torch.from_numpy(waveforms), torch.tensor(lengths)


def read_parity(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of the parity check, of consistent shapes."""
    try:
        with open_safetensors(path, "parity check", "name an export --format onnx") as file:
            parity = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): export the model again") from error
    shapes = {name: array.shape for name, array in parity.items()}
    match shapes:
        case {"waveforms": (n, _), "lengths": (m,), "embeddings": (k, _)} if n == m == k > 0:
            return parity
    raise ValueError(f"{path} holds {shapes}, which is not a parity check: export the model again")
