"""The training step on SpeechBrain's Brain: encoder, momentum encoder, queue and loss."""

import difflib
import inspect
import logging
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import speechbrain as sb
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from simple_spk.data.dataset import LabeledBatch
from simple_spk.distributed import (
    copy_from_first_rank,
    rank,
    require_equal_on_all_ranks,
    world_size,
)
from simple_spk.losses.warm_start import WarmStartLoss
from simple_spk.models.chunked_encoder import ChunkedEncoder
from simple_spk.training.checkpoints import AtomicCheckpointer
from simple_spk.training.log import TrainingLog, plain_numbers

logger = logging.getLogger(__name__)


def seed_step(seed: int, epoch: int, step: int) -> None:
    """Make all random numbers of a training step a function of seed, epoch, step and rank."""
    state = np.random.SeedSequence((seed, epoch, step, rank())).generate_state(3)
    torch.manual_seed(int(state[0]))
    np.random.seed(int(state[1]))
    random.seed(int(state[2]))


def parameter_groups(
    modules: nn.Module,
    options_of_prefix: Mapping[str, Mapping[str, Any] | None],
    matrices_only: bool = False,
) -> list[dict[str, Any]]:
    """Optimizer groups: one for each prefix of parameter names, and one for all the others.

    A parameter belongs to the first prefix that its name begins with; a prefix with None does not
    count. With ``matrices_only``, weights of fewer than two dimensions (biases, BatchNorm) do not
    decay, except in groups with a weight_decay of their own.

    >>> modules = nn.ModuleDict({"encoder": nn.Linear(2, 2), "loss": nn.Linear(1, 1)})
    >>> groups = parameter_groups(modules, {"loss.bias": {"lr": 0.01}})
    >>> [(len(group.pop("params")), group) for group in groups]
    [(3, {}), (1, {'lr': 0.01})]
    """
    options_of_prefix = {p: options for p, options in options_of_prefix.items() if options}
    groups: dict[str, list[nn.Parameter]] = {prefix: [] for prefix in ("", *options_of_prefix)}
    trained = {name: p for name, p in modules.named_parameters() if p.requires_grad}
    for name, parameter in trained.items():
        prefix = next((p for p in options_of_prefix if name.startswith(p)), "")
        groups[prefix].append(parameter)
    for prefix in options_of_prefix:
        if not groups[prefix]:
            similar = difflib.get_close_matches(prefix, trained, n=3, cutoff=0.0)
            raise ValueError(
                f"parameter_groups: no parameter's name begins with {prefix}; similar names are "
                f"{', '.join(similar)}"
            )
    made: list[dict[str, Any]] = []
    for prefix, parameters in groups.items():
        options = options_of_prefix.get(prefix) or {}
        vectors = []
        if matrices_only and "weight_decay" not in options:
            vectors = [parameter for parameter in parameters if parameter.ndim < 2]
            parameters = [parameter for parameter in parameters if parameter.ndim >= 2]
        made += [{"params": parameters, **options}] if parameters else []
        made += [{"params": vectors, **options, "weight_decay": 0.0}] if vectors else []
    return made


def require_protocol(loss: nn.Module, has_queue: bool) -> None:
    """Raise unless a loss can be called as the brain will, and has the similarity for trials."""
    name = type(loss).__name__
    if isinstance(loss, WarmStartLoss) and not has_queue:
        raise ValueError(f"modules: {name} needs a queue and a momentum_encoder")
    try:
        inspect.signature(loss.forward).bind(*range(5 if has_queue else 2))
    except TypeError as error:
        raise ValueError(
            f"modules: {name}.forward: {error}; with a queue and a momentum_encoder a loss is "
            f"called as loss(queries, labels, keys, key_labels, own_keys), without as "
            f"loss(embeddings, labels): add both modules, or remove both"
        ) from error
    if not hasattr(loss, "similarity"):
        raise ValueError(
            f"modules: {name} has no attribute similarity, which scores trials: set it in "
            f"__init__, for example to models.similarity.CosineSimilarity()"
        )


RESUME_WITH_OTHER_RATE = (
    "to resume from the newest checkpoint (which may have diverged already) with another rate, add "
    "--may_change=learning_rate --learning_rate=VALUE"
)


