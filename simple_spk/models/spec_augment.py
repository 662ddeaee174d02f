"""SpecAugment: bands of mel filters and stretches of time that are hidden in training."""

from torch import Tensor, nn
from torchaudio.functional import mask_along_axis_iid


class SpecAugment(nn.Module):
    """Features with one band of filters and one stretch of frames set to zero, in training only.

    Zero is the mean of normalized features. Widths are drawn for each crop, from none to the given
    ones. ``probability`` is that of a crop to be masked at all.
    """

    def __init__(
        self, num_mels: int = 10, time_fraction: float = 0.1, probability: float = 0.6
    ) -> None:
        super().__init__()
        if num_mels < 0 or not (0.0 <= time_fraction <= 1.0 and 0.0 <= probability <= 1.0):
            raise ValueError(
                f"num_mels {num_mels}, time_fraction {time_fraction}, probability {probability}: "
                f"expected a number of filters and two numbers from 0 to 1"
            )
        self.num_mels = num_mels
        self.time_fraction = time_fraction
        self.probability = probability

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, frames, mels), masked in training."""
        if not self.training:
            return features
        masked = mask_along_axis_iid(features, self.num_mels, 0.0, axis=2)
        frames = int(self.time_fraction * features.shape[1])
        masked = mask_along_axis_iid(masked, frames, 0.0, axis=1)
        chosen = features.new_empty(len(features), 1, 1).uniform_() < self.probability
        return masked.where(chosen, features)
