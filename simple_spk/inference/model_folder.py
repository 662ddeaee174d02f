"""A trained model as a folder: model.safetensors (weights), config.yaml (plain data), README.md.

Loading one executes nothing of it: classes are looked up by name in a fixed table, or in modules
that the user lists (``own_encoders``), YAML is read by the safe loader, weights by safetensors. A
folder may be damaged or malicious: sizes in its config are compared with those of its weights
before memory is allocated, and a model whose embeddings are not finite is refused.
"""

import hashlib
import math
import re
import reprlib
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor, nn

from simple_spk import __version__
from simple_spk.evaluation.calibration import Calibration
from simple_spk.inference.model import Model, fingerprint_of
from simple_spk.inference.own_encoders import own_class_name, own_encoder
from simple_spk.io.array_file import open_safetensors
from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.safe_yaml import read_plain_yaml
from simple_spk.models.cam_plus_plus import CamPlusPlus
from simple_spk.models.decibel_fbank import DecibelFbank
from simple_spk.models.ecapa_tdnn import EcapaTdnn
from simple_spk.models.embedding_head import IS_HELD, EmbeddingHead, arguments_without_hold
from simple_spk.models.fbank import Fbank
from simple_spk.models.redimnet import ReDimNet
from simple_spk.models.resnet import ResNet
from simple_spk.models.saved_arguments import NAMES_BEFORE_FORMAT_3, renamed, wrong_argument
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct

# The lines between --- are read by the Hugging Face Hub.
CARD_TEMPLATE = """---
library_name: simple_spk
tags: [speaker-verification, speaker-recognition]
---

# A speaker-verification model

Tells whether recordings of speech have the same speaker. Made with simple_spk {version}.

| | |
|---|---|
| encoder | {encoder}, {parameters:,} parameters |
| embedding | {dimension} numbers |
| input | speech at {sample_rate} Hz, {num_mels} mel bands |
| score | {similarity}{threshold} |
| probabilities | {probabilities} |
{own_encoder}
## Use

```python
from simple_spk import Extractor

extractor = Extractor.load("this folder")
print(extractor.verify("one.wav", "other.wav"))
```

```bash
simple-spk verify --model THIS_FOLDER one.wav other.wav
```

## Training data

{training_data}

## Figures

No figures are stated. `simple-spk evaluate` measures error rates on a trial list.

Files: `model.safetensors` (weights), `config.yaml` (plain data). Loading executes nothing of them.
"""
_OWN_ENCODER = """
The encoder is the class `{0.__module__}.{0.__qualname__}`, which must be installed.
Allow its import with `export SIMPLE_SPK_ENCODERS={0.__module__}`.
"""
# The last line, an invisible comment with a hash of all before it, which detects edited cards.
MARK = "<!-- written by simple_spk itself: {digest} -->\n"


def is_automatic(card: str) -> bool:
    """Whether ``default_card`` of any version wrote a card, and nobody edited it."""
    lines = card.splitlines(keepends=True)
    return bool(lines) and lines[-1] == _mark("".join(lines[:-1]))


def _mark(text: str) -> str:
    """The last line of the card with this text."""
    return MARK.format(digest=hashlib.sha256(text.encode()).hexdigest())


def default_card(model: Model) -> str:
    """A model card with the facts that the model itself has."""
    encoder: Any = model.encoder
    probabilities = "none: it is not calibrated"
    if model.calibration is not None:
        probabilities = f"calibrated on {model.calibration.trained_on or 'a list without a name'}"
    text = CARD_TEMPLATE.format(
        version=__version__,
        encoder=type(encoder).__name__,
        parameters=sum(parameter.numel() for parameter in encoder.parameters()),
        dimension=encoder.arguments.get("embedding_dim", "some"),
        sample_rate=model.front_end.sample_rate,
        num_mels=model.front_end.num_mels,
        similarity=type(model.similarity).__name__,
        threshold="" if model.threshold is None else f", accepting from {model.threshold:.4g}",
        probabilities=probabilities,
        training_data=model.training_data or "Not stated.",
        own_encoder="" if type(encoder) in PARTS["encoder"] else _OWN_ENCODER.format(type(encoder)),
    )
    return text + _mark(text)


