"""SpecAugment hides one band and one stretch of a crop, and nothing at test time."""

import pytest
import torch

from simple_spk.models.spec_augment import SpecAugment


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_masks_are_one_band_and_one_stretch_of_each_crop() -> None:
    augment = SpecAugment(num_mels=10, time_fraction=0.2, probability=1.0)
    hidden = augment(torch.ones(400, 50, 40)) == 0.0
    bands, stretches = hidden.all(dim=1), hidden.all(dim=2)
    assert torch.equal(hidden, bands[:, None, :] | stretches[:, :, None])
    for masks, widest in ((bands, 10), (stretches, 10)):
        assert masks.sum(dim=1).max() == widest - 1  # of widths below the limit, all occur
        assert masks.sum(dim=1).min() == 0
        begins = masks.int().diff(dim=1, prepend=torch.zeros(400, 1, dtype=torch.int)) == 1
        assert begins.sum(dim=1).max() == 1
        assert begins.float().argmax(dim=1).unique().numel() > 20  # anywhere


def test_probability_and_test_time() -> None:
    features = torch.ones(1000, 20, 40)
    augment = SpecAugment(num_mels=40, probability=0.3)
    share = (augment(features) == 0.0).flatten(1).any(dim=1).float().mean()
    assert 0.2 < share < 0.35
    assert torch.equal(augment.eval()(features), features)


@pytest.mark.parametrize("options", [{"num_mels": -1}, {"time_fraction": 1.5}, {"probability": 2}])
def test_settings_outside_their_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        SpecAugment(**options)  # type: ignore[arg-type]
