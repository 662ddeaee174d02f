"""Model folders: each must be refused, or be a model whose embeddings are finite."""

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file

from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import CONFIG, WEIGHTS, load_model, save_model
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from tools.fuzzing.mutations import flip_bytes, flip_header, splice, truncate

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, "", "text", -1, 0, 1, 2, 7, 10**9, 10**30, 0.5, -1e-9, 1e38, 1e308),
    *(float("nan"), float("inf"), [], [1], [[1]], [10**6] * 3, {}, {"class": "ResNet"}),
)
ODD_TEXTS = (
    "!!python/object/apply:os.system ['exit 1']",
    "2020-99-99",
    "!!int ''",
    "!!bool x",
    "!!timestamp x",
    "!!binary '?'",
    "0x" + "f" * 30_000,
    "[" * 20_000,
    "&a [*a]",
    "&a [1, 2]\nb: *a",
    "{? [a, b] : c}",
    "<<: {a: 1}",
    "1:2:3:4",
    "\x00",
)


def write_originals(folder: Path) -> None:
    """A small model."""
    torch.manual_seed(0)
    encoder = ResNet(24, width=4, blocks=(1, 1), stem_stride=2, embedding_dim=8)
    save_model(folder / "model", trained_model(Fbank(num_mels=24), encoder, SimPLELoss()))


def change_bytes(folder: Path, dice: random.Random) -> None:
    """Damage the bytes of a file."""
    path = folder / dice.choice((CONFIG, WEIGHTS))
    damage = dice.choice((truncate, flip_bytes, flip_header, splice))
    path.write_bytes(damage(path.read_bytes(), dice))


def change_value(folder: Path, dice: random.Random) -> None:
    """Replace, remove or add a value of the config, at any depth."""
    config = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    place = config
    while True:
        key = dice.choice(list(place))
        if not (isinstance(place[key], dict) and place[key] and dice.random() < 0.8):
            break
        place = place[key]
    action = dice.choice(("replace", "replace", "replace", "remove", "add"))
    if action == "remove":
        del place[key]
    else:
        place[key if action == "replace" else "odd"] = dice.choice(ODD_VALUES)
    (folder / CONFIG).write_text(yaml.safe_dump(config), encoding="utf-8")


def change_line(folder: Path, dice: random.Random) -> None:
    """Put an odd text behind a key of the config, or double a line."""
    lines = (folder / CONFIG).read_text(encoding="utf-8").splitlines()
    number = dice.randrange(len(lines))
    key = lines[number].partition(":")[0]
    lines.insert(number, dice.choice((f"{key}: {dice.choice(ODD_TEXTS)}", lines[number])))
    if dice.random() < 0.7:
        del lines[number + 1]
    (folder / CONFIG).write_text("\n".join(lines) + "\n", encoding="utf-8")


def change_tensor(folder: Path, dice: random.Random) -> None:
    """Give a weight odd values, another shape, type or name, or leave it out."""
    weights = load_file(folder / WEIGHTS)
    name = dice.choice(list(weights))
    tensor = weights.pop(name)
    values = (torch.nan, torch.inf, -1.0, 0.0, 1e4, 3e38, -3e38, 1e-38)
    choices: tuple[Callable[[], object], ...] = (
        lambda: weights.update({name: torch.full_like(tensor, 1) * dice.choice(values)}),
        lambda: weights.update({name: tensor[None].clone()}),
        lambda: weights.update({name: tensor.half()}),
        lambda: weights.update({name: tensor.double()}),
        lambda: weights.update({name: tensor.to(torch.int32)}),
        lambda: weights.update({f"{name}x": tensor}),
        lambda: None,
    )
    dice.choice((choices[0], *choices))()
    save_file(weights, folder / WEIGHTS)


def change_file(folder: Path, dice: random.Random) -> None:
    """Replace a file by none, a folder, a link to nowhere or to the other, a pickle, nothing."""
    names = [CONFIG, WEIGHTS]
    dice.shuffle(names)
    path, other = folder / names[0], folder / names[1]
    path.unlink()
    choices: tuple[Callable[[], object], ...] = (
        lambda: None,
        path.mkdir,
        lambda: path.symlink_to(folder / "nowhere"),
        lambda: path.symlink_to(other),
        lambda: path.symlink_to("/dev/zero"),
        lambda: torch.save({"weights": torch.zeros(3)}, path),
        path.touch,
        lambda: path.write_bytes(dice.randbytes(500)),
        lambda: path.write_text("ä" * 200, encoding="latin-1"),
        lambda: path.write_text("a: " * 100_000),
    )
    dice.choice(choices)()


DAMAGES = (change_bytes, change_bytes, change_value, change_line, change_tensor, change_file)


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A copy of the model with a damage or two."""
    shutil.copytree(originals / "model", place)
    damages = dice.sample(DAMAGES, k=1 if dice.random() < 0.8 else 2)
    damages[0](place, dice)
    # A second one may find nothing left to damage.
    if len(damages) == 2 and all((place / name).is_file() for name in (CONFIG, WEIGHTS)):
        with contextlib.suppress(Exception):
            damages[1](place, dice)
    return place


@torch.no_grad()
def read(path: Path) -> None:
    """Load a model, and embed with it."""
    model = load_model(path)
    noise = torch.randn(2, model.front_end.sample_rate) * 0.1
    assert model.encoder(*model.front_end(noise)).isfinite().all()
