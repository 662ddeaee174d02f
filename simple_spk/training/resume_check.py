"""A run is resumed only with the settings that it began with."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from simple_spk.io.safe_yaml import parse_tagged_yaml, read_tagged_yaml

SETTINGS = "hyperparams.yaml"  # SpeechBrain's name
# Keys, at any depth, that do not change what is learned; limit is that of the epoch counter.
FREE_TO_CHANGE = {
    "number_of_epochs",
    "limit",
    "workers",
    "log_interval",
    "collapse_check_steps",
    "prepare",
    "ckpt_interval_steps",
    "ckpt_interval_minutes",
}


def require_same_settings(
    output_folder: Path, settings: str, may_change: Collection[str] = ()
) -> list[str]:
    """Raise if a folder holds checkpoints of a run with settings that would train another model.

    ``settings`` is the text of the YAML file, all its references resolved, as the folder keeps it.
    Keys in ``may_change``, and what refers to them, may differ: these changes are returned.
    """
    file = output_folder / SETTINGS
    if not file.is_file() or not any((output_folder / "checkpoints").glob("CKPT*")):
        return []
    new = dict(keyed_values(parse_tagged_yaml(settings, "the YAML file of this run")))
    try:
        old = dict(keyed_values(read_tagged_yaml(file)))
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
    changed = {
        key: (old.get(key, "absent"), new.get(key, "absent"))
        for key in {**old, **new}
        if (key in old) != (key in new) or old[key] != new[key]
    }
    allowed = [changed[key] for key in may_change if key in changed]
    # A key that refers to another one changed from the same value to the same value.
    groups: list[tuple[tuple[Any, Any], list[str]]] = []
    for key, values in changed.items():
        same = next((keys for others, keys in groups if others == values), None)
        if same is None:
            groups.append((values, [key]))
        else:
            same.append(key)
    words = {
        f"{', '.join(keys)} was {before} and is {after}": (before, after) in allowed
        for (before, after), keys in groups
    }
    refused = [text for text, is_allowed in words.items() if not is_allowed]
    if refused:
        raise ValueError(
            f"{output_folder} holds a run with other settings ({len(refused)} differ): "
            f"{'; '.join(refused[:3])}: go on with the old values, name another --output_folder, "
            f"or allow the change (--may_change=KEY)"
        )
    return list(words)


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
