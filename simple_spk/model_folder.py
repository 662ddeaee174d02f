"""A trained model as a folder: model.safetensors (numbers) and config.yaml (plain data).

Loading one reads data only. Classes are looked up by name in a fixed table, YAML is read with the
safe loader, weights with safetensors: nothing that a folder holds is ever executed.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from simple_spk.fbank import Fbank
from simple_spk.resnet import ResNet
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

PARTS: dict[str, tuple[type[nn.Module], ...]] = {
    "front_end": (Fbank,),
    "encoder": (ResNet,),
    "similarity": (GeneralizedInnerProduct, CosineSimilarity),
}
FORMAT = 1


class Model(NamedTuple):
    """What scoring needs; ``threshold`` is SimPLE's own, -b, for models that have one."""

    front_end: Fbank
    encoder: nn.Module
    similarity: Similarity
    threshold: float | None


def save_model(
    folder: str | Path, front_end: nn.Module | None, encoder: nn.Module, loss: nn.Module
) -> None:
    """Write the parts of a trained model that scoring needs."""
    parts: dict[str, Any] = dict(zip(PARTS, (front_end, encoder, loss.similarity), strict=True))
    for name, part in parts.items():
        if not isinstance(part, PARTS[name]):
            raise ValueError(f"{name}: a model folder cannot describe a {type(part).__name__}")
    folder = Path(folder)
    bias = getattr(loss, "bias", None)
    config = {
        "format": FORMAT,
        **{n: {"class": type(p).__name__, "arguments": p.arguments} for n, p in parts.items()},
        "threshold": -float(bias.detach()) if isinstance(bias, Tensor) and bias.ndim == 0 else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    weights = nn.ModuleDict(parts).state_dict()
    contiguous = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
    save_file(contiguous, folder / "model.safetensors.partial")
    (folder / "config.yaml.partial").write_text(yaml.safe_dump(config, sort_keys=False))
    for name in ("model.safetensors", "config.yaml"):
        (folder / f"{name}.partial").rename(folder / name)


def load_model(folder: str | Path) -> Model:
    """The model in a folder, ready for use, or an error that says what is wrong with it."""
    folder = Path(folder)
    config = _read_config(folder / "config.yaml")
    parts: dict[str, Any] = {name: _build(folder, name, config.get(name)) for name in PARTS}
    if parts["front_end"].num_mels != parts["encoder"].num_mels:
        raise ValueError(f"{folder / 'config.yaml'}: front end and encoder differ in num_mels")
    model = nn.ModuleDict(parts)
    weights_file = folder / "model.safetensors"
    try:
        weights = load_file(weights_file)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{weights_file} is missing: the model folder is incomplete"
        ) from error
    except SafetensorError as error:
        raise ValueError(
            f"{weights_file} is damaged ({error}): fetch or export it again"
        ) from error
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise ValueError(
            f"{weights_file} does not fit {folder / 'config.yaml'}: {error}"
        ) from error
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{weights_file}: {name} holds values that are not numbers")
    model.eval().requires_grad_(False)
    return Model(**parts, threshold=config.get("threshold"))


def _read_config(path: Path) -> dict[str, Any]:
    """The mapping in config.yaml, known to be of a format that this version reads."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: a model folder holds config.yaml")
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not plain YAML: {error}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a mapping with format: {FORMAT}")
    threshold = config.get("threshold")
    if threshold is not None and not (
        isinstance(threshold, float | int) and math.isfinite(threshold)
    ):
        raise ValueError(f"{path}: threshold must be a number or null, not {threshold!r}")
    unknown = set(config) - {"format", "threshold", *PARTS}
    if unknown:
        raise ValueError(f"{path}: unknown fields {', '.join(map(str, unknown))}")
    return config


def _build(folder: Path, name: str, entry: Any) -> nn.Module:
    """The module that config.yaml describes under a name."""
    where = f"{folder / 'config.yaml'}, {name}"
    if not isinstance(entry, dict) or set(entry) != {"class", "arguments"}:
        raise ValueError(f"{where}: expected the fields class and arguments, found {entry!r}")
    classes = {cls.__name__: cls for cls in PARTS[name]}
    if not isinstance(entry["class"], str) or entry["class"] not in classes:
        raise ValueError(f"{where}: unknown class {entry['class']!r}; known: {', '.join(classes)}")
    try:
        return classes[entry["class"]](**entry["arguments"])
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise ValueError(f"{where}: {error}") from error
