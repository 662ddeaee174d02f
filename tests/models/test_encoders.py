"""Laws of all encoders: the protocol, a training step, model folders, CPUs and ONNX."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from simple_spk.export.onnx import check_onnx, export_onnx
from simple_spk.inference.cpu_resnet import CpuEmbedding
from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import load_model, save_model
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.margin import ArcFaceLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.cam_plus_plus import CamPlusPlus
from simple_spk.models.decibel_fbank import DecibelFbank
from simple_spk.models.ecapa_tdnn import EcapaTdnn
from simple_spk.models.encoder_checks import check_encoder, relative_difference
from simple_spk.models.fbank import Fbank
from simple_spk.models.momentum_encoder import MomentumEncoder
from simple_spk.models.redimnet import ReDimNet
from simple_spk.models.resnet import ResNet

LOG_POLAR = {"form": "log_polar", "centered": True, "initial_length": 2.0}
SMALL: dict[str, Callable[..., Any]] = {
    "ECAPA-TDNN": lambda **others: EcapaTdnn(
        24, 16, 20, (2, 3), 4, attention_channels=8, embedding_dim=6, **others
    ),
    "CAM++": lambda **others: CamPlusPlus(24, 4, 16, 4, (2, 1), (1, 2), embedding_dim=6, **others),
    "CAM++ of odd height": lambda **others: CamPlusPlus(
        19, 4, 16, 4, (1,), (2,), embedding_dim=6, **others
    ),
    "ReDimNet": lambda **others: ReDimNet(
        12, 4, (1, 1), (1, 2), (6, 3), group_size=2, embedding_dim=6, **others
    ),
    "attentive pooling": lambda **others: ResNet(
        24, 4, (1, 1, 1), 2, embedding_dim=6, pooling="attentive", **others
    ),
}
# A front end of each kind.
FRONT_ENDS = {"ECAPA-TDNN": DecibelFbank(num_mels=24)}
every_encoder = pytest.mark.parametrize("name", SMALL)


@pytest.fixture
def make(stir: Callable[[nn.Module], nn.Module]) -> Callable[..., Any]:
    """Makes encoders all of whose layers matter."""

    def make_encoder(name: str, **others: Any) -> Any:
        torch.manual_seed(0)
        return stir(SMALL[name](**others))

    return make_encoder


@pytest.mark.parametrize("output", [None, LOG_POLAR], ids=["cartesian", "log_polar"])
@every_encoder
def test_the_protocol(name: str, output: dict | None) -> None:
    torch.manual_seed(0)
    check_encoder(SMALL[name](output=output))


@every_encoder
def test_a_training_step_with_simple(name: str, make: Callable[..., Any]) -> None:
    """Queries, keys of the momentum encoder and the queue: the loss falls by a step of SGD."""
    encoder = make(name, output=LOG_POLAR).train()
    momentum_encoder = MomentumEncoder(encoder, 0.5)
    queue, loss = KeyQueue(32, 6), SimPLELoss(initial_bias=-0.5)
    features, labels = torch.randn(8, 50, encoder.num_mels), torch.arange(8) // 2
    own = queue.enqueue(momentum_encoder(features), labels)
    optimizer = torch.optim.SGD([*encoder.parameters(), *loss.parameters()], lr=1e-4)
    before = loss(encoder(features), labels, *queue.contents(), own)
    before.backward()
    for parameter_name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), parameter_name
    optimizer.step()
    momentum_encoder.update(encoder)
    after = loss(encoder(features), labels, *queue.contents(), own)
    assert float(after.detach()) < float(before.detach())


@every_encoder
def test_a_training_step_with_class_vectors(name: str, make: Callable[..., Any]) -> None:
    encoder = make(name).train()
    loss = ArcFaceLoss(6, 4)
    features, labels = torch.randn(8, 50, encoder.num_mels), torch.arange(8) // 2
    loss(encoder(features), labels).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def saved_and_loaded(name: str, encoder: Any, folder: Path) -> tuple[Any, Any]:
    """A model and what its folder gives back."""
    front_end = FRONT_ENDS.get(name, Fbank(num_mels=encoder.num_mels))
    model = trained_model(front_end, encoder, SimPLELoss()).frozen()
    save_model(folder, model)
    return model, load_model(folder)


@every_encoder
@torch.no_grad()
def test_a_model_folder_keeps_it(name: str, make: Callable[..., Any], tmp_path: Path) -> None:
    model, loaded = saved_and_loaded(name, make(name), tmp_path / "model")
    assert type(loaded.encoder) is type(model.encoder)
    waveforms = 0.1 * torch.randn(2, 9000)
    expected = model.encoder(*model.front_end(waveforms))
    assert torch.equal(loaded.encoder(*loaded.front_end(waveforms)), expected)


@every_encoder
@torch.no_grad()
def test_embedding_on_a_cpu(name: str, make: Callable[..., Any], tmp_path: Path) -> None:
    _, model = saved_and_loaded(name, make(name), tmp_path / "model")
    waveforms, lengths = 0.1 * torch.randn(3, 9000), torch.tensor([9000, 400, 5000])
    expected = model.encoder(*model.front_end(waveforms, lengths))
    found = CpuEmbedding(model.front_end, model.encoder)(waveforms, lengths)
    assert relative_difference(found, expected).max() < 1e-4


@every_encoder
def test_a_runtime_gives_the_same_embeddings(
    name: str, make: Callable[..., Any], tmp_path: Path
) -> None:
    """Alone and padded, with the front end that the encoder is used with."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="pip install -e '.[onnx]'")
    model, _ = saved_and_loaded(name, make(name), tmp_path / "model")
    export_onnx(tmp_path / "onnx", model)
    assert check_onnx(tmp_path / "onnx") < 1e-4
