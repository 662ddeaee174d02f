"""Objects that remember how they were made, so that a model can be written down as plain data."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def remember_arguments(cls: Class) -> Class:
    """Class decorator: instances hold their constructor's arguments as plain data in .arguments.

    >>> @remember_arguments
    ... class Point:
    ...     def __init__(self, x, y=2): pass
    >>> Point(1).arguments
    {'x': 1, 'y': 2}
    """
    changed: Any = cls
    original = changed.__init__
    signature = inspect.signature(original)
    names = [
        name
        for name, parameter in list(signature.parameters.items())[1:]  # without self
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        original(self, *args, **kwargs)
        self.arguments = {name: _plain(bound.arguments[name]) for name in names}

    changed.__init__ = init
    return cls


def _plain(value: Any) -> Any:
    """A value as YAML-safe data, free of the types that a YAML loader leaves in it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    for kind in (bool, int, float, str):  # bool before int: True is an int
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise TypeError(f"{value!r} is not plain data and cannot be written to a model folder")
