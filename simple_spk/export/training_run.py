"""The model of a training run, finished or not; nothing of the run's YAML file is executed."""

import logging
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from simple_spk.inference.model import Model, trained_model
from simple_spk.inference.model_folder import (
    CONFIG,
    NAMES_SINCE_FORMAT_3,
    PARTS,
    build_part,
    load_model,
)
from simple_spk.io.atomic_file import damage_of
from simple_spk.io.safe_yaml import read_tagged_yaml
from simple_spk.io.tensor_file import read_tensors
from simple_spk.losses import hard_example, margin, metric_learning, quality_aware
from simple_spk.models.embedding_head import IS_HELD
from simple_spk.models.saved_arguments import renamed

logger = logging.getLogger(__name__)

SETTINGS, CHECKPOINT = "hyperparams.yaml", "CKPT.yaml"  # SpeechBrain's names
# Losses that always compare by the cosine; their YAML text names no similarity.
OF_COSINES = (
    margin.SphericalLoss,
    margin.SoftmaxLoss,
    metric_learning.MetricLearningLoss,
    metric_learning.BatchMetricLearningLoss,
)


def find_model(source: Path) -> Path:
    """The folder with the weights of a model folder, a checkpoint or a run.

    For a run that is RUN/model, which training writes at its end, or else the newest checkpoint
    that is whole; a warning names the damage of others. A damaged checkpoint that is named itself
    is refused.
    """
    if not source.is_dir():
        raise FileNotFoundError(f"no folder {source}: name a training run or a model folder")
    for folder in (source, source / "model"):
        if (folder / CONFIG).is_file():
            return folder
        if (folder / CHECKPOINT).is_file():
            if (damage := damage_of(folder)) is not None:
                raise ValueError(f"{folder} is damaged ({damage}): name an older checkpoint")
            return folder
    saved = [path for path in source.glob(f"checkpoints/CKPT*/{CHECKPOINT}") if path.is_file()]
    damages = {path: damage_of(path.parent) for path in saved}
    for path, damage in damages.items():
        if damage is not None:
            logger.warning("the checkpoint %s is damaged and ignored: %s", path.parent, damage)
            saved.remove(path)
    if damages and not saved:
        path, damage = next(iter(damages.items()))
        raise ValueError(
            f"all {len(damages)} checkpoints of {source} are damaged, such as {path.parent} "
            f"({damage}): train again"
        )
    if not saved:
        expected = f"a model folder ({CONFIG}) nor a training run (model/, checkpoints/CKPT*)"
        raise FileNotFoundError(f"{source} is neither {expected}: correct the path")
    order: dict[Path, Any] = {}
    for path in saved:
        about = read_tagged_yaml(path)
        moment, progress = about.get("unixtime"), about.get("progress")
        if not isinstance(moment, int | float):
            raise ValueError(f"{path} does not say when it was saved: name another checkpoint")
        # Epoch and step of training; checkpoints of version 0.1 have the time alone.
        known = isinstance(progress, list) and all(isinstance(one, int) for one in progress)
        order[path] = (progress if known else [-1, -1], moment)
    return max(saved, key=lambda path: order[path]).parent


def load_trained(folder: Path) -> Model:
    """The model in a folder of ``find_model``."""
    if (folder / CONFIG).is_file():
        return load_model(folder)
    settings_file = folder.parent.parent / SETTINGS
    settings = read_tagged_yaml(settings_file)
    loss_settings, prefix = settings.get("loss"), ""
    if isinstance(loss_settings, dict) and "then" in loss_settings:  # a WarmStartLoss
        loss_settings, prefix = loss_settings["then"], "then."
    if isinstance(loss_settings, dict):
        of_loss = loss_settings.get("similarity", _cosine_of(loss_settings.get("", "")))
        settings = settings | ({} if of_loss is None else {"similarity": of_loss})
    encoder_weights = read_tensors(folder / "encoder.ckpt")
    flag = encoder_weights.pop(IS_HELD, None)  # of version 0.1, which could hold the length
    is_held = None if flag is None else bool(flag.any())
    parts = {name: _build(settings_file, name, settings.get(name), is_held) for name in PARTS}
    if is_held:
        shapes = {n: t.shape for n, t in parts["encoder"].state_dict().items()}
        of_length = [name for name in shapes if name.startswith("output.length.")]
        encoder_weights |= {name: torch.zeros(shapes[name]) for name in of_length}
    loss: Any = nn.Module()
    loss_weights = read_tensors(folder / "loss.ckpt")
    loss.similarity, loss.bias = parts["similarity"], loss_weights.get(f"{prefix}bias")
    prefix += "similarity."
    in_loss = {n.removeprefix(prefix): t for n, t in loss_weights.items() if n.startswith(prefix)}
    for name, file, weights in (
        ("encoder", "encoder.ckpt", encoder_weights),
        ("similarity", "loss.ckpt", in_loss),
    ):
        try:
            parts[name].load_state_dict(renamed(weights, NAMES_SINCE_FORMAT_3), assign=True)
        except RuntimeError as error:
            raise ValueError(f"{folder / file} does not fit {settings_file}: {error}") from error
    return trained_model(parts["front_end"], parts["encoder"], loss).frozen()


def _cosine_of(tag: str) -> dict[str, str] | None:
    """The similarity of a loss other than SimPLE by the tag of its class, if it is the cosine."""
    name = tag.rpartition(".")[2]
    for module in (margin, hard_example, quality_aware, metric_learning):
        cls = getattr(module, name, None)
        if isinstance(cls, type) and issubclass(cls, OF_COSINES):
            return {"": "!new:simple_spk.models.similarity.CosineSimilarity"}
    return None


def _build(settings_file: Path, name: str, entry: Any, is_held: bool | None) -> nn.Module:
    """The part that a run's YAML file has under a name, if a model folder can describe it."""
    tag = entry.get("", "") if isinstance(entry, dict) else ""
    # Version 0.1 had other modules. The module of an encoder of others must be listed by the user.
    found = re.fullmatch(r"!new:simple_spk\.(?:\w+\.)+(\w+)", tag)
    if found is None and name == "encoder":
        found = re.fullmatch(r"!new:((?:\w+\.)+\w+)", tag)
    if found is None:
        raise ValueError(
            f"{settings_file}: {name} is not a class of simple_spk with its arguments: let python "
            "train.py YAML --test_only write RUN/model, and export that"
        )
    arguments = {key: value for key, value in entry.items() if key != ""}
    described = {"class": found[1], "arguments": arguments}
    return build_part(f"{settings_file}, {name}", name, described, is_held)