class SimPLEBrain(sb.Brain):
    """Trains ``encoder`` with ``loss``; the YAML file builds all parts.

    modules: ``encoder`` and ``loss``; ``front_end`` (inputs -> features, lengths) if inputs need
    one; ``momentum_encoder`` and ``queue`` for a loss over a queue; ``spec_augment`` (masks the
    features of training crops) if wanted. Without a queue the loss is called as loss(embeddings,
    labels).

    hparams: seed, schedule (step -> factor on learning rates), parameter_groups (from prefixes of
    parameter names to optimizer options, or None), validation (or None), collapse_check_steps,
    log_interval, tensorboard (makes a SummaryWriter, or None). Optional: epochs_to_average,
    best_epoch (see there), channels_last (the memory layout of convolutions: with bf16 on a CPU it
    makes a step about twice as fast), crops_per_chunk (crops of a process that are embedded at a
    time, for less memory; the loss sees the whole batch), decay_matrices_only (see
    ``parameter_groups``).

    The method ``at_step(step)`` of any submodule that has one is called before each training step.
    A training that collapses is stopped, unless ``keep_going``.
    """

    keep_going = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if getattr(self.hparams, "channels_last", False):
            self.modules.to(memory_format=torch.channels_last)
        if isinstance(self.checkpointer, AtomicCheckpointer):
            self.checkpointer.progress = lambda: (self.epoch or 0, self.optimizer_step)
            self.checkpointer.epochs_to_keep = self.epochs_to_average
            self.checkpointer.best = self.best_epoch

    # ---- one step -------------------------------------------------------------------------------

    def compute_forward(self, batch: LabeledBatch, stage: sb.Stage) -> tuple[Tensor, Tensor | None]:
        """Queries (n, dim) and, with a queue, keys (n, dim) of the momentum encoder."""
        features = self.features(batch.inputs.to(self.device, non_blocking=True))
        if "spec_augment" in self.modules:
            features = (self.modules.spec_augment(features[0]), *features[1:])
        queries = self.modules.encoder(*features)
        shape = tuple(getattr(queries, "shape", ()))
        if len(shape) != 2 or shape[0] != len(batch.labels):
            raise ValueError(
                f"{type(unwrap(self.modules.encoder)).__name__} returned embeddings of the shape "
                f"{shape} for {len(batch.labels)} inputs: expected ({len(batch.labels)}, dim)"
            )
        if "queue" not in self.modules or not getattr(
            unwrap(self.modules.loss), "uses_queue", True
        ):
            return queries, None
        return queries, self.modules.momentum_encoder(*features)

    def compute_objectives(
        self, predictions: tuple[Tensor, Tensor | None], batch: LabeledBatch, stage: sb.Stage
    ) -> Tensor:
        """The loss of this batch, after its keys have entered the queue."""
        queries, keys = predictions
        labels = batch.labels.to(self.device, non_blocking=True)
        if keys is None:
            loss = self.modules.loss(queries, labels)
        else:
            queue = self.modules.queue
            own_keys = queue.enqueue(keys, labels)
            loss = self.modules.loss(queries, labels, *queue.contents(), own_keys)
        name = type(unwrap(self.modules.loss)).__name__
        if not isinstance(loss, Tensor) or loss.ndim > 0:
            shape = f" of the shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else ""
            found = type(loss).__name__ + shape
            raise ValueError(f"{name} returned {found}: expected a tensor (), such as a mean")
        if not loss.requires_grad:
            raise ValueError(f"{name} returned a number without a gradient: do not detach it")
        return loss

    def features(self, inputs: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        """The encoder's arguments: features and lengths or, without a front end, the inputs."""
        if "front_end" not in self.modules:
            return (inputs,)
        return self.modules.front_end(inputs, lengths)

    def on_fit_batch_start(self, batch: LabeledBatch, should_step: bool) -> None:
        """Seed this step, and set everything that depends on its number."""
        seed_step(self.hparams.seed, self.epoch, self.step)
        for module in self.step_aware_modules:
            module.at_step(self.optimizer_step)
        factor = self.hparams.schedule(self.optimizer_step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    def optimizers_step(self) -> None:
        """Clip the gradient over all parameter groups together, then step."""
        self.scaler.unscale_(self.optimizer)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        limit = self.max_grad_norm if self.max_grad_norm > 0 else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        if not self.scaler.is_enabled() and not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient is no longer finite at training step {self.optimizer_step}: lower "
                f"the learning rate or max_grad_norm; {RESUME_WITH_OTHER_RATE}"
            )
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer_step += 1

    def check_loss_isfinite(self, loss: Tensor) -> None:
        """Stop at once if the loss is not finite: it would spoil the queue and the weights."""
        if not torch.isfinite(loss):
            if self.optimizer_step == 0 and not self.scaler.is_enabled():  # no rate is to blame
                raise FloatingPointError(
                    f"the loss of the first step is {float(loss.detach())}: look for a division "
                    f"by zero, or a logarithm or square root of numbers that are not positive, in "
                    f"{type(unwrap(self.modules.loss)).__name__} or the encoder"
                )
            raise FloatingPointError(
                f"the loss is no longer finite at training step {self.optimizer_step}: lower the "
                f"learning rate, or train in fp32 or bf16; {RESUME_WITH_OTHER_RATE}"
            )

    def on_fit_batch_end(
        self, batch: LabeledBatch, outputs: tuple[Tensor, Any], loss: Tensor, should_step: bool
    ) -> None:
        """Update the momentum encoder, and log."""
        if should_step and "momentum_encoder" in self.modules:
            momentum_encoder: Any = unwrap(self.modules.momentum_encoder)
            momentum_encoder.update(unwrap(self.modules.encoder))
        self.training_log.count_batch(len(batch.labels))
        if self.step % self.hparams.log_interval == 0:
            self.training_log.show_step(
                self.optimizer_step,
                outputs[0],
                batch.labels.to(self.device),
                float(loss.detach()),
                unwrap(self.modules.loss),
                self.optimizer.param_groups[0]["lr"],
            )

    # ---- setting up -----------------------------------------------------------------------------

    def fit(self, epoch_counter: Any, train_loader: DataLoader) -> None:
        """Train on the loader's batches; its batch sampler has ``set_epoch``."""
        self.sampler: Any = train_loader.batch_sampler
        if ("queue" in self.modules) != ("momentum_encoder" in self.modules):
            raise ValueError("modules: a queue and a momentum_encoder go together")
        require_protocol(self.modules.loss, "queue" in self.modules)
        if len(train_loader) % self.grad_accumulation_factor:
            raise ValueError(
                f"an epoch of {len(train_loader)} batches cannot be divided into steps of "
                f"{self.grad_accumulation_factor} accumulated batches: change batches_per_epoch"
            )
        if getattr(self.hparams, "crops_per_chunk", None) is not None:
            for name in {"encoder", "momentum_encoder"} & {*self.modules}:
                module = self.modules[name]
                self.modules[name] = ChunkedEncoder(module, self.hparams.crops_per_chunk)
        self.training_log = TrainingLog(
            self.hparams.tensorboard,
            self.hparams.collapse_check_steps,
            not self.noprogressbar,
            self.keep_going,
        )
        super().fit(epoch_counter, train_loader, progressbar=False)  # the log draws its own bar
        self.training_log.close()

    def init_optimizers(self) -> None:
        """Make the optimizer with its parameter groups, and keep their learning rates."""
        modules = self.plain_modules
        matrices_only = getattr(self.hparams, "decay_matrices_only", False)
        groups = parameter_groups(modules, self.hparams.parameter_groups or {}, matrices_only)
        self.optimizer = self.opt_class(groups)
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        self.group_options = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.optimizer.param_groups
        ]
        self.optimizers_dict = {"opt_class": self.optimizer}
        self.step_aware_modules: list[Any] = [m for m in modules.modules() if hasattr(m, "at_step")]
        if self.checkpointer is not None:
            self.checkpointer.add_recoverable("optimizer", self.optimizer)

    def on_fit_start(self) -> None:
        """Recover, but with the optimizer options of the YAML file, which may have been changed."""
        super().on_fit_start()
        for group, options in zip(self.optimizer.param_groups, self.group_options, strict=True):
            group.update(options)

    @property
    def plain_modules(self) -> nn.ModuleDict:
        """All modules, without their wrappers."""
        return nn.ModuleDict({name: unwrap(module) for name, module in self.modules.items()})

    def _wrap_distributed(self) -> None:
        """Wrap modules that train for data parallelism; on CPUs BatchNorm stays local."""
        if not self.distributed_launch:
            return
        on_gpu = self.device_type == "cuda"
        for name, module in self.modules.items():
            if on_gpu:  # the momentum encoder too, so that keys are computed like queries
                module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
            if any(parameter.requires_grad for parameter in module.parameters()):
                self.modules[name] = DistributedDataParallel(
                    module,
                    device_ids=[self.device] if on_gpu else None,
                    find_unused_parameters=self.find_unused_parameters,
                )

    def _should_save_intra_epoch_ckpt(self, *args: Any) -> bool:
        """Never between accumulated batches: their gradients are not part of a checkpoint."""
        whole_step = self.step % self.grad_accumulation_factor == 0
        return whole_step and super()._should_save_intra_epoch_ckpt(*args)

    # ---- epochs and evaluation ------------------------------------------------------------------

    def on_stage_start(self, stage: sb.Stage, epoch: int | None = None) -> None:
        """Begin an epoch, or resume one of which self.step batches are done."""
        assert epoch is not None, "the epoch counter names every training epoch"
        self.epoch = epoch
        self.sampler.set_epoch(epoch, first_batch=self.step)
        self.training_log.begin_epoch(epoch, len(self.sampler), self.step)

    def on_stage_end(self, stage: sb.Stage, stage_loss: float, epoch: int | None = None) -> None:
        """Validate, log and save at the end of an epoch."""
        self.training_log.close_progress_bar()
        self.check_ranks()
        metrics: dict[str, float] = {}
        if self.hparams.validation is not None:
            metrics = plain_numbers(self.run_evaluation(self.hparams.validation))
        self.training_log.show_epoch(epoch, self.optimizer_step, stage_loss, metrics)
        # The next epoch starts at its first batch, also after a restart.
        self.step, self.avg_train_loss = 0, 0.0
        if self.best_epoch:
            self.judge_epoch(metrics)
        self.checkpointer.save_and_keep_only(meta={"epoch": epoch, **metrics})

    @property
    def epochs_to_average(self) -> int:
        """Number of epochs over which the weights of the final model are averaged."""
        return getattr(self.hparams, "epochs_to_average", 1)

    @property
    def best_epoch(self) -> Mapping[str, str]:
        """How epochs are chosen: {max: validation metric} or {min: ...}; empty: the last ones."""
        return getattr(self.hparams, "best_epoch", None) or {}

    def judge_epoch(self, metrics: Mapping[str, float]) -> None:
        """Check ``best_epoch``, and tell its metric to an epoch counter that can stop early."""
        for direction, name in self.best_epoch.items():
            if direction not in ("max", "min") or name not in metrics:
                raise ValueError(
                    f"best_epoch must be max or min of a validation metric, one of "
                    f"{', '.join(metrics) or 'none'}, not {direction}: {name}"
                )
            if hasattr(self.hparams.epoch_counter, "update_metric"):
                self.hparams.epoch_counter.update_metric(metrics[name])

    def choose_epochs(self) -> None:
        """Average the weights after the last or best epochs, if the YAML file says so."""
        if self.epochs_to_average > 1 or self.best_epoch:
            chosen = {name: unwrap(self.modules[name]) for name in ("encoder", "loss")}
            epochs = self.checkpointer.load_average(chosen)
            kind = "best" if self.best_epoch else "last"
            names = ", ".join(map(str, epochs))
            logger.info(
                "the model is the mean of those of the %s %d epochs (%s)", kind, len(epochs), names
            )

    def run_evaluation(self, evaluation: Any, **options: Any) -> dict[str, Any]:
        """The metrics of an evaluation with the trained encoder and the loss's similarity."""
        self.modules.eval()
        # BatchNorm statistics of CPU processes are local; all must embed with the same ones.
        copy_from_first_rank(unwrap(self.modules.encoder).buffers())
        similarity = unwrap(self.modules.loss).similarity
        with torch.no_grad(), self.evaluation_ctx:
            return evaluation(self.embed, similarity, **options)

    def embed(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Embeddings (n, dim) of inputs (n, ...), padded after their lengths (n,)."""
        if lengths is not None:
            lengths = lengths.to(self.device)
        return unwrap(self.modules.encoder)(*self.features(inputs.to(self.device), lengths))

    def check_ranks(self) -> None:
        """Raise unless weights and queue are equal on all processes."""
        if world_size() == 1:
            return
        state = dict(self.plain_modules.named_parameters())
        if "queue" in self.modules:
            state |= dict(self.modules.queue.named_buffers(prefix="queue"))
        require_equal_on_all_ranks(state)
        logger.info("state is equal on all %d processes", world_size())


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside the wrappers for data parallelism and for chunks."""
    if isinstance(module, DistributedDataParallel):
        module = module.module
    return module.encoder if isinstance(module, ChunkedEncoder) else module
