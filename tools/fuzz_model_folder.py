"""Damage a model folder in many ways, load each, and count the answers.

    python tools/fuzz_model_folder.py RUN/model --folders 500 --seed 0

Every damaged folder must be a clear ValueError or OSError, or a model whose embeddings are finite.
Anything else (another exception, a NaN, seconds of computing) is shown, and the exit code is 1.
"""

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file

from simple_spk.inference.model_folder import CONFIG, WEIGHTS, load_model

SECONDS_ALLOWED = 5.0
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


def truncate(folder: Path, dice: random.Random) -> None:
    """Cut a file short."""
    path = folder / dice.choice((CONFIG, WEIGHTS))
    content = path.read_bytes()
    path.write_bytes(content[: dice.randrange(len(content))])


def flip_bytes(folder: Path, dice: random.Random) -> None:
    """Change some bytes anywhere, or in the header of the weights."""
    path = folder / dice.choice((CONFIG, WEIGHTS))
    content = bytearray(path.read_bytes())
    reach = dice.choice((len(content), min(300, len(content))))
    for _ in range(dice.choice((1, 3, 30))):
        content[dice.randrange(reach)] = dice.randrange(256)
    path.write_bytes(content)


def splice(folder: Path, dice: random.Random) -> None:
    """Repeat, remove or insert a stretch of a file."""
    path = folder / dice.choice((CONFIG, WEIGHTS))
    content = path.read_bytes()
    start, end = sorted(dice.randrange(len(content)) for _ in range(2))
    middle = dice.choice((b"", content[start:end] * 2, dice.randbytes(40)))
    path.write_bytes(content[:start] + middle + content[end:])


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


DAMAGES = (truncate, flip_bytes, splice, change_value, change_line, change_tensor, change_file)


def damaged_copy(model: Path, folder: Path, dice: random.Random) -> str:
    """Copy a model folder with a damage or two, and say which."""
    shutil.copytree(model, folder)
    damages = dice.sample(DAMAGES, k=1 if dice.random() < 0.8 else 2)
    damages[0](folder, dice)
    # A second one may find nothing left to damage.
    if len(damages) == 2 and all((folder / name).is_file() for name in (CONFIG, WEIGHTS)):
        with contextlib.suppress(Exception):
            damages[1](folder, dice)
    return " and ".join(damage.__name__ for damage in damages)


@torch.no_grad()
def outcome(folder: Path) -> str:
    """What loading a folder came to: 'refused', 'valid', or what is wrong with that."""
    started = time.process_time()
    try:
        model = load_model(folder)
    except (ValueError, OSError) as error:
        result = "refused" if str(folder) in str(error) else f"does not name the folder: {error}"
    except Exception:
        return traceback.format_exc()
    else:
        noise = torch.randn(2, model.front_end.sample_rate) * 0.1
        embeddings = model.encoder(*model.front_end(noise))
        result = "valid" if embeddings.isfinite().all() else "embeddings that are not numbers"
    seconds = time.process_time() - started
    return result if seconds < SECONDS_ALLOWED else f"took {seconds:.1f} s ({result})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a sound model folder; it is copied")
    parser.add_argument("--folders", type=int, default=500, help="damaged ones (default 500)")
    parser.add_argument("--seed", type=int, default=0, help="(default 0)")
    options = parser.parse_args()
    load_model(options.model)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.folders):
            folder = Path(scratch, "model")
            damage = damaged_copy(options.model, folder, random.Random(f"{options.seed} {number}"))
            found = outcome(folder)
            if found not in ("refused", "valid"):
                print(f"folder {number}, {damage}: {found}")
                found = "FAILED"
            counts[found] += 1
            shutil.rmtree(folder)
    print(", ".join(f"{count} {found}" for found, count in counts.most_common()))
    return int(counts["FAILED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
