"""The training log: progress bar, TensorBoard, log lines, and a warning of collapse."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from simple_spk.distributed import rank
from simple_spk.models.similarity import GeneralizedInnerProduct, Similarity

logger = logging.getLogger(__name__)
STEPS_OF_COLLAPSE = 5  # logged ones; one may be chance
HEADLINES = ("mean_accuracy", "eer", "min_dcf_0.01", "min_dcf_0.05")  # metrics in a log line


class BatchGeometry(NamedTuple):
    """Means over the pairs of a batch, NaN if there are none, and the mean embedding length."""

    positive_similarity: float
    negative_similarity: float
    positive_cosine: float
    negative_cosine: float
    length: float


@torch.no_grad()
def batch_geometry(embeddings: Tensor, labels: Tensor, similarity: Similarity) -> BatchGeometry:
    """The geometry of embeddings (n, dim) with labels (n,); none is paired with itself."""
    embeddings = embeddings.float()
    same = labels[:, None] == labels[None, :]
    positive, negative = same & ~torch.eye(len(labels), dtype=torch.bool, device=same.device), ~same
    directions = functional.normalize(embeddings, dim=-1)
    means = [
        (values * pairs).sum() / pairs.sum()
        for values in (similarity(embeddings, embeddings), directions @ directions.T)
        for pairs in (positive, negative)
    ]
    length = torch.linalg.vector_norm(embeddings, dim=-1).mean()
    return BatchGeometry(*torch.stack([*means, length]).tolist())


def collapse_warning(geometry: BatchGeometry, similarity: Similarity) -> str | None:
    """What is wrong, and what helps; None if the embeddings look healthy."""
    cure = (
        "Use the log_polar embedding head with centered: True, start with class vectors "
        "(WarmStartLoss), raise positive_weight, or lower the learning rate."
    )
    # Lengths matter only where the score depends on them. The comparison is true for NaN, too.
    if isinstance(similarity, GeneralizedInnerProduct) and not geometry.length >= 0.5:
        return (
            f"Training is collapsing: the mean embedding length is {geometry.length:.3f}, and "
            f"gradients vanish with it. {cure}"
        )
    if geometry.positive_cosine - geometry.negative_cosine < 0.02:
        return (
            f"Training is collapsing or has not started: the mean cosine is "
            f"{geometry.positive_cosine:.3f} within classes and {geometry.negative_cosine:.3f} "
            f"between classes. {cure}"
        )
    return None


class TrainingLog:
    """Logs steps and epochs on the first process.

    tensorboard: makes a SummaryWriter, or None.
    collapse_check_steps: from this training step on, it looks for a collapse. It warns of it once
        an epoch, and raises when STEPS_OF_COLLAPSE logged steps in a row show it.
    keep_going: it only warns.
    """

    def __init__(
        self,
        tensorboard: Callable[[], Any] | None,
        collapse_check_steps: int,
        has_progress_bar: bool,
        keep_going: bool = False,
    ) -> None:
        self.is_shown = rank() == 0
        self.summary_writer = tensorboard() if tensorboard is not None and self.is_shown else None
        self.collapse_check_steps = collapse_check_steps
        self.has_progress_bar = has_progress_bar and self.is_shown
        self.keep_going = keep_going
        self.collapsed_steps = 0  # logged ones in a row

    def begin_epoch(self, epoch: int | None, batches: int, batches_done: int) -> None:
        """Start the progress bar of an epoch, of which some batches may be done."""
        self.crops_since_log, self.last_log_time = 0, time.perf_counter()
        self.has_warned = False
        self.progress_bar = tqdm(
            total=batches,
            initial=batches_done,
            desc=f"epoch {epoch}",
            unit="batch",
            dynamic_ncols=True,
            disable=not self.has_progress_bar,
        )

    def count_batch(self, crops: int) -> None:
        """Advance the progress bar by one batch."""
        self.crops_since_log += crops
        self.progress_bar.update()

    def show_step(
        self,
        step: int,
        queries: Tensor,
        labels: Tensor,
        loss_value: float,
        loss: Any,  # the module: its similarity and, if it has one, its bias
        learning_rate: float,
    ) -> None:
        """Log a training step whose queries (n, dim) with labels (n,) had this loss."""
        geometry = batch_geometry(queries, labels, loss.similarity)
        now = time.perf_counter()
        crops_per_second = self.crops_since_log / (now - self.last_log_time)
        self.crops_since_log, self.last_log_time = 0, now
        values = {
            "loss": loss_value,
            **geometry._asdict(),
            "crops_per_second": crops_per_second,
            "learning_rate": learning_rate,
        }
        bias = ""
        if hasattr(loss, "bias"):
            values["bias"] = float(loss.bias.detach())
            bias = f"bias {values['bias']:.2f}, "
        self.progress_bar.set_postfix_str(
            f"loss {loss_value:.3f}, {bias}length {geometry.length:.2f}, "
            f"S+ {geometry.positive_similarity:.2f}, S- {geometry.negative_similarity:.2f}, "
            f"{crops_per_second:.0f} crops/s"
        )
        self._write_scalars("train", values, step)
        if self.is_shown and step >= self.collapse_check_steps:
            self._check_collapse(step, collapse_warning(geometry, loss.similarity))

    def _check_collapse(self, step: int, warning: str | None) -> None:
        """Warn of a collapse, or end a training that does not recover from it."""
        self.collapsed_steps = 0 if warning is None else self.collapsed_steps + 1
        if warning is not None and not self.has_warned:
            logger.warning("step %d: %s", step, warning)
            self.has_warned = True
        if self.collapsed_steps == STEPS_OF_COLLAPSE and not self.keep_going:
            raise FloatingPointError(
                f"stopped at training step {step}, because further steps would be wasted. "
                f"{warning} To train on all the same, add --keep_going."
            )

    def close_progress_bar(self) -> None:
        """Close the progress bar of an epoch: validation has its own."""
        self.progress_bar.close()

    def show_epoch(
        self, epoch: int | None, step: int, loss_value: float, metrics: Mapping[str, float]
    ) -> None:
        """Log the mean loss of an epoch that ended at a training step, and validation metrics."""
        shown = {name: value for name, value in metrics.items() if name in HEADLINES} or metrics
        words = "".join(f", {name} {value:.4g}" for name, value in shown.items())
        logger.info("epoch %s, step %s: loss %.4f%s", epoch, step, loss_value, words)
        self._write_scalars("train", {"epoch_loss": loss_value}, step)
        self._write_scalars("valid", metrics, step)

    def close(self) -> None:
        """Flush and close TensorBoard's writer."""
        if self.summary_writer is not None:
            self.summary_writer.close()

    def _write_scalars(self, kind: str, values: Mapping[str, float], step: int) -> None:
        """Write numbers to TensorBoard under a training step."""
        if self.summary_writer is not None:
            for name, value in values.items():
                self.summary_writer.add_scalar(f"{kind}/{name}", value, step)


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
    """The metrics of the first test list, which people quote."""
    return dict(next(iter(results.values()), {}))


def describe_result(result: Mapping[str, Any]) -> str:
    """The metrics of a test list as text."""
    if "eer" not in result:
        numbers = plain_numbers(result).items()
        return ", ".join(f"{name.replace('_', ' ')} {value:,.6g}" for name, value in numbers)
    accuracy = f"accuracy {result['mean_accuracy']:.2f} %, " if "mean_accuracy" in result else ""
    return accuracy + (
        f"EER {result['eer']:.2f} %, minDCF(0.01) {result['min_dcf']['0.01']:.4f} "
        f"({result['targets']} target and {result['trials'] - result['targets']} non-target trials)"
    )
