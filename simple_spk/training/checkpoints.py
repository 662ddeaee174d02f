"""Checkpoints that are whole or ignored, also after a power cut or a damaged disk."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from speechbrain.utils.checkpoints import Checkpointer, average_checkpoints
from speechbrain.utils.distributed import ddp_barrier, if_main_process, main_process_only
from torch import nn

from simple_spk.io.atomic_file import damage_of, seal_folder, sync_folder

logger = logging.getLogger(__name__)

PARTIAL, DELETED = "PARTIAL-", "DELETED-"
FEWEST_KEPT = 2  # the newest checkpoint and an older one, in case the newest is damaged


class AtomicCheckpointer(Checkpointer):
    """SpeechBrain's Checkpointer with checkpoints that are complete once they have their name.

    The parent writes the index of a checkpoint first: killed in between, it leaves a folder that
    looks like the newest checkpoint and cannot be loaded. Here a checkpoint is written under
    another name, listed with sizes and SHA-256, synced to the disk and renamed. Damaged checkpoints
    are ignored, with a warning. The newest is the one of the latest training step, whatever the
    clock says.

    progress: returns the epoch and the step of training; set by the Brain.
    epochs_to_keep, best: which ends of epochs are kept; see ``prune``.
    """

    progress: Callable[[], tuple[int, int]] | None = None
    epochs_to_keep: int = 1
    best: Mapping[str, str] = {}

    def save_checkpoint(
        self, meta: Mapping[str, Any] | None = None, end_of_epoch: bool = True, **options: Any
    ) -> Any:
        """Write to a folder that recovery does not look at, sync it, then rename it."""
        try:
            return self._save_atomically(meta, end_of_epoch, **options)
        except (OSError, RuntimeError) as error:
            # torch's writer replaces the system's error by its own.
            reason = error if isinstance(error, OSError) else error.__context__
            if not isinstance(reason, OSError) or reason.errno is None:
                raise
            with contextlib.suppress(OSError):
                self._remove_left_overs()  # a full disk needs the room
            file = reason.filename or str(self.checkpoints_dir)
            raise OSError(reason.errno, reason.strerror, file) from error

    def _save_atomically(
        self, meta: Mapping[str, Any] | None, end_of_epoch: bool, **options: Any
    ) -> Any:
        """``save_checkpoint`` with torch's errors."""
        self._remove_left_overs()
        for name, recoverable in self.recoverables.items():
            if isinstance(recoverable, nn.Module | torch.optim.Optimizer):
                self.custom_save_hooks[name] = _save_state
        meta = dict(meta or {})
        if self.progress is not None:
            meta["progress"] = list(self.progress())
        options.setdefault("verbosity", logging.DEBUG)  # the parent names the folder by PARTIAL
        saved = super().save_checkpoint(meta=meta, end_of_epoch=end_of_epoch, **options)
        if if_main_process():
            partial: Path = saved.path
            final = partial.with_name(partial.name.removeprefix(PARTIAL))
            seal_folder(partial)
            partial.rename(final)
            sync_folder(final.parent)
            logger.info("saved checkpoint %s", final)
            self._damage_of_folder[final] = None
            saved = saved._replace(
                path=final,
                paramfiles={name: final / file.name for name, file in saved.paramfiles.items()},
            )
        ddp_barrier()
        return saved

    def _remove_left_overs(self) -> None:
        """Remove what killed or failed runs left."""
        if if_main_process():
            for kind in (PARTIAL, DELETED):
                for left_over in Path(self.checkpoints_dir).glob(f"{kind}*"):
                    shutil.rmtree(left_over)

    def save_and_keep_only(
        self, meta: Mapping[str, Any] | None = None, end_of_epoch: bool = True, **options: Any
    ) -> None:
        """Save a checkpoint, then delete those that are of no use any more."""
        self.save_checkpoint(meta=meta, end_of_epoch=end_of_epoch)
        self.prune()

    def prune(self) -> None:
        """Keep the two newest checkpoints and the last, or best, ``epochs_to_keep`` ends of epochs.

        With ``best``, {max: metric} or {min: metric}, the best ends of epochs are kept, too.
        """
        found = self.find_checkpoints()
        kept = found[:FEWEST_KEPT] + self._ends_of_epochs({})
        if self.best:
            kept += self._ends_of_epochs(self.best)
        names = {checkpoint.path for checkpoint in kept}
        ddp_barrier()  # all have looked before anything vanishes
        if if_main_process():
            for checkpoint in found:
                if checkpoint.path not in names:
                    # Renamed first: a half-deleted checkpoint must not look like one.
                    doomed = checkpoint.path.with_name(DELETED + checkpoint.path.name)
                    checkpoint.path.rename(doomed)
                    shutil.rmtree(doomed)
        ddp_barrier()

    def load_average(self, modules: Mapping[str, nn.Module]) -> list[int]:
        """Load modules with the mean weights of the last or best epochs; returns these epochs.

        Statistics of BatchNorm are averaged like weights.
        """
        found = self._ends_of_epochs(self.best)
        if not found:
            raise ValueError(
                f"{self.checkpoints_dir} has no checkpoint of the end of an epoch with "
                f"{', '.join(self.best.values()) or 'its epoch'}: train first"
            )
        for name, module in modules.items():
            module.load_state_dict(average_checkpoints(found, name))
        return [checkpoint.meta["epoch"] for checkpoint in found]

    def find_checkpoints(self, importance_key: Any = None, **options: Any) -> list[Any]:
        """Checkpoints by importance, by default the latest in training first."""
        is_ranked = options.get("max_key") or options.get("min_key")
        key = importance_key or (None if is_ranked else _progress_of)
        return super().find_checkpoints(importance_key=key, **options)

    def list_checkpoints(self) -> list[Any]:
        """All checkpoints that are whole; a warning names the damage of the others."""
        whole = []
        for folder in self._list_checkpoint_dirs():
            if folder not in self._damage_of_folder:
                self._damage_of_folder[folder] = damage_of(folder)
                if self._damage_of_folder[folder] is not None:
                    logger.warning(
                        "the checkpoint %s is damaged and ignored: %s",
                        folder,
                        self._damage_of_folder[folder],
                    )
            if self._damage_of_folder[folder] is None:
                whole.append(folder)
        return self._construct_checkpoint_objects(whole)

    @property
    def _damage_of_folder(self) -> dict[Path, str | None]:
        """What is known of checkpoints that were examined or written by this process."""
        return self.__dict__.setdefault("_examined", {})

    def _ends_of_epochs(self, best: Mapping[str, str]) -> list[Any]:
        """The last, or best, ``epochs_to_keep`` checkpoints of ends of epochs."""
        return self.find_checkpoints(
            max_num_checkpoints=self.epochs_to_keep,
            ckpt_predicate=_ends_epoch,
            **{f"{direction}_key": name for direction, name in best.items()},
        )

    def _new_checkpoint_dirpath(self) -> Path:
        final: Path = super()._new_checkpoint_dirpath()
        return final.with_name(PARTIAL + final.name)


@main_process_only
def _save_state(recoverable: nn.Module | torch.optim.Optimizer, path: Path) -> None:
    """SpeechBrain's ``torch_save`` through Python's file, whose errors say what is wrong."""
    with path.open("wb") as file:
        torch.save(recoverable.state_dict(), file)


def _ends_epoch(checkpoint: Any) -> bool:
    """Whether a checkpoint was saved at the end of an epoch."""
    return bool(checkpoint.meta["end-of-epoch"])


def _progress_of(checkpoint: Any) -> tuple[Any, ...]:
    """What checkpoints are ordered by: epoch and step; of version 0.1 the time."""
    progress = checkpoint.meta.get("progress", (-1, -1))
    return (*progress, _ends_epoch(checkpoint), checkpoint.meta["unixtime"])
