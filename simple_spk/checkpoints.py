"""Checkpoints that are whole or do not exist."""

import shutil
from pathlib import Path
from typing import Any

from speechbrain.utils.checkpoints import Checkpointer
from speechbrain.utils.distributed import ddp_barrier, if_main_process

PARTIAL = "PARTIAL-"


class AtomicCheckpointer(Checkpointer):
    """SpeechBrain's Checkpointer, but a checkpoint gets its name only when it is complete.

    The parent writes a checkpoint's index first and its contents afterwards: killed in between, it
    leaves a folder that looks like the newest checkpoint and cannot be loaded.
    """

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Write to a folder that recovery does not look at, then rename it."""
        if if_main_process():
            for left_over in Path(self.checkpoints_dir).glob(f"{PARTIAL}*"):  # of killed runs
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

    def _new_checkpoint_dirpath(self) -> Path:
        final: Path = super()._new_checkpoint_dirpath()
        return final.with_name(PARTIAL + final.name)