FORMAT = 4
PARTS: dict[str, tuple[type[nn.Module], ...]] = {
    "front_end": (Fbank, DecibelFbank),
    "encoder": (ResNet, EcapaTdnn, CamPlusPlus, ReDimNet),
    "similarity": (GeneralizedInnerProduct, CosineSimilarity),
}
FIELDS = ("format", "made_with", *PARTS, "threshold", "calibration", "training_data")
FIELDS_OF_FORMAT_4 = (*FIELDS, "fingerprint")
NAMES_SINCE_FORMAT_3 = {old: new for new, old in NAMES_BEFORE_FORMAT_3.items()}
CONFIG, WEIGHTS, CARD = "config.yaml", "model.safetensors", "README.md"

# Smallest and largest value of arguments, also of each item of a list: no real model is beyond
# them, and what is within can be built, or found not to fit its weights, at once.
LIMITS: dict[str, tuple[float, float]] = {
    "sample_rate": (1000, 96_000),
    "num_mels": (1, 512),
    "frame_milliseconds": (1.0, 50.0),
    "shift_milliseconds": (1.0, 50.0),
    "lowest_hertz": (0.0, 400.0),
    "highest_hertz": (1.0, 48_000.0),
    "dither": (0.0, 1000.0),
    "full_scale": (1.0, 32_768.0),
    "width": (1, 4096),
    "blocks": (1, 100),
    "stem_stride": (1, 8),
    "embedding_dim": (1, 65_536),
    "hidden_dim": (1, 65_536),
    "channels": (1, 8192),
    "pooled_channels": (1, 16_384),
    "dilations": (1, 64),
    "strides": (1, 8),
    "reductions": (1, 4096),
    "group_size": (1, 4096),
    "growth": (1, 4096),
    "layers": (1, 100),
    "res2net_scale": (2, 64),
    "attention_channels": (1, 8192),
    "angular_bias": (-1.0, 1.0),
    "scale": (1e-6, 1e6),
    "initial_length": (1e-6, 1e6),
    "minimum_length": (0.0, 1e6),
}
MOST_ITEMS = 8  # of an argument that is a list
FLOATS = ("F16", "BF16", "F32")
STORED_TYPES = {torch.float32: FLOATS, torch.int64: ("I64",), torch.bool: ("BOOL",)}


def save_model(
    folder: str | Path, model: Model, card: str | None = None, half_precision: bool = False
) -> None:
    """Write a model folder; its README.md is ``card``, or else ``default_card``.

    half_precision stores matrices and filters as 16-bit floats; they are loaded as 32-bit floats.
    """
    parts: dict[str, Any] = {name: getattr(model, name) for name in PARTS}
    described = {name: _describe(name, part) for name, part in parts.items()}
    weights = {}
    for name, tensor in nn.ModuleDict(parts).state_dict().items():
        if tensor.dtype not in STORED_TYPES:
            raise ValueError(f"{name} is of {tensor.dtype}: expected one of {[*STORED_TYPES]}")
        # Biases and statistics are few, and stay exact.
        is_halved = half_precision and tensor.is_floating_point() and tensor.ndim > 1
        weights[name] = (tensor.half() if is_halved else tensor).cpu().contiguous()
        if is_halved and not weights[name].isfinite().all():
            raise ValueError(f"{name} holds values that 16-bit floats cannot: store it in full")
    config = {
        "format": FORMAT,
        "made_with": f"simple_spk {__version__}",
        **described,
        "threshold": model.threshold,
        "calibration": None if model.calibration is None else model.calibration.plain(),
        "training_data": model.training_data,
        "fingerprint": None if half_precision else model.fingerprint,
    }
    folder = Path(folder)
    # The three files appear once the last is written.
    with (
        atomic_write(folder / CARD) as card_file,
        atomic_write(folder / CONFIG) as config_file,
        atomic_write(folder / WEIGHTS) as weights_file,
    ):
        card_file.write_text(card or default_card(model), encoding="utf-8")
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        config_file.write_text(text, encoding="utf-8")
        # not by save_file, whose files only their owner can read
        weights_file.write_bytes(save(weights))


