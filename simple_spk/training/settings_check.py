"""Mistakes in the YAML file of an experiment and in its options, explained."""

import contextlib
import difflib
import pydoc
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML, YAMLError

from simple_spk.io.safe_yaml import parse_tagged_yaml

_REFERENCE = re.compile(r"<(\w+)")
_KINDS = {"int": "a number", "float": "a number", "bool": "True or False"}


def split_options(
    arguments: Sequence[str], options: Collection[str]
) -> tuple[list[str], dict[str, Any]]:
    """The arguments that are run ``options`` or no options, and the settings that others override.

    argparse would take --optimizer for an abbreviation of --optimizer_step_limit.

    >>> split_options(["x.yaml", "--debug", "--width=8", "--crop_seconds", "[1, 2]"], ["debug"])
    (['x.yaml', '--debug'], {'width': 8, 'crop_seconds': [1, 2]})
    """
    rest: list[str] = []
    texts: dict[str, str] = {}
    seen: set[str] = set()
    name = None  # of an override whose value follows
    for word in arguments:
        if not word.startswith("--"):
            if name is None:
                rest.append(word)
            else:
                texts[name] += f" {word}"
            continue
        key, is_given, value = word[2:].partition("=")
        if key in seen:
            raise ValueError(f"--{key} is given twice: give it once")
        seen.add(key)
        name = None
        if key in options or key == "help":
            rest.append(word)
            continue
        texts[key] = value
        name = None if is_given else key
    return rest, {key: _value(key, text) for key, text in texts.items()}


def _value(key: str, text: str) -> Any:
    """The value of an option, which is YAML."""
    try:
        return YAML().load(f"value: {text}")["value"]
    except (YAMLError, TypeError) as error:
        reason = getattr(error, "problem", None) or "it is not YAML"
        raise ValueError(f"--{key}={text.strip()} cannot be read: {reason}") from error


def check_settings(
    path: Path, overrides: Mapping[str, Any], used: Collection[str], options: Collection[str]
) -> None:
    """Raise if a key of a YAML file has no effect, or an override does not fit the file.

    Keys have an effect if they are ``used`` by the program, if they are run ``options``, or if
    another key refers to them: by !ref, or by an alias of their value. Keys that begin with two
    underscores only act.
    """
    text = path.read_bytes()
    keys = list(parse_tagged_yaml(text, path))  # raises if it is not YAML in UTF-8
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "it has keys"
    value_of = {key.value: value for key, value in root.value}
    nodes = list(_nodes(root))
    count_of_node = Counter(map(id, nodes))
    referred = {name for node in nodes for name in _references(node)}
    for key in map(str, keys):
        aliased = count_of_node[id(value_of.get(key))] > 1
        if not (key in referred or key in used or key in options or aliased or key[:2] == "__"):
            similar = _similar(key, {*referred, *used, *options} - {*keys} or {*used, *options})
            raise ValueError(
                f"{path}: the key {key} has no effect, as nothing refers to it{similar}"
            )
    for key, value in overrides.items():
        if key not in value_of:
            outer, _, inner = key.partition(".")
            cure = _similar(key, {*keys, *options})
            if inner and isinstance(value_of.get(outer), yaml.MappingNode):
                cure = f": name nested keys in a mapping, --{outer}='{{{inner}: {value}}}'"
            raise ValueError(f"--{key}: {path} has no such key{cure}")
        kind = value_of[key].tag.removeprefix("tag:yaml.org,2002:")
        found = "bool" if isinstance(value, bool) else "text" if type(value) is str else None
        if kind in _KINDS and found not in (None, kind):
            raise ValueError(
                f"--{key}={value}: expected {_KINDS[kind]}, such as {value_of[key].value} in {path}"
            )


def _nodes(node: yaml.Node) -> Iterator[yaml.Node]:
    """All nodes of a YAML document; those with aliases several times, but not what is in them."""
    stack, seen = [node], set()
    while stack:
        one = stack.pop()
        yield one
        if id(one) in seen or isinstance(one, yaml.ScalarNode):
            continue
        seen.add(id(one))
        for child in one.value:
            stack += child if isinstance(child, tuple) else [child]


def _references(node: yaml.Node) -> list[str]:
    """The keys that a value refers to, as in !ref <data_folder>/train.csv."""
    is_reference = isinstance(node, yaml.ScalarNode) and node.tag.startswith("!")
    return _REFERENCE.findall(node.value) if is_reference else []


def _similar(key: str, names: Collection[str]) -> str:
    """The end of a message: the name that was perhaps meant."""
    found = difflib.get_close_matches(key, sorted(map(str, names)), n=1, cutoff=0.7)
    return f": did you mean {found[0]}?" if found else ": correct or remove it"


@contextlib.contextmanager
def explain_yaml_error(path: str | Path) -> Iterator[None]:
    """Turn what building an experiment raises into a ValueError that names the file and the key."""
    try:
        yield
    except KeyError as error:
        raise ValueError(
            f"{path}: the key {error} is missing, or an option on the command line names a key "
            f"that the file does not have (is it misspelled?)"
        ) from error
    except TypeError as error:
        raise ValueError(f"{path}: {': '.join(map(str, error.args))}") from error
    except (AttributeError, pydoc.ErrorDuringImport) as error:
        raise ValueError(f"{path}: {error}") from error
    except ImportError as error:
        raise ValueError(
            f"{path}: {error}: correct the name, or install its package; a module of your own goes "
            f"beside train.py or into a folder of PYTHONPATH"
        ) from error
