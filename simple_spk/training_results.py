"""The metrics of a training's test lists: as plain numbers, in short, in words."""

from collections.abc import Mapping
from typing import Any


def plain_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among metrics; those in a mapping, one level deep, as name_key.

    >>> plain_numbers({"eer": 1.5, "min_dcf": {"0.01": 0.2}, "list": "Vox1-O"})
    {'eer': 1.5, 'min_dcf_0.01': 0.2}
    """
    numbers = {}
    for name, value in metrics.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, number in inner:
            if isinstance(number, int | float):
                numbers[f"{name}_{key}" if key else name] = number
    return numbers


def headline(results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The figures of the first test list that people quote: min_dcf is that of prior 0.01."""
    first: dict[str, Any] = next(iter(results.values()), {})
    return first | ({"min_dcf": first["min_dcf"]["0.01"]} if "min_dcf" in first else {})


def describe(result: Mapping[str, Any]) -> str:
    """The metrics of one test in words."""
    if "eer" not in result:
        numbers = plain_numbers(result).items()
        return ", ".join(f"{name.replace('_', ' ')} {value:,.6g}" for name, value in numbers)
    accuracy = f"accuracy {result['mean_accuracy']:.2f} %, " if "mean_accuracy" in result else ""
    return accuracy + (
        f"EER {result['eer']:.2f} %, minDCF(0.01) {result['min_dcf']['0.01']:.4f} "
        f"({result['targets']} target and {result['trials'] - result['targets']} non-target trials)"
    )
