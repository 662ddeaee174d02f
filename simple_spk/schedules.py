"""Schedules: stateless functions of the step or epoch, so that resuming needs only its number."""

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

Checked = TypeVar("Checked")


class StepSchedule:
    """A factor on all learning rates: a linear warm-up, then divided at each milestone.

    >>> schedule = StepSchedule(milestones=[30, 50], divisor=10.0, warmup_steps=4)
    >>> [schedule(step) for step in (0, 3, 4, 29, 30, 50)]
    [0.25, 1.0, 1.0, 1.0, 0.1, 0.01]
    """

    def __init__(
        self, milestones: Sequence[int] = (), divisor: float = 10.0, warmup_steps: int = 0
    ) -> None:
        if list(milestones) != sorted(set(milestones)):
            raise ValueError(f"milestones must increase, but are {list(milestones)}")
        if warmup_steps < 0 or divisor <= 0.0:
            raise ValueError(
                f"expected warmup_steps >= 0 and divisor > 0, not {warmup_steps} and {divisor}"
            )
        self.milestones = tuple(milestones)
        self.divisor = divisor
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        """The factor for training step ``step`` (the first is 0)."""
        drops = sum(step >= milestone for milestone in self.milestones)
        return _warmup(step, self.warmup_steps) / self.divisor**drops


class ExponentialSchedule:
    """A factor on all learning rates: a linear warm-up times an exponential decay.

    The decay reaches ``final_factor`` after ``steps`` steps, warm-up included, and stops there.

    >>> schedule = ExponentialSchedule(steps=100, final_factor=0.01)
    >>> [round(schedule(step), 3) for step in (0, 50, 100, 200)]
    [1.0, 0.1, 0.01, 0.01]
    """

    def __init__(self, steps: int, final_factor: float, warmup_steps: int = 0) -> None:
        if steps < 1 or warmup_steps < 0 or not 0.0 < final_factor <= 1.0:
            raise ValueError(
                f"steps {steps}, final_factor {final_factor}, warmup_steps {warmup_steps}: "
                f"expected at least 1, a number in (0, 1] and at least 0"
            )
        self.steps = steps
        self.final_factor = final_factor
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        """The factor for training step ``step`` (the first is 0)."""
        decay: float = self.final_factor ** min(1.0, step / self.steps)
        return _warmup(step, self.warmup_steps) * decay


def _warmup(step: int, warmup_steps: int) -> float:
    """The factor of a linear warm-up; that of the first step is not zero."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


class StepwiseValue(Generic[Checked]):
    """The value of an epoch or step, each converted or checked by ``checked``.

    A mapping has the epochs or steps at which a value begins to hold, the first of them 0 or 1; any
    other value holds always. ``name`` is for messages.

    >>> at = StepwiseValue("rate", {0: 1, 10: 2}, float)
    >>> at(0), at(9), at(10), at(99)
    (1.0, 1.0, 2.0, 2.0)
    """

    def __init__(
        self, name: str, value: Any | Mapping[int, Any], checked: Callable[[Any], Checked]
    ) -> None:
        given = value if isinstance(value, Mapping) else {0: value}
        if not given or min(given) not in (0, 1):
            raise ValueError(f"{name} must be a value, or a mapping that begins at 0 or 1: {value}")
        self.starts = sorted(map(int, given))
        self.values = [checked(given[start]) for start in sorted(given)]

    def __call__(self, position: int) -> Checked:
        """The value at an epoch or step."""
        return self.values[max(0, bisect.bisect_right(self.starts, position) - 1)]
