"""Any classifier of torchvision, without its last layer."""

from pathlib import Path
from typing import Any

import torchvision
from torch import Tensor, nn

from simple_spk.io.tensor_file import read_tensors


class TorchvisionTrunk(nn.Module):
    """Features (n, feature_dim) of images (n, 3, height, width): what the model's last linear layer
    would take.

    Arguments:
        name: as torchvision.models.list_models() has it, such as resnet50.
        weights: a file of the model's weights, last layer included, as torchvision publishes them;
            None starts from random ones. Nothing is ever downloaded.
        options: further arguments of the model.
    """

    def __init__(self, name: str, weights: str | Path | None = None, **options: Any) -> None:
        super().__init__()
        known = torchvision.models.list_models(module=torchvision.models)
        if name not in known:
            raise ValueError(f"torchvision has no classifier {name}: it has {', '.join(known)}")
        model = torchvision.models.get_model(name, weights=None, **options)
        if weights is not None:
            try:
                model.load_state_dict(read_tensors(Path(weights)))
            except RuntimeError as error:
                reason = " ".join(str(error).split())[:300]
                raise ValueError(
                    f"{weights} does not hold the weights of {name}: {reason}"
                ) from error
        linear = [(n, part) for n, part in model.named_modules() if isinstance(part, nn.Linear)]
        if not linear:
            raise ValueError(f"{name} ends with no linear layer: take another, such as resnet50")
        place, last = linear[-1]
        parent, _, child = place.rpartition(".")
        setattr(model.get_submodule(parent), child, nn.Identity())
        self.feature_dim = last.in_features
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        features = self.model(images)
        # Two old models give a tuple in training: their answer, and that of a classifier half way.
        return features if isinstance(features, Tensor) else features[0]
