"""Import of 3D-Speaker's CAM++, with the same embeddings.

Only weights are read. The rest is as in its inference: speech at 16 kHz, Kaldi's filterbank of
samples in [-1, 1] without dither, mean normalization, cosine scores.
"""

import re
from pathlib import Path

import torch

from simple_spk.export.imported_weights import encoder_with, read_weights
from simple_spk.inference.model import Model
from simple_spk.models.cam_plus_plus import CamPlusPlus
from simple_spk.models.fbank import Fbank
from simple_spk.models.similarity import CosineSimilarity

DILATIONS = (1, 2, 2)
# From 3D-Speaker's names of weights to ours, in this order.
NAMES = (
    (r"^xvector\.tdnn\.linear", "tdnn"),
    (r"^xvector\.tdnn\.nonlinear\.batchnorm", "tdnn_norm"),
    (r"^xvector\.out_nonlinear\.batchnorm", "norm"),
    (r"^xvector\.dense\.linear", "output.linear"),
    (r"^xvector\.dense\.nonlinear\.batchnorm", "output.centering"),
    (r"\.nonlinear([12])\.batchnorm", r".norm\1"),
    (r"\.cam_layer\.linear_local", ".local"),
    (r"\.cam_layer\.linear1", ".squeeze"),
    (r"\.cam_layer\.linear2", ".excite"),
    (r"^(xvector\.transit\d+)\.nonlinear\.batchnorm", r"\1.0"),
    (r"^(xvector\.transit\d+)\.linear", r"\1.2"),
)
NUMBERED = (
    (r"^xvector\.block(\d+)\.tdnnd(\d+)", "blocks"),
    (r"^xvector\.transit(\d+)", "transitions"),
)


def import_three_d_speaker(path: str | Path) -> Model:
    """The model of the weights of a CAM++, such as campplus_cn_common.bin."""
    path = Path(path)
    found = read_weights(path)
    weights = {_our_name(name): tensor for name, tensor in found.items()}
    try:
        last = weights["output.linear.weight"]
        weights["output.linear.weight"] = last.squeeze(-1)
        weights["output.linear.bias"] = torch.zeros(len(last))
        width, channels = len(weights["head.conv1.weight"]), len(weights["tdnn.weight"])
        numbers = [re.match(r"blocks\.(\d+)\.(\d+)\.local", name) for name in weights]
        blocks = [int(number[1]) for number in numbers if number]
        arguments = {
            "num_mels": weights["tdnn.weight"].shape[1] // width * 8,
            "width": width,
            "channels": channels,
            "growth": len(weights["blocks.0.0.local.weight"]),
            "layers": [blocks.count(number) for number in range(len(DILATIONS))],
            "dilations": list(DILATIONS),
            "embedding_dim": len(last),
            "output": {"centered": True},
        }
        encoder = encoder_with(path, CamPlusPlus.__name__, arguments, weights)
    except (KeyError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        some = ", ".join(list(found)[:3])
        raise ValueError(
            f"{path} does not hold the weights of a CAM++ of 3D-Speaker ({error}; it has {some}, "
            "...): only CAM++ can be imported"
        ) from error
    front_end = Fbank(num_mels=encoder.num_mels, dither=0.0, full_scale=1.0)
    return Model(front_end, encoder, CosineSimilarity(), threshold=None).frozen()


def _our_name(name: str) -> str:
    """The name of a weight in ``CamPlusPlus``."""
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    for pattern, folder in NUMBERED:
        if number := re.match(pattern, name):
            places = [str(int(one) - 1) for one in number.groups()]  # they count from 1
            name = ".".join([folder, *places]) + name[number.end() :]
    return name
