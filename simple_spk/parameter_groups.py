"""Which parameters an optimizer treats unlike the others."""

import difflib
from collections.abc import Mapping
from typing import Any

from torch import nn


def parameter_groups(
    modules: nn.Module, options_of_prefix: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Optimizer groups: one for each prefix of parameter names, and one for all the others."""
    groups: dict[str, list[nn.Parameter]] = {prefix: [] for prefix in ("", *options_of_prefix)}
    for name, parameter in modules.named_parameters():
        if parameter.requires_grad:
            prefix = next((p for p in options_of_prefix if name.startswith(p)), "")
            groups[prefix].append(parameter)
    names = [name for name, parameter in modules.named_parameters() if parameter.requires_grad]
    for prefix in options_of_prefix:
        if not groups[prefix]:
            similar = difflib.get_close_matches(prefix, names, n=3, cutoff=0.0)
            raise ValueError(
                f"parameter_groups: no parameter's name begins with {prefix}; similar names are "
                f"{', '.join(similar)}"
            )
    return [
        {"params": parameters, **options_of_prefix.get(prefix, {})}
        for prefix, parameters in groups.items()
        if parameters
    ]
