"""Laws of learning rate schedules, against one that remembers."""

import pytest

from simple_spk.schedules import StepSchedule


@pytest.mark.parametrize("milestones", [[], [7], [4, 7, 20]])
@pytest.mark.parametrize("warmup_steps", [0, 1, 6])
def test_warms_up_then_drops_at_each_milestone(milestones: list[int], warmup_steps: int) -> None:
    """The factor rises by equal parts to one, and every milestone divides all that follows."""
    schedule = StepSchedule(milestones, divisor=4.0, warmup_steps=warmup_steps)
    warmth, division = 0.0, 1.0
    for step in range(30):
        warmth = min(1.0, warmth + 1.0 / warmup_steps) if warmup_steps else 1.0
        division *= 4.0 if step in milestones else 1.0
        assert schedule(step) == pytest.approx(warmth / division)


def test_no_state() -> None:
    schedule = StepSchedule([4, 7], warmup_steps=3)
    forwards = [schedule(step) for step in range(10)]
    assert [schedule(step) for step in reversed(range(10))] == forwards[::-1]


def test_the_first_step_already_learns() -> None:
    assert StepSchedule(warmup_steps=1000)(0) > 0.0


def test_unsorted_milestones_raise() -> None:
    with pytest.raises(ValueError, match=r"\[50, 30\]"):
        StepSchedule([50, 30])
