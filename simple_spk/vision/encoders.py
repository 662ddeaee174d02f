"""An encoder of images: a trunk that makes features, and the layer that makes embeddings."""

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from simple_spk.models.embedding_head import EmbeddingHead


class ImageEncoder(nn.Module):
    """Embeddings (n, embedding_dim) of images (n, 3, height, width).

    Arguments:
        trunk: a module with a ``feature_dim``, from images to features (n, feature_dim).
        output: further arguments of ``EmbeddingHead``: its form, and helps for starting.
        freeze_batchnorm: the trunk's BatchNorm keeps its statistics, those of the weights that it
            started from; its scales and shifts are trained like all weights.
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
        """Enter the mode for training or the one for use."""
        super().train(mode)
        if self.freeze_batchnorm:
            for part in self.trunk.modules():
                if isinstance(part, _BatchNorm):
                    part.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        return self.output(self.trunk(images))
