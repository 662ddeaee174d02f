"""Training runs as export reads them, and weights of WeSpeaker."""

import pickle
import random
import shutil
import zipfile
from pathlib import Path

import torch

from simple_spk.export.training_run import find_model, load_trained
from simple_spk.export.wespeaker import import_wespeaker
from simple_spk.models.resnet import ResNet
from tools.fuzzing.mutations import BYTE_DAMAGES, TEXT_DAMAGES, damaged, odd_field
from tools.fuzzing.npz import unzipped, zipped

SETTINGS = """\
front_end: !new:simple_spk.models.fbank.Fbank
    num_mels: 24
encoder: !new:simple_spk.models.resnet.ResNet
    num_mels: 24
    width: 4
    blocks: [1, 1]
    stem_stride: 2
    embedding_dim: 8
loss: !new:simple_spk.losses.simple.SimPLELoss
    similarity: !new:simple_spk.models.similarity.CosineSimilarity {scale: 2.0}
"""
FILES = ("hyperparams.yaml", "CKPT.yaml", "encoder.ckpt", "loss.ckpt", "avg_model.pt")


def write_originals(folder: Path) -> None:
    """A run with one checkpoint, and a model of WeSpeaker."""
    checkpoint = folder / "run" / "checkpoints" / "CKPT+1"
    checkpoint.mkdir(parents=True)
    (folder / "run" / "hyperparams.yaml").write_text(SETTINGS)
    (checkpoint / "CKPT.yaml").write_text("unixtime: 1.0\nprogress: [1, 2]\n")
    torch.manual_seed(0)
    encoder = ResNet(24, width=4, blocks=(1, 1), stem_stride=2, embedding_dim=8)
    torch.save(encoder.state_dict(), checkpoint / "encoder.ckpt")
    torch.save({"bias": torch.tensor(-0.5)}, checkpoint / "loss.ckpt")
    other = ResNet(24, width=4, blocks=(1, 1, 1, 1), embedding_dim=8).state_dict()
    names = {name: name.replace("output.linear", "seg_1") for name in other}
    weights = {names[n]: t for n, t in other.items() if not n.startswith("output.length")}
    torch.save(weights, folder / "avg_model.pt")


def change_pickle(content: bytes, dice: random.Random) -> bytes:
    """Damage the pickle in a file of PyTorch, whose checksums are right again."""
    members = unzipped(content)
    name = next((name for name in members if name.endswith("data.pkl")), None)
    if name is None:
        return content
    odd = pickle.dumps(dice.choice(([], {"a": 1}, {1: torch.Size([2])}, ("x",) * 3)))
    damages = (*BYTE_DAMAGES, odd_field, lambda *_: odd)
    if len(members[name]) > 20:  # an earlier damage may have emptied it
        members[name] = dice.choice(damages)(members[name], dice)
    methods = zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
    return zipped(members, dice.choice(methods))


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A run with a damaged file, or a damaged model of WeSpeaker."""
    name = dice.choice(FILES)
    more = TEXT_DAMAGES * 3 if name.endswith(".yaml") else (change_pickle,) * 5
    damages = (*BYTE_DAMAGES, *more)
    if name == "avg_model.pt":
        path = place.with_suffix(".pt")
        path.write_bytes(damaged((originals / name).read_bytes(), dice, damages))
        return path
    shutil.copytree(originals / "run", place)
    file = next(place.rglob(name))
    file.write_bytes(damaged(file.read_bytes(), dice, damages))
    return place


@torch.no_grad()
def read(path: Path) -> None:
    """Load the model, and embed with it."""
    model = import_wespeaker(path)[0] if path.suffix == ".pt" else load_trained(find_model(path))
    noise = torch.randn(2, model.front_end.sample_rate) * 0.1
    model.encoder(*model.front_end(noise))
