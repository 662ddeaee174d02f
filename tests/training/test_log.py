"""What training shows: every number under its step, and a collapse once an epoch, not too early."""

import contextlib
import logging
from functools import partial
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from simple_spk.losses.margin import NormFaceLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.training.log import STEPS_OF_COLLAPSE, TrainingLog

LABELS = torch.tensor([0, 0, 1, 1])
ALIVE = torch.tensor([[3.0, 0.0], [3.0, 0.1], [0.0, 3.0], [0.1, 3.0]])


def begun(folder: Path | None = None, collapse_check_steps: int = 0) -> TrainingLog:
    tensorboard = None if folder is None else partial(SummaryWriter, folder)
    log = TrainingLog(tensorboard, collapse_check_steps, has_progress_bar=False, keep_going=True)
    log.begin_epoch(1, batches=10, batches_done=0)
    return log


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard finds in a folder: by name, the value at each step."""
    found = EventAccumulator(str(folder)).Reload()
    names = found.Tags()["scalars"]
    return {name: {one.step: one.value for one in found.Scalars(name)} for name in names}


def test_numbers_of_a_step_and_of_an_epoch_stand_under_their_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = begun(tmp_path)
    log.count_batch(4)
    log.show_step(7, ALIVE, LABELS, 0.25, SimPLELoss(initial_bias=-2.0), learning_rate=0.1)
    log.close_progress_bar()
    with caplog.at_level(logging.INFO):
        log.show_epoch(1, 8, 0.5, {"eer": 12.5, "min_cllr": 0.75})
    log.close()
    found = scalars(tmp_path)
    for name, value in {"loss": 0.25, "bias": -2.0, "learning_rate": 0.1}.items():
        assert found[f"train/{name}"] == {7: pytest.approx(value)}
    assert found["train/crops_per_second"][7] > 0.0
    assert found["train/length"][7] == pytest.approx(3.0, rel=0.01)
    assert found["train/positive_similarity"][7] > found["train/negative_similarity"][7]
    assert found["train/epoch_loss"] == {8: 0.5}
    assert found["valid/eer"] == {8: 12.5} and found["valid/min_cllr"] == {8: 0.75}
    assert "epoch 1, step 8: loss 0.5000, eer 12.5" in caplog.text  # no room for more
    assert "min_cllr" not in caplog.text


def test_a_loss_without_a_bias_and_metrics_without_a_headline_are_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = begun(tmp_path)
    log.show_step(1, ALIVE, LABELS, 0.5, NormFaceLoss(2, 2), learning_rate=0.1)
    with caplog.at_level(logging.INFO):
        log.show_epoch(1, 2, 0.5, {"map_at_r": 40.0})
    log.close()
    assert "train/bias" not in (found := scalars(tmp_path)) and "train/loss" in found
    assert "map_at_r 40" in caplog.text


def test_a_collapse_is_warned_of_once_an_epoch_and_not_too_early(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = begun(collapse_check_steps=3)
    loss = SimPLELoss()

    def warnings_of(*steps: int) -> int:
        caplog.clear()
        for step in steps:
            log.show_step(step, 0.01 * ALIVE, LABELS, 1.0, loss, learning_rate=0.1)
        return sum("collapsing" in record.message for record in caplog.records)

    assert warnings_of(1, 2) == 0
    assert warnings_of(3, 4, 5) == 1
    log.begin_epoch(2, batches=10, batches_done=0)
    assert warnings_of(6, 7) == 1
    log.begin_epoch(3, batches=10, batches_done=0)
    caplog.clear()
    log.show_step(8, ALIVE, LABELS, 1.0, loss, learning_rate=0.1)
    assert not caplog.records


def test_a_lasting_collapse_ends_the_training_unless_told_otherwise() -> None:
    loss = SimPLELoss()
    for keep_going in (False, True):
        log = TrainingLog(None, 3, has_progress_bar=False, keep_going=keep_going)
        log.begin_epoch(1, batches=100, batches_done=0)
        for step in range(3 + STEPS_OF_COLLAPSE - 1):  # one of them is healthy
            log.show_step(step, (0.01 if step != 4 else 1.0) * ALIVE, LABELS, 1.0, loss, 0.1)
        for step in range(20, 20 + STEPS_OF_COLLAPSE - 4):
            log.show_step(step, 0.01 * ALIVE, LABELS, 1.0, loss, 0.1)
        ends = contextlib.nullcontext() if keep_going else pytest.raises(FloatingPointError)
        with ends as raised:
            for step in range(30, 33):
                log.show_step(step, 0.01 * ALIVE, LABELS, 1.0, loss, 0.1)
        assert keep_going or "--keep_going" in str(raised.value)
