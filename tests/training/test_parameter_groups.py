"""Each parameter that trains belongs to one group, and a prefix without parameters is a mistake."""

import pytest
import torch
from torch import nn

from simple_spk.training.brain import parameter_groups


def small_modules() -> nn.ModuleDict:
    modules = nn.ModuleDict({"encoder": nn.Linear(2, 3), "loss": nn.Linear(3, 1)})
    modules["frozen"] = nn.Linear(1, 1).requires_grad_(False)
    return modules


def test_the_first_prefix_that_fits_wins_and_the_others_stay_together() -> None:
    modules = small_modules()
    options = {"loss.bias": {"lr": 0.1}, "loss": {"lr": 0.2, "weight_decay": 0.0}}
    others, bias, loss = parameter_groups(modules, options)
    assert others == {"params": list(modules["encoder"].parameters())}
    assert bias == {"params": [modules["loss"].bias], "lr": 0.1}
    assert loss == {"params": [modules["loss"].weight], "lr": 0.2, "weight_decay": 0.0}
    optimizer = torch.optim.SGD([others, bias, loss], lr=1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1, 0.2]


def test_no_empty_group_is_made() -> None:
    (only,) = parameter_groups(nn.ModuleDict({"loss": nn.Linear(2, 1)}), {"loss": {"lr": 1.0}})
    assert len(only["params"]) == 2


@pytest.mark.parametrize("prefix", ["los.bias", "frozen", "encoder.length"])
def test_a_prefix_of_nothing_that_trains_is_named(prefix: str) -> None:
    with pytest.raises(ValueError, match=rf"begins with {prefix}; similar names are .*\.bias"):
        parameter_groups(small_modules(), {prefix: {"lr": 1.0}})


def test_only_matrices_decay_if_wanted() -> None:
    modules = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))})
    modules["loss"] = nn.Linear(3, 1)
    options = {"loss.bias": {"lr": 0.1}, "loss.weight": {"weight_decay": 0.5}}
    groups = parameter_groups(modules, options, matrices_only=True)
    optimizer = torch.optim.SGD(groups, lr=1.0, weight_decay=0.1)
    decay = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    of_name = {name: decay[id(p)] for name, p in modules.named_parameters()}
    assert of_name == {
        "encoder.0.weight": 0.1,
        "encoder.0.bias": 0.0,
        "encoder.1.weight": 0.0,
        "encoder.1.bias": 0.0,
        "loss.weight": 0.5,
        "loss.bias": 0.0,
    }
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 1.0, 0.1, 1.0]
