"""Mistakes in an experiment's YAML file or its overrides, said in words."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def explain_yaml_error(path: str | Path) -> Iterator[None]:
    """Turn what loading an experiment raises into a ValueError that names the file and the key."""
    try:
        yield
    except KeyError as error:
        raise ValueError(
            f"{path}: the key {error} is missing, or an option on the command line names a key "
            f"that the file does not have (is it misspelt?)"
        ) from error
    except (TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"{path}: {error}") from error
