"""Every YAML file at its full size: a training step with tensors that have no values.

Tensors have shapes, types and devices only (torch's FakeTensorMode), so a step of the largest
network takes seconds. On a pretended GPU, a tensor that stayed on the CPU is an error as on a real
one. Its backward pass would need a driver: that and the update run on a pretended CPU.
"""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hyperpyyaml import load_hyperpyyaml
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from simple_spk.data.dataset import LabeledBatch
from simple_spk.data.samplers import crop_limits
from simple_spk.models.chunked_encoder import ChunkedEncoder
from simple_spk.models.resnet import ResNet
from simple_spk.schedules import StepwiseValue
from simple_spk.training.brain import SimPLEBrain, unwrap

ROOT = Path(__file__).parents[2]
YAML_FILES = sorted([*ROOT.glob("hparams/*.yaml"), *ROOT.glob("recipes/*/hparams/*.yaml")])
SPEAKERS = 5994  # of VoxCeleb2 dev
CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
HEIGHT_AND_WIDTH = {"orl_small": (56, 48), "simple_sfnet20": (112, 112)}  # of faces


class PretendedValues(TorchDispatchMode):
    """Answers what code asks of values that do not exist: a full queue, finite losses."""

    def __init__(self, queue: nn.Module | None) -> None:
        super().__init__()
        self.queue, self.integers = queue, itertools.count(0, 64)  # as bounds of tiles ascend

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if operation is torch.ops.aten._local_scalar_dense.default:
            (asked,) = args
            if self.queue is not None and asked is self.queue.enqueued:
                return self.queue.size
            if asked.dtype.is_floating_point:
                return 1.0
            return True if asked.dtype == torch.bool else next(self.integers)
        half = (args[0].numel() + 1) // 2 if args and isinstance(args[0], torch.Tensor) else 0
        if operation is torch.ops.aten.nonzero.default:
            return args[0].new_empty(half, args[0].ndim, dtype=torch.long)
        if operation is torch.ops.aten._unique2.default:
            shapes = half, args[0].shape, half
            some = [args[0].new_empty(shape, dtype=torch.long) for shape in shapes]
            return some[0].to(args[0].dtype), *some[1:]
        if operation is torch.ops.aten.bincount.default:
            return args[0].new_empty((kwargs or {}).get("minlength", args[-1]))
        return operation(*args, **(kwargs or {}))


def pretend_on(device: torch.device, modules: nn.Module, mode: FakeTensorMode) -> None:
    """Move parameters and buffers, and nothing else, to a pretended device."""
    moved: dict[int, torch.Tensor] = {}
    for module in modules.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                if id(tensor) not in moved:
                    with mode:
                        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                    if isinstance(tensor, nn.Parameter):
                        fake = nn.Parameter(fake, tensor.requires_grad)
                    moved[id(tensor)] = fake
                tensors[name] = moved[id(tensor)]


def write_manifest_of_many_speakers(folder: Path) -> None:
    """A train.csv that promises as many speakers as VoxCeleb2 has, for YAML files that count."""
    rows = (f"{n},{n}.wav,9.0,speaker{n}" for n in range(SPEAKERS))
    (folder / "train.csv").write_text("\n".join(["ID,wav,duration,spk_id", *rows]) + "\n")


def made_by(yaml: Path, folder: Path) -> dict[str, Any]:
    """The objects of a YAML file."""
    text = yaml.read_text(encoding="utf-8")
    overrides = {
        "data_folder": str(folder),
        "output_folder": str(folder / "out"),
        "pretrained": str(ROOT / "simple_spk/builtin_model"),
        "imagenet_weights": None,
        "test_lists": None,
    }
    with yaml.open(encoding="utf-8") as file:
        return load_hyperpyyaml(file, {k: v for k, v in overrides.items() if f"\n{k}:" in text})


def whole_batch(hparams: dict[str, Any], yaml: Path) -> LabeledBatch:
    """A batch of the longest crops, or of images, on the CPU as a loader brings it."""
    groups = "speakers_per_batch", "classes_per_batch", "persons_per_batch"
    members = "recordings_per_speaker", "images_per_class", "images_per_person"
    size = 1
    for names in (groups, members):
        size *= next(hparams[name] for name in names if name in hparams)
    if "crop_seconds" in hparams:
        stages = StepwiseValue("crop_seconds", hparams["crop_seconds"], crop_limits)
        seconds = max(longest for _, longest in stages.values)
        inputs = torch.empty(size, round(seconds * hparams["sample_rate"]))
    else:
        sides = HEIGHT_AND_WIDTH.get(yaml.stem) or 2 * [hparams["image_size"]]
        inputs = torch.empty(size, 3, *sides)
    return LabeledBatch(inputs, torch.zeros(size, dtype=torch.long))


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("yaml", YAML_FILES, ids=lambda path: path.stem)
def test_a_step_at_full_size(
    yaml: Path, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stages of a warm start; in the precision of the YAML file."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    write_manifest_of_many_speakers(tmp_path)
    hparams = made_by(yaml, tmp_path)
    precision = hparams.pop("precision", "fp32")
    brain = SimPLEBrain(hparams["modules"], hparams["optimizer"], hparams, {"device": "cpu"})
    brain.device = str(device)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    pretend_on(device, brain.modules, mode)
    size = hparams.get("crops_per_chunk")
    for name in {"encoder", "momentum_encoder"} & {*brain.modules} if size else ():
        brain.modules[name] = ChunkedEncoder(brain.modules[name], size)
    brain.init_optimizers()
    brain.modules.train()
    brain.epoch, batch = 1, whole_batch(hparams, yaml)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    queue = getattr(brain.modules, "queue", None)
    steps = getattr(hparams["loss"], "steps", 0)
    for step in {0, steps}:
        for module in brain.step_aware_modules:
            module.at_step(step)
        with mode, PretendedValues(queue):
            with autocast_without_gpu(device.type, dtype):
                predictions = brain.compute_forward(batch, None)
                loss = brain.compute_objectives(predictions, batch, None)
            assert loss.device == device and loss.dtype == torch.float32 and loss.shape == ()
            queries = predictions[0]
            assert queries.shape[0] == len(batch.labels) and queries.device == device
            if device == GPU:
                continue
            loss.backward()
            trained = [p for group in brain.optimizer.param_groups for p in group["params"]]
            for parameter in trained:
                assert parameter.grad is not None and parameter.grad.shape == parameter.shape
            brain.optimizers_step()
            if "momentum_encoder" in brain.modules:
                unwrap(brain.modules.momentum_encoder).update(unwrap(brain.modules.encoder))


@contextlib.contextmanager
def autocast_without_gpu(kind: str, dtype: torch.dtype | None) -> Iterator[None]:
    """torch.autocast(kind, dtype), which refuses to work without a GPU."""
    if dtype is not None:
        torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_enabled(kind, True)
        torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if dtype is not None:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
            torch.set_autocast_enabled(kind, False)


def test_a_tensor_that_stayed_on_the_cpu_is_found() -> None:
    """The pretended GPU is as strict as a real one."""
    encoder = ResNet(width=4, blocks=[1, 1, 1, 1])
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    pretend_on(GPU, encoder, mode)
    with mode, pytest.raises(RuntimeError, match="device"):
        encoder(torch.empty(2, 50, 80))
