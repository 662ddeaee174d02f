"""What changes in the course of training, as a function of the step or epoch alone.

Nothing here keeps state, so that a resumed run needs only its step number.
"""

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
            raise ValueError(f"milestones must rise, but are {list(milestones)}")
        if warmup_steps < 0 or divisor <= 0.0:
            raise ValueError(f"warmup_steps {warmup_steps} or divisor {divisor} makes no sense")
        self.milestones = tuple(milestones)
        self.divisor = divisor
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        """The factor for training step ``step`` (the first is 0)."""
        drops = sum(step >= milestone for milestone in self.milestones)
        return _warmth(step, self.warmup_steps) / self.divisor**drops


class ExponentialSchedule:
    """A factor on all learning rates: a linear warm-up, and an even fall to ``final_factor``.

    The fall begins at step 0, takes ``steps`` steps, and stops there.

    >>> schedule = ExponentialSchedule(steps=100, final_factor=0.01)
    >>> [round(schedule(step), 3) for step in (0, 50, 100, 200)]
    [1.0, 0.1, 0.01, 0.01]
    """

    def __init__(self, steps: int, final_factor: float, warmup_steps: int = 0) -> None:
        if steps < 1 or warmup_steps < 0 or not 0.0 < final_factor <= 1.0:
            raise ValueError(
                f"steps {steps}, final_factor {final_factor}, warmup_steps {warmup_steps}: one of "
                f"them makes no sense (the first is positive, the second in (0, 1])"
            )
        self.steps = steps
        self.final_factor = final_factor
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        """The factor for training step ``step`` (the first is 0)."""
        fall: float = self.final_factor ** min(1.0, step / self.steps)
        return _warmth(step, self.warmup_steps) * fall


def _warmth(step: int, warmup_steps: int) -> float:
    """How far a linear warm-up has come at a step: the first step already learns."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


class StepwiseValue(Generic[Checked]):
    """From an epoch or step to the value that holds then, each value made good by ``checked``.

    A mapping names the epochs or steps at which a value begins to hold, the first of them 0 or 1.
    Anything else holds always. ``name`` is what messages call it.

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
