"""Encoders that are not part of simple_spk, in model folders and runs.

A folder names a class, but only its user says which modules may be imported, in the environment
variable SIMPLE_SPK_ENCODERS: names of modules, separated by commas.
"""

import importlib
import os
import re
import sys
from typing import Any

from torch import nn

LISTED = "SIMPLE_SPK_ENCODERS"
_DOTTED = re.compile(
    r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\.(?P<name>[A-Za-z_]\w*)", re.ASCII
)


def own_encoder(where: str, class_name: Any) -> type[nn.Module] | None:
    """The class of a name like ``module.Class``, if its module is listed; None for other names."""
    found = _DOTTED.fullmatch(class_name) if isinstance(class_name, str) else None
    if found is None:
        return None
    module, name = found["module"], found["name"]
    if module not in (one.strip() for one in os.environ.get(LISTED, "").split(",")):
        raise ValueError(
            f"{where}: {class_name} is not an encoder of simple_spk. If you trust the module "
            f"{module}, allow its import: export {LISTED}={module}"
        )
    try:
        cls = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(
            f"{where}: {module} of {LISTED} cannot be imported ({error}): install it, or add its "
            "folder to PYTHONPATH"
        ) from error
    if not isinstance(cls, type) or not issubclass(cls, nn.Module):
        raise ValueError(f"{where}: {class_name} is not a class of modules: correct its name")
    return cls


def own_class_name(encoder: Any) -> str:
    """The name by which ``own_encoder`` finds the class of an encoder; raises if it cannot."""
    cls = type(encoder)
    name = f"{cls.__module__}.{cls.__qualname__}"
    for is_so, what in (
        (hasattr(encoder, "arguments"), "decorate it with saved_arguments.remember_arguments"),
        (hasattr(encoder, "num_mels"), "give it an attribute num_mels"),
        (cls.__module__ != "__main__", "move it from the script to a module"),
        (
            getattr(sys.modules.get(cls.__module__), cls.__qualname__, 0) is cls,
            "define it globally",
        ),
    ):
        if not is_so:
            raise ValueError(f"encoder: a model folder cannot describe a {name}: {what}")
    return name
