"""Image encoders: a convolutional trunk that computes features, and an embedding head."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torchvision
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from simple_spk.io.tensor_file import read_tensors
from simple_spk.models.embedding_head import EmbeddingHead


class ImageEncoder(nn.Module):
    """Embeddings (n, embedding_dim) of images (n, 3, height, width).

    Arguments:
        trunk: a module with a ``feature_dim``, from images to features (n, feature_dim).
        output: further arguments of ``EmbeddingHead``.
        freeze_batchnorm: keep the trunk's BatchNorm statistics; scales and shifts are trained.
    """

    def __init__(
        self,
        trunk: Any,
        embedding_dim: int = 128,
        output: dict | None = None,
        freeze_batchnorm: bool = False,
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.output = EmbeddingHead(trunk.feature_dim, embedding_dim, **(output or {}))
        self.freeze_batchnorm = freeze_batchnorm

    def train(self, mode: bool = True) -> "ImageEncoder":
        """Set training or evaluation mode; frozen BatchNorm layers stay in evaluation mode."""
        super().train(mode)
        if self.freeze_batchnorm:
            for part in self.trunk.modules():
                if isinstance(part, _BatchNorm):
                    part.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        return self.output(self.trunk(images))


class TorchvisionTrunk(nn.Module):
    """Features (n, feature_dim) of images (n, 3, height, width): the input of the last linear layer
    of a torchvision classifier.

    Arguments:
        name: a name of torchvision.models.list_models(), such as resnet50.
        weights: a file of the model's weights, last layer included, as torchvision publishes them.
            None: random weights. Nothing is downloaded.
        options: further arguments of the model.
    """

    def __init__(self, name: str, weights: str | Path | None = None, **options: Any) -> None:
        super().__init__()
        known = torchvision.models.list_models(module=torchvision.models)
        if name not in known:
            raise ValueError(f"torchvision has no classifier {name}: it has {', '.join(known)}")
        model = torchvision.models.get_model(name, weights=None, **options)
        if weights is not None:
            load_weights(model, name, weights, read_tensors(Path(weights)))
        linear = [(n, part) for n, part in model.named_modules() if isinstance(part, nn.Linear)]
        if not linear:
            raise ValueError(f"{name} has no linear layer at its end: use another, e.g. resnet50")
        place, last = linear[-1]
        parent, _, child = place.rpartition(".")
        setattr(model.get_submodule(parent), child, nn.Identity())
        self.feature_dim = last.in_features
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        features = self.model(images)
        # In training, googlenet and inception_v3 also return the output of auxiliary classifiers.
        return features if isinstance(features, Tensor) else features[0]


def load_weights(model: nn.Module, name: str, path: str | Path, tensors: dict[str, Tensor]) -> None:
    """Load the tensors of a file into a model; raises a message with both names if they misfit."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path} does not hold the weights of {name}: {reason}") from error


class SmallTrunk(nn.Module):
    """Features (n, widths[-1]) of images (n, 3, height, width) of about 64 pixels a side.

    It trains on a CPU in minutes. Each stage halves the image, and has a residual connection.
    """

    def __init__(self, widths: Sequence[int] = (24, 48, 96, 192)) -> None:
        super().__init__()
        self.feature_dim = widths[-1]
        self.stages = nn.Sequential()
        for inputs, width in zip((3, *widths), widths, strict=False):
            downsampling = conv_bn_relu(inputs, width, stride=2)
            residual = Residual(conv_bn_relu(width, width))
            self.stages.append(nn.Sequential(downsampling, residual))

    def forward(self, images: Tensor) -> Tensor:
        return self.stages(images).mean(dim=(2, 3))


class Residual(nn.Module):
    """The sum of a layer's input and its output."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.layer(maps)


def conv_bn_relu(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A 3 x 3 convolution with BatchNorm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )
