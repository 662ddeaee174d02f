"""A run is resumed only with the settings that it began with."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simple_spk.io.safe_yaml import parse_tagged_yaml

SETTINGS = "hyperparams.yaml"  # SpeechBrain's name
# Keys, at any depth, that do not change what is learned; limit is that of the epoch counter.
FREE_TO_CHANGE = {
    "prepare",
    "workers",
    "number_of_epochs",
    "limit",
    "log_interval",
    "collapse_check_steps",
    "ckpt_interval_steps",
    "ckpt_interval_minutes",
}


def require_same_settings(output_folder: Path, settings: str) -> None:
    """Raise if a folder holds checkpoints of a run with settings that would train another model.

    ``settings`` is the text of the YAML file, all its references resolved, as the folder keeps it.
    """
    file = output_folder / SETTINGS
    if not file.is_file() or not any((output_folder / "checkpoints").glob("CKPT*")):
        return
    new = dict(keyed_values(parse_tagged_yaml(settings, "the YAML file of this run")))
    try:
        old = dict(keyed_values(parse_tagged_yaml(file.read_bytes(), file)))
        missing = [key for key in new if key.partition(".")[0] not in old]
        problem = f"lacks {', '.join(missing[:3])}" if missing else None
    except ValueError as error:
        old, problem = {}, str(error)
    if problem is not None:
        raise ValueError(
            f"{file} is empty, cut short or of another experiment ({problem}), so that nobody can "
            f"tell whether its run had these settings: name another --output_folder; or, if it "
            f"had, remove this one file, and the run goes on from its checkpoints"
        )
    changed = [
        f"{key} was {old.get(key, 'absent')} and is {new.get(key, 'absent')}"
        for key in {**old, **new}
        if (key in old) != (key in new) or old[key] != new[key]
    ]
    if changed:
        raise ValueError(
            f"{output_folder} holds a run with other settings ({len(changed)} differ): "
            f"{'; '.join(changed[:3])}: go on with the old values, or name another --output_folder"
        )


def keyed_values(
    settings: Mapping[Any, Any], prefix: str = "", seen: dict[int, str] | None = None
) -> Iterator[tuple[str, Any]]:
    """The values that decide what is learned, by their keys; nested ones as optimizer.momentum.

    The value of a mapping is its tag. One that occurs again, as an alias, is named by its first
    key, so that a change shows once.

    >>> dict(keyed_values({"optimizer": {"": "!name:SGD", "momentum": 0.9}, "workers": 2}))
    {'optimizer': '!name:SGD', 'optimizer.momentum': 0.9}
    """
    seen = {} if seen is None else seen
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if key in FREE_TO_CHANGE or key == "":
            continue
        if not isinstance(value, dict):
            yield name, value
        elif id(value) in seen:
            yield name, f"<{seen[id(value)]}>"
        else:
            seen[id(value)] = name
            yield name, value.get("", {})
            yield from keyed_values(value, f"{name}.", seen)
