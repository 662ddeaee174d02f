"""Time to save a checkpoint: ours, which is sealed and synced to the disk, and SpeechBrain's.

Both keep one or two checkpoints and delete older ones. "sealing" is the time to compute the SHA-256
of all files of a checkpoint alone.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from speechbrain.utils.checkpoints import Checkpointer
from torch import nn

from simple_spk.io.atomic_file import damage_of
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.models.momentum_encoder import MomentumEncoder
from simple_spk.models.resnet import ResNet
from simple_spk.training.checkpoints import AtomicCheckpointer
from tools.benchmarks.measure import Row, in_turns

MODELS: dict[str, Callable[[], tuple[ResNet, KeyQueue]]] = {
    "mini.yaml": lambda: (
        ResNet(width=8, blocks=(1, 1, 1, 1), stem_stride=2, embedding_dim=128),
        KeyQueue(4096, 128),
    ),
    "simple_resnet34.yaml": lambda: (ResNet(embedding_dim=256), KeyQueue(524_288, 256)),
}


def run(options: argparse.Namespace) -> list[Row]:
    """Seconds of a save of both, and of sealing."""
    rows: list[Row] = []
    for name, make in MODELS.items():
        encoder, queue = make()
        modules: dict[str, nn.Module] = {
            "encoder": encoder,
            "queue": queue,
            "momentum_encoder": MomentumEncoder(encoder, 0.99),
        }
        with tempfile.TemporaryDirectory() as folder:
            ours = AtomicCheckpointer(Path(folder, "ours"), modules)
            theirs = Checkpointer(Path(folder, "theirs"), modules)
            saved = AtomicCheckpointer(Path(folder, "saved"), modules).save_checkpoint().path
            megabytes = sum(path.stat().st_size for path in saved.iterdir()) / 1e6
            seconds = in_turns(
                {
                    "ours": ours.save_and_keep_only,
                    "theirs": theirs.save_and_keep_only,
                    "sealing": partial(damage_of, saved),
                },
                rounds=5,
            )
        rows.append(
            {
                "settings": name,
                "MB": megabytes,
                "ours ms": 1e3 * seconds["ours"],
                "SpeechBrain's ms": 1e3 * seconds["theirs"],
                "ratio": seconds["ours"] / seconds["theirs"],
                "of ours, sealing ms": 1e3 * seconds["sealing"],
            }
        )
    return rows
