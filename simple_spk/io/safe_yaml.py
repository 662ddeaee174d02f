"""YAML files read as data: nothing that a file names is imported, built or called."""

import itertools
import re
from pathlib import Path
from typing import Any

import yaml

from simple_spk.io.input_file import read_file

LARGEST_BYTES = 500_000  # twice what a model needs whose calibration has a background
DEEPEST = 50
_BRACKET = re.compile(r"[][{}]")


class _PlainLoader(yaml.SafeLoader):
    """The safe loader without tags, aliases (a few lines can expand to billions) and doubled keys
    (one value hides behind another)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="an alias is not allowed", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key {key.value} occurs twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _TaggedLoader(yaml.SafeLoader):
    """The safe loader, which keeps the tags of an experiment as text instead of obeying them."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # Merged aliases of merged aliases expand exponentially.
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.MarkedYAMLError(problem="<< is not read", problem_mark=key.start_mark)


def _with_tag(loader: _TaggedLoader, name: str, node: yaml.Node) -> Any:
    """A tagged value with its tag: under the empty key, as the first item, or before the text."""
    tag = f"!{name}"
    if isinstance(node, yaml.MappingNode):
        return {**loader.construct_mapping(node, deep=True), "": tag}
    if isinstance(node, yaml.SequenceNode):
        return [tag, *loader.construct_sequence(node, deep=True)]
    assert isinstance(node, yaml.ScalarNode)  # the only other kind
    text = str(loader.construct_scalar(node))
    return text if name == "ref" else f"{tag} {text}".rstrip()  # <key> says that it is a reference


_TaggedLoader.add_multi_constructor("!", _with_tag)


def read_plain_yaml(path: Path) -> Any:
    """The data in a YAML file without tags, aliases or doubled keys, of bounded size."""
    return _parse(_read(path), _PlainLoader, path)


def read_tagged_yaml(path: Path) -> dict[Any, Any]:
    """The settings in the YAML file of an experiment, as ``parse_tagged_yaml`` gives them."""
    return parse_tagged_yaml(_read(path), path)


def parse_tagged_yaml(text: str | bytes, source: str | Path) -> dict[Any, Any]:
    """The settings in the YAML text of an experiment; messages call it ``source``.

    >>> parse_tagged_yaml("loss: !new:Loss {scale: 2.0}\\nsize: !ref <width>", "an example")
    {'loss': {'scale': 2.0, '': '!new:Loss'}, 'size': '<width>'}
    """
    content = _parse(text, _TaggedLoader, source)
    if not isinstance(content, dict):
        raise ValueError(f"{source} holds no settings: expected 'key: value' lines")
    return content


def _read(path: Path) -> bytes:
    return read_file(path, "YAML file", LARGEST_BYTES)


def _parse(text: str | bytes, loader: type[yaml.SafeLoader], source: str | Path) -> Any:
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        depth = itertools.accumulate(1 if mark in "[{" else -1 for mark in _BRACKET.findall(text))
        if max(depth, default=0) > DEEPEST:  # which takes the loader long
            raise ValueError(f"its brackets are nested more than {DEEPEST} times")
        return yaml.load(text, loader)
    # The safe loader raises nearly anything at values that only look like dates or numbers.
    except Exception as error:
        reason = str(error)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            # Without the lines around it, which may be of any file.
            reason = f"{error.problem} (line {error.problem_mark.line + 1})"
        raise ValueError(f"{source} cannot be read as YAML data: {reason}") from error
