"""Import of SpeechBrain's ECAPA-TDNN, such as spkrec-ecapa-voxceleb, with the same embeddings.

Its YAML file is read as data, and only weights are read beside it: nothing of the folder is
executed, unlike by SpeechBrain.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from simple_spk import SAMPLE_RATE
from simple_spk.export.imported_weights import encoder_with, read_weights
from simple_spk.export.speechbrain import SETTINGS, WEIGHTS
from simple_spk.inference.model import Model
from simple_spk.io.safe_yaml import read_tagged_yaml
from simple_spk.models.decibel_fbank import DecibelFbank
from simple_spk.models.ecapa_tdnn import EcapaTdnn
from simple_spk.models.similarity import CosineSimilarity

# The parts of its YAML file that can be imported: class, and the values of arguments, of which
# None stands for any. Those that are absent have SpeechBrain's defaults, which are these.
SUPPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "compute_features": (
        "!new:speechbrain.lobes.features.Fbank",
        {"n_mels": None, "sample_rate": SAMPLE_RATE},
    ),
    "mean_var_norm": (
        "!new:speechbrain.processing.features.InputNormalization",
        {"norm_type": "sentence", "std_norm": False},
    ),
    "embedding_model": (
        "!new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN",
        {
            **dict.fromkeys(("input_size", "channels", "dilations", "lin_neurons")),
            **dict.fromkeys(("attention_channels", "res2net_scale", "se_channels", "dropout")),
            "kernel_sizes": [5, 3, 3, 3, 1],
            "global_context": True,
        },
    ),
}
NEEDED = {"mean_var_norm": ("norm_type", "std_norm")}  # whose defaults are others
DILATIONS = [1, 2, 3, 4, 1]
NAMES = (  # from SpeechBrain's names of weights to ours, in this order
    (r"\.(conv|norm)\.\1\.", r".\1."),
    (r"^blocks\.0\.", "stem."),
    (r"\.res2net_block\.blocks\.", ".groups."),
    (r"\.se_block\.conv1\.conv\.", ".squeeze."),
    (r"\.se_block\.conv2\.conv\.", ".excite."),
    (r"^asp\.tdnn\.conv\.", "asp.of_frame."),
    (r"^asp\.tdnn\.norm\.", "asp.norm."),
    (r"^asp\.conv\.", "asp.weights."),
    (r"^asp_bn\.norm\.", "asp_bn."),
    (r"^fc\.conv\.", "output.linear."),
)


def import_speechbrain(folder: str | Path) -> Model:
    """The model of a folder with hyperparams.yaml and embedding_model.ckpt."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: name one with {SETTINGS} and {WEIGHTS}")
    settings = read_tagged_yaml(folder / SETTINGS)
    described = {part: _described(folder / SETTINGS, settings, part) for part in SUPPORTED}
    dilations = described["embedding_model"].get("dilations", DILATIONS)
    path = folder / WEIGHTS
    found = read_weights(path)
    weights = {_our_name(name): tensor for name, tensor in found.items()}
    try:
        _split_attention(weights)
        encoder = encoder_with(path, EcapaTdnn.__name__, _arguments(weights, dilations), weights)
    except (KeyError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        raise ValueError(
            f"{path} does not hold the weights of an ECAPA-TDNN of SpeechBrain ({error})"
        ) from error
    front_end = DecibelFbank(num_mels=encoder.num_mels)
    return Model(front_end, encoder, CosineSimilarity(), threshold=None).frozen()


def _described(path: Path, settings: Mapping[Any, Any], part: str) -> dict[str, Any]:
    """The arguments of a part in a YAML file; raises if the part cannot be imported."""
    tag, supported = SUPPORTED[part]
    entry = settings.get(part)
    if not isinstance(entry, dict) or entry.get("") != tag:
        raise ValueError(f"{path}: {part} is not {tag}, which alone can be imported")
    arguments = {name: settings.get(str(v)[1:-1], v) for name, v in entry.items() if name != ""}
    for name in {*arguments, *NEEDED.get(part, ())}:
        expected = supported.get(name)
        if name not in supported or (expected is not None and arguments.get(name) != expected):
            value = arguments.get(name, "its default")
            raise ValueError(f"{path}: {part} with {name}: {value!r} cannot be imported")
    return arguments


def _our_name(name: str) -> str:
    """The name of a weight in ``EcapaTdnn``."""
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return re.sub(r"^blocks\.(\d+)\.", lambda m: f"blocks.{int(m[1]) - 1}.", name)


def _split_attention(weights: dict[str, Tensor]) -> None:
    """Bring the weights of pooling and output into the shapes of ours, in place."""
    matrix = weights["asp.of_frame.weight"]
    channels = matrix.shape[1] // 3
    weights["asp.of_frame.weight"] = matrix[:, :channels]
    weights["asp.of_recording.weight"] = matrix[:, channels:, 0]
    del weights["asp.weights.bias"]  # without effect: the softmax over time cancels it
    weights["output.linear.weight"] = weights["output.linear.weight"].squeeze(-1)


def _arguments(weights: Mapping[str, Tensor], dilations: Any) -> dict[str, Any]:
    """The sizes of the weights as arguments of ``EcapaTdnn``."""
    channels, num_mels = weights["stem.conv.weight"].shape[:2]
    groups = [name for name in weights if re.fullmatch(r"blocks\.0\.groups\.\d+\.conv\.bias", name)]
    return {
        "num_mels": num_mels,
        "channels": channels,
        "pooled_channels": len(weights["mfa.conv.weight"]),
        "dilations": list(dilations[1:-1]),
        "res2net_scale": len(groups) + 1,
        "attention_channels": len(weights["asp.of_frame.weight"]),
        "embedding_dim": len(weights["output.linear.weight"]),
    }
