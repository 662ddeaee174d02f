"""Experiments' YAML files read as data: what !new:, !ref and the like name is not built or run."""

from pathlib import Path
from typing import Any

import yaml


class _TaggedLoader(yaml.SafeLoader):
    """Reads tagged values as plain ones."""


def _untagged(loader: _TaggedLoader, tag: str, node: yaml.Node) -> Any:
    """The plain value of a tagged node; a mapping remembers its tag under the empty key."""
    if isinstance(node, yaml.MappingNode):
        return {**loader.construct_mapping(node, deep=True), "": f"!{tag}"}
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)  # the only other kind there is
    return loader.construct_scalar(node)


_TaggedLoader.add_multi_constructor("!", _untagged)


def read_tagged_yaml(path: Path) -> dict[Any, Any]:
    """The settings in a YAML file; a mapping with a tag has it under the empty key."""
    if not path.is_file():
        raise FileNotFoundError(f"no such YAML file: {path} (see the folder hparams/)")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_TaggedLoader)  # a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no settings: expected 'key: value' lines")
    return content
