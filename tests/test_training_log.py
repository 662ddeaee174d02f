"""What training shows: every number under its step, and a collapse once an epoch, not too early."""

import logging

import pytest
import torch

from simple_spk.loss import SimPLELoss
from simple_spk.proxy_losses import NormFaceLoss
from simple_spk.training_log import TrainingLog

LABELS = torch.tensor([0, 0, 1, 1])
ALIVE = torch.tensor([[3.0, 0.0], [3.0, 0.1], [0.0, 3.0], [0.1, 3.0]])


class Writer:
    """Keeps what a SummaryWriter would write."""

    def __init__(self) -> None:
        self.scalars: dict[str, dict[int, float]] = {}
        self.is_closed = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.setdefault(name, {})[step] = value

    def close(self) -> None:
        self.is_closed = True


def begun(writer: Writer | None = None, collapse_check_steps: int = 0) -> TrainingLog:
    log = TrainingLog(writer and (lambda: writer), collapse_check_steps, has_progress_bar=False)
    log.begin_epoch(1, batches=10, batches_done=0)
    return log


def test_numbers_of_a_step_and_of_an_epoch_stand_under_their_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = Writer()
    log = begun(writer)
    log.count_batch(4)
    log.show_step(7, ALIVE, LABELS, 0.25, SimPLELoss(initial_bias=-2.0), learning_rate=0.1)
    log.close_progress_bar()
    with caplog.at_level(logging.INFO):
        log.show_epoch(1, 8, 0.5, {"eer": 12.5, "min_cllr": 0.75})
    log.close()
    found = writer.scalars
    for name, value in {"loss": 0.25, "bias": -2.0, "learning_rate": 0.1}.items():
        assert found[f"train/{name}"] == {7: pytest.approx(value)}
    assert found["train/crops_per_second"][7] > 0.0
    assert found["train/length"][7] == pytest.approx(3.0, rel=0.01)
    assert found["train/positive_similarity"][7] > found["train/negative_similarity"][7]
    assert found["train/epoch_loss"] == {8: 0.5}
    assert found["valid/eer"] == {8: 12.5} and found["valid/min_cllr"] == {8: 0.75}
    assert writer.is_closed
    assert "epoch 1, step 8: loss 0.5000, eer 12.5" in caplog.text  # no room for more
    assert "min_cllr" not in caplog.text


def test_a_loss_without_a_bias_and_metrics_without_a_headline_are_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = Writer()
    log = begun(writer)
    log.show_step(1, ALIVE, LABELS, 0.5, NormFaceLoss(2, 2), learning_rate=0.1)
    with caplog.at_level(logging.INFO):
        log.show_epoch(1, 2, 0.5, {"map_at_r": 40.0})
    assert "train/bias" not in writer.scalars and "train/loss" in writer.scalars
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
