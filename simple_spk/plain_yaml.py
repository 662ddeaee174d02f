"""YAML that is nothing but data: of bounded size, without tags, aliases or doubled keys."""

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
