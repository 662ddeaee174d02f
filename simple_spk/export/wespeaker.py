"""Import of WeSpeaker's ResNet-18 and ResNet-34, with the same embeddings.

Only weights are read, from avg_model.pt or an ONNX file. The rest is as in its recipes: speech at
16 kHz, Kaldi's filterbank with a Hamming window and no dither at test time, mean normalization,
cosine scores.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simple_spk import SAMPLE_RATE
from simple_spk.export.imported_weights import encoder_with, read_weights
from simple_spk.export.wespeaker_onnx import read_wespeaker_onnx
from simple_spk.inference.model import Model
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import CosineSimilarity

STAGES = ("layer1", "layer2", "layer3", "layer4")
CLASSIFIER = "projection."  # over the training speakers; verification does not need it
SUPPORTED = "only ResNet-18, ResNet-34 and the like, of basic blocks and statistics pooling, can be"
# Parts of weight names that only other architectures of WeSpeaker have.
OTHERS = {
    "se_res2block": "ECAPA-TDNN",
    "xvector.": "CAM++",
    "frame_1": "a TDNN (x-vector)",
    ".rbr_": "RepVGG",
    ".conv3.": "a ResNet of bottleneck blocks (ResNet-50, 101, 152, 221 or 293)",
    ".convs.": "Res2Net or ERes2Net",
    "frontend.": "a model with a learned front end",
    "pool.": "a ResNet with attentive pooling",
}


def import_wespeaker(path: str | Path, sample_rate: int = SAMPLE_RATE) -> tuple[Model, int]:
    """The model of avg_model.pt, its folder or an ONNX file; the number of weights left out."""
    path = Path(path)
    path = path / "avg_model.pt" if path.is_dir() else path
    weights = read_wespeaker_onnx(path) if path.suffix == ".onnx" else read_weights(path)
    dropped = sum(tensor.numel() for n, tensor in weights.items() if n.startswith(CLASSIFIER))
    weights = {n: tensor for n, tensor in weights.items() if not n.startswith(CLASSIFIER)}
    for part, architecture in OTHERS.items():
        if any(part in name for name in weights):
            raise ValueError(f"{path} holds {architecture}; {SUPPORTED} imported")
    for name in ("conv1.weight", "layer4.0.conv2.weight", "seg_1.weight"):
        if name not in weights:
            some = ", ".join(list(weights)[:4])
            raise ValueError(f"{path} lacks {name} (it has {some}, ...); {SUPPORTED} imported")
    try:
        encoder = encoder_with(path, ResNet.__name__, _arguments(weights), _renamed(weights))
    except (KeyError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        raise ValueError(
            f"{path} does not have the shape of a ResNet-34 ({error}); {SUPPORTED} imported"
        ) from error
    front_end = Fbank(sample_rate, encoder.num_mels, dither=0.0, window="hamming")
    model = Model(front_end, encoder, CosineSimilarity(), threshold=None)
    return model.frozen(), dropped


def _arguments(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """The sizes of the weights as arguments of ``ResNet``."""
    blocks = [
        len({name.split(".")[1] for name in weights if name.startswith(f"{stage}.")})
        for stage in STAGES
    ]
    last = "seg_2.weight" if "seg_2.weight" in weights else "seg_1.weight"
    hidden_dim, pooled = weights["seg_1.weight"].shape
    return {
        "num_mels": pooled // (2 * len(weights["layer4.0.conv2.weight"])) * 2 ** (len(STAGES) - 1),
        "width": len(weights["conv1.weight"]),
        "blocks": blocks,
        "embedding_dim": len(weights[last]),
        "output": {"hidden_dim": hidden_dim} if last == "seg_2.weight" else None,
    }


def _renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """WeSpeaker's weights by the names of ``ResNet``."""
    convolutions = {n: tensor for n, tensor in weights.items() if not n.startswith("seg_")}
    last = {name: weights[f"seg_1.{name}"] for name in ("weight", "bias")}
    output: dict[str, Tensor] = {}
    if "seg_2.weight" in weights:
        output |= {f"output.hidden.0.{name}": tensor for name, tensor in last.items()}
        # seg_bn_1, which normalizes the input of seg_2, is folded into it.
        names = ("seg_bn_1.running_mean", "seg_bn_1.running_var", "seg_2.weight", "seg_2.bias")
        mean, variance, matrix, bias = (weights[name].double() for name in names)
        scaled = matrix / (variance + torch.nn.BatchNorm1d(1).eps).sqrt()
        last = {"weight": scaled.float(), "bias": (bias - scaled @ mean).float()}
    output |= {f"output.linear.{name}": tensor for name, tensor in last.items()}
    return convolutions | output
