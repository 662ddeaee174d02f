"""Constructor arguments kept as plain data, so that a model can be saved and built again."""

import functools
import inspect
import json
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Class = TypeVar("Class", bound=type)


def remember_arguments(cls: Class) -> Class:
    """Class decorator: instances keep their constructor's arguments as plain data in .arguments.

    >>> @remember_arguments
    ... class Point:
    ...     def __init__(self, x, y=2): pass
    >>> Point(1).arguments
    {'x': 1, 'y': 2}
    """
    changed: Any = cls
    original = changed.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        original(self, *args, **kwargs)
        del bound.arguments["self"]
        self.arguments = {name: _plain(value) for name, value in bound.arguments.items()}

    changed.__init__ = init
    return cls


def _plain(value: Any) -> Any:
    """A value as plain data, without the subclasses of numbers and lists of a YAML loader."""
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        raise TypeError(f"{value!r} cannot be written to a model folder: {error}") from error


def wrong_argument(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str | None:
    """The first argument that is not plain data of the type that a function declares, or None.

    >>> def make(width: int, name: str | None = None): pass
    >>> wrong_argument(make, {"width": 3}), wrong_argument(make, {"width": True})
    (None, 'width')
    """
    hints = get_type_hints(function)
    for name, value in arguments.items():
        if name not in hints or not _is_of_type(value, hints[name]):
            return name
    return None


def _is_of_type(value: Any, hint: Any) -> bool:
    """Whether plain data is of a declared type; booleans and infinities are not numbers."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is_of_type(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin in (list, tuple):  # of one type, as in tuple[int, ...]
        return isinstance(value, list | tuple) and all(_is_of_type(v, inner[0]) for v in value)
    if hint is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    return type(value) is (origin or hint)


# Model folders of format 2 (version 0.1) have these spellings.
NAMES_BEFORE_FORMAT_3 = {
    "mean_normalization": "mean_normalisation",
    "centered": "centred",
    "centering": "centring",
}

# Arguments that version 0.1 did not have, with the values that it implied.
NEWER_ARGUMENTS = {"full_scale": 32768.0, "pooling": "statistics", "highest_hertz": None}


def renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Arguments or a state dict with other names, also in nested mappings and dotted names.

    >>> renamed({"output": {"centered": True}, "output.centering.mean": 0}, NAMES_BEFORE_FORMAT_3)
    {'output': {'centred': True}, 'output.centring.mean': 0}
    """
    return {
        ".".join(names.get(part, part) for part in str(name).split(".")): renamed(value, names)
        if isinstance(value, Mapping)
        else value
        for name, value in values.items()
    }
