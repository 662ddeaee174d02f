"""Learning rates as a function of the training step."""

from collections.abc import Sequence


class StepSchedule:
    """A factor on all learning rates: a linear warm-up, then divided at each milestone.

    It keeps no state, so that a resumed run needs only its step number.

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
        warmup = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return warmup / self.divisor ** sum(step >= milestone for milestone in self.milestones)
