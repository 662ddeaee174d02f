"""YAML that is nothing but data: of bounded size, without tags, aliases or doubled keys."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

LARGEST_BYTES = 100_000


class _PlainLoader(yaml.SafeLoader):
    """The safe loader, without what makes a short text long or hides one value behind another."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # a few lines of them can stand for billions
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="an alias is not allowed", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value} stands there twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_plain_yaml(path: Path) -> Any:
    """The data in a YAML file; nothing in it is executed, and what is not plain is a ValueError."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing or not a file")
    if path.stat().st_size > LARGEST_BYTES:
        raise ValueError(f"{path} is longer than {LARGEST_BYTES} bytes, which no such file needs")
    try:
        return yaml.load(path.read_bytes().decode("utf-8"), _PlainLoader)
    except OSError:
        raise
    # The safe loader raises nearly anything at values that only look like dates or numbers.
    except Exception as error:
        raise ValueError(f"{path} is not plain YAML: {error}") from error


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


@contextlib.contextmanager
def explain_yaml_error(path: str | Path) -> Iterator[None]:
    """Turn what loading an experiment raises into a ValueError that names the file and the key."""
    try:
        yield
    except KeyError as error:
        raise ValueError(
            f"{path}: the key {error} is missing, or an option on the command line names a key "
            f"that the file does not have (is it misspelled?)"
        ) from error
    except (TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"{path}: {error}") from error
