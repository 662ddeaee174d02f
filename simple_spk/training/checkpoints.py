"""Checkpoints that are complete or do not exist."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speechbrain.utils.checkpoints import Checkpointer, average_checkpoints, ckpt_recency
from speechbrain.utils.distributed import ddp_barrier, if_main_process
from torch import nn

PARTIAL = "PARTIAL-"


class AtomicCheckpointer(Checkpointer):
    """SpeechBrain's Checkpointer, with checkpoints that get their name once they are complete.

    The parent writes a checkpoint's index first: killed before the contents are written, it leaves
    a newest checkpoint that cannot be loaded.
    """

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Write to a folder that recovery ignores, then rename it."""
        if if_main_process():
            for left_over in Path(self.checkpoints_dir).glob(f"{PARTIAL}*"):  # by killed runs
                shutil.rmtree(left_over)
        saved = super().save_checkpoint(*args, **kwargs)
        if if_main_process():
            partial: Path = saved.path
            final = partial.with_name(partial.name.removeprefix(PARTIAL))
            partial.rename(final)
            saved = saved._replace(
                path=final,
                paramfiles={name: final / file.name for name, file in saved.paramfiles.items()},
            )
        ddp_barrier()
        return saved

    def save_epoch(
        self, meta: Mapping[str, Any], epochs_to_keep: int, best: Mapping[str, str]
    ) -> None:
        """Save at the end of an epoch; keep the last ``epochs_to_keep`` such checkpoints and, with
        ``best`` as in ``load_average``, the best ones; delete all others."""
        self.save_checkpoint(meta=meta, end_of_epoch=True)
        kept = {f"{direction}_keys": [name] for direction, name in best.items()}
        for ends_epoch, number in ((True, epochs_to_keep), (False, 0)):
            self.delete_checkpoints(
                num_to_keep=number,
                ckpt_predicate=lambda saved, kind=ends_epoch: _ends_epoch(saved) == kind,
                importance_keys=[ckpt_recency],
                **kept,
            )

    def load_average(
        self, modules: Mapping[str, nn.Module], epochs: int, best: Mapping[str, str]
    ) -> list[int]:
        """Load modules with the mean of their weights after the last epochs; return these epochs.

        With ``best``, {max: metric} or {min: metric}, it is the mean over the best epochs.
        Statistics of BatchNorm are averaged like weights.
        """
        found = self.find_checkpoints(
            max_num_checkpoints=epochs,
            ckpt_predicate=_ends_epoch,
            **{f"{direction}_key": name for direction, name in best.items()},
        )
        if not found:
            raise ValueError(
                f"{self.checkpoints_dir} has no checkpoint of the end of an epoch with "
                f"{', '.join(best.values()) or 'its epoch'}: train first"
            )
        for name, module in modules.items():
            module.load_state_dict(average_checkpoints(found, name))
        return [checkpoint.meta["epoch"] for checkpoint in found]

    def _new_checkpoint_dirpath(self) -> Path:
        final: Path = super()._new_checkpoint_dirpath()
        return final.with_name(PARTIAL + final.name)


def _ends_epoch(checkpoint: Any) -> bool:
    """Whether a checkpoint was saved at the end of an epoch."""
    return bool(checkpoint.meta["end-of-epoch"])