def _describe(name: str, part: Any) -> dict[str, Any]:
    """The class and the arguments of a part, from which ``build_part`` builds it."""
    cls = type(part)
    if cls in PARTS[name]:
        return {"class": cls.__name__, "arguments": part.arguments}
    if name != "encoder":
        raise ValueError(f"{name}: a model folder cannot describe a {cls.__name__}")
    class_name = own_class_name(part)
    _check_arguments(f"encoder {class_name}", cls, part.arguments)
    return {"class": class_name, "arguments": part.arguments}


def load_model(folder: str | Path) -> Model:
    """The model in a folder, ready for use; errors say what is wrong with the folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no model folder at {folder}: correct the path")
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"{folder / CONFIG} is missing: name a model folder (RUN/model)")
    config = _read_config(folder / CONFIG)
    is_held = _held_length(folder / WEIGHTS) if config["format"] < 4 else None
    parts: dict[str, Any] = {
        name: build_part(f"{folder / CONFIG}, {name}", name, config[name], is_held)
        for name in PARTS
    }
    if parts["front_end"].num_mels != parts["encoder"].num_mels:
        raise ValueError(f"{folder / CONFIG}: front end and encoder differ in num_mels")
    modules = nn.ModuleDict(parts)
    weights = _read_weights(folder / WEIGHTS, modules.state_dict(), is_held)
    modules.load_state_dict(weights, assign=True)
    described = ("threshold", "calibration", "training_data", "fingerprint")
    model = Model(*parts.values(), *(config.get(name) for name in described)).frozen()
    if is_held is not None:
        model = model._replace(fingerprint=_old_fingerprint(config, parts, is_held))
    _check_answer(folder, model)
    return model


def builtin_model() -> Path:
    """The folder of the built-in model."""
    folder = Path(__file__).parents[1] / "builtin_model"
    if not folder.is_dir():
        raise FileNotFoundError("this copy comes without a model: name a model folder (--model)")
    return folder


def _read_config(path: Path) -> dict[str, Any]:
    """The fields of config.yaml, of checked types, with the calibration as an object."""
    config = read_plain_yaml(path)
    if not isinstance(config, dict) or config.get("format") not in (2, 3, FORMAT):
        raise ValueError(f"{path}: expected a mapping with format: {FORMAT}; make the folder again")
    fields = FIELDS_OF_FORMAT_4 if config["format"] == FORMAT else FIELDS
    if set(config) != set(fields):
        strange = reprlib.repr(sorted(str(name) for name in set(config) ^ set(fields)))
        raise ValueError(f"{path}: unknown or missing: {strange}; expected {fields}")
    threshold, training_data = config["threshold"], config["training_data"]
    is_number = type(threshold) in (int, float) and abs(threshold) < 1e30
    for name, expected, is_so in (
        ("threshold", "a number or null", threshold is None or is_number),
        ("made_with", "text", isinstance(config["made_with"], str)),
        ("training_data", "text or null", isinstance(training_data, str | None)),
        ("fingerprint", "text or null", isinstance(config.get("fingerprint"), str | None)),
    ):
        if not is_so:
            raise ValueError(f"{path}: {name} must be {expected}, not {_shown(config[name])}")
    if config["calibration"] is not None:
        try:
            config["calibration"] = Calibration.from_plain(config["calibration"])
        except ValueError as error:
            raise ValueError(f"{path}, calibration: {error}") from error
    return config


def build_part(where: str, name: str, entry: Any, is_held: bool | None = None) -> nn.Module:
    """A part of a model from unchecked plain data; encoders have no memory for weights yet.

    is_held: whether the length of embeddings was held, in folders before format 4.
    """
    if not isinstance(entry, dict) or set(entry) != {"class", "arguments"}:
        raise ValueError(f"{where}: expected the fields class and arguments, found {_shown(entry)}")
    class_name, arguments = entry["class"], entry["arguments"]
    cls: Any = next((cls for cls in PARTS[name] if cls.__name__ == class_name), None)
    is_ours = cls is not None
    if cls is None and name == "encoder":
        cls = own_encoder(where, class_name)
    if cls is None:
        known = ", ".join(known.__name__ for known in PARTS[name])
        raise ValueError(f"{where}: unknown class {_shown(class_name)}; known: {known}")
    if not isinstance(arguments, dict):
        raise ValueError(f"{where}: arguments must be a mapping, not {_shown(arguments)}")
    arguments = renamed(arguments, NAMES_SINCE_FORMAT_3)
    if is_held is not None and isinstance(arguments.get("output"), dict):
        arguments["output"] = arguments_without_hold(arguments["output"], is_held)
    _check_arguments(where, cls, arguments)
    if isinstance(arguments.get("output"), dict):
        _check_arguments(f"{where}, output", EmbeddingHead, arguments["output"])
    try:
        # The memory of our encoders is allocated when their weights are read.
        with torch.device("meta" if name == "encoder" and is_ours else "cpu"):
            return cls(**arguments)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise ValueError(f"{where}: {error}") from error


def _check_arguments(where: str, cls: type[nn.Module], arguments: dict[str, Any]) -> None:
    """Raise a ValueError for arguments that are unknown, of another type, or out of range."""
    constructor: Any = cls.__init__
    wrong = wrong_argument(constructor, arguments)
    if wrong is not None:
        value = _shown(arguments[wrong])
        raise ValueError(
            f"{where}: {cls.__name__} takes no argument {wrong} of the value {value}: "
            "it must be of its declared type"
        )
    for name, value in arguments.items():
        values = value if isinstance(value, list) else [value]
        numbers = [one for one in values if type(one) in (int, float)]
        low, high = LIMITS.get(name, (-math.inf, math.inf))
        if len(values) > MOST_ITEMS or not all(low <= one <= high for one in numbers):
            expected = f"{low} to {high}, at most {MOST_ITEMS} of them"
            raise ValueError(f"{where}: {name} is {_shown(value)}, expected {expected}")


def _held_length(path: Path) -> bool:
    """Whether a folder before format 4 holds the length of embeddings."""
    try:
        with open_safetensors(path, "weights", "fetch or export them again", "pt") as file:
            flag = f"encoder.{IS_HELD}"
            return flag in file.keys() and bool(file.get_tensor(flag).any())  # noqa: SIM118
    except (SafetensorError, ValueError, OSError):  # as _read_weights will say
        return False


def _old_fingerprint(config: dict[str, Any], parts: dict[str, Any], is_held: bool) -> str:
    """The fingerprint that the model of a folder before format 4 always had."""
    front_end, encoder = parts["front_end"], parts["encoder"]
    arguments = dict(encoder.arguments)
    if arguments.get("output") is not None:
        arguments["output"] = config["encoder"]["arguments"]["output"]
    weights = encoder.state_dict() | {IS_HELD: torch.tensor(is_held)}
    if is_held and config["encoder"]["arguments"]["output"].get("form", "cartesian") != "polar":
        weights = {n: tensor for n, tensor in weights.items() if not n.startswith("output.length.")}
    return fingerprint_of(
        [
            (type(front_end).__name__, front_end.arguments, front_end.state_dict()),
            (type(encoder).__name__, arguments, weights),
        ]
    )


def _read_weights(
    path: Path, expected: dict[str, Tensor], is_held: bool | None = None
) -> dict[str, Tensor]:
    """The weights of a file, with the names, shapes and types of a state dict.

    is_held: in folders before format 4, whether embeddings have a constant length.
    """
    does_not_fit = f"{path} does not fit {path.with_name(CONFIG)}:"
    weights: dict[str, Tensor] = {}
    try:
        with open_safetensors(path, "weights", "fetch or export them again", "pt") as file:
            there = dict.fromkeys(file.keys())
            stored = dict(zip(renamed(there, NAMES_SINCE_FORMAT_3), there, strict=False))
            if is_held is not None:
                stored.pop(f"encoder.{IS_HELD}", None)
            if is_held:  # the weights of the length, if there are any, have no effect
                of_length = [name for name in expected if name.startswith("encoder.output.length.")]
                weights |= {name: torch.zeros(expected[name].shape) for name in of_length}
                stored = {name: place for name, place in stored.items() if name not in weights}
                expected = {name: one for name, one in expected.items() if name not in weights}
            if strange := sorted(set(stored) ^ set(expected)):
                what = "lacks" if strange[0] in expected else "has the unexpected"
                first, total = _shown(strange[0]), len(strange)
                raise ValueError(f"{does_not_fit} it {what} {first}, {total} differences in all")
            for name, tensor in expected.items():
                header = file.get_slice(stored[name])
                found = (header.get_shape(), header.get_dtype())
                shape, types = list(tensor.shape), STORED_TYPES[tensor.dtype]
                if found[0] != shape or found[1] not in types:
                    expected_words = f"{shape} of {' or '.join(types)}"
                    raise ValueError(f"{does_not_fit} {name} is {found}, expected {expected_words}")
                # Copied, as the tensors of safetensors may change with the file.
                weights[name] = file.get_tensor(stored[name]).to(tensor.dtype, copy=True)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): fetch or export it again") from error
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds values that are not numbers")
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise ValueError(f"{path}: {name} holds variances below zero")
    return weights


@torch.no_grad()
def _check_answer(folder: Path, model: Model) -> None:
    """Raise unless a short sound has a finite embedding: finite weights may overflow together."""
    waveform = torch.linspace(0.0, 300.0, model.front_end.frame_samples * 8).sin() * 0.1
    try:
        embedding = model.encoder(*model.front_end(waveform[None]))
        answer = model.similarity.pairs(embedding, embedding)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{folder}: the model cannot compute ({error}): make it again") from error
    if not (embedding.isfinite().all() and answer.isfinite().all()):
        raise ValueError(f"{folder / WEIGHTS}: its embeddings are not numbers: make it again")


class _Shortened(reprlib.Repr):
    """Short texts of values, also of integers of too many digits to be converted."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if abs(x) <= 2**64 else "a huge number"


_shown = _Shortened().repr  # a value of a config file, shortened for a message


_HUB_ID = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?", re.ASCII)


def resolve(model: str | Path) -> Path:
    """The folder of a model: the given one, or the local copy of ``owner/name[@revision]``.

    An existing folder is preferred. A model that was fetched once needs no network.

    >>> resolve("/some/folder").as_posix()
    '/some/folder'
    """
    folder = Path(model)
    hub_id = _HUB_ID.fullmatch(str(model))
    if hub_id is None or isinstance(model, Path) or folder.exists():
        return folder
    from huggingface_hub import snapshot_download  # slow to import, and rarely needed

    try:
        fetched = snapshot_download(
            hub_id["name"], revision=hub_id["revision"], allow_patterns=[WEIGHTS, CONFIG, CARD]
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise OSError(
            f"no folder {model}, and no such model from the Hugging Face Hub ({reason}): correct "
            "the name, or check the network"
        ) from error
    return Path(fetched)
