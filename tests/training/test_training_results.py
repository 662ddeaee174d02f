"""What a run tells of its tests: the first list's figures in short, and each list in words."""

import numpy as np

from simple_spk.evaluation.metrics import summary
from simple_spk.training.log import describe_result, headline, plain_numbers

FIRST = summary(np.array([0.1, 0.4, 0.4, 0.9]), np.array([0, 0, 1, 1]))


def test_the_headline_is_that_of_the_first_list() -> None:
    found = headline({"a": FIRST, "b": {"eer": 50.0}})
    assert found["eer"] == FIRST["eer"] == 25.0
    assert found["min_dcf"] == FIRST["min_dcf"] and list(found["min_dcf"]) == ["0.01", "0.05"]
    assert headline({}) == {} and headline({"a": {"map_at_r": 3.0}}) == {"map_at_r": 3.0}


def test_plain_numbers_are_all_numbers_and_nothing_else() -> None:
    found = plain_numbers(FIRST | {"list": "Vox1-O", "folds": [1.0]})
    assert found["min_dcf_0.05"] == FIRST["min_dcf"]["0.05"]
    assert all(isinstance(value, int | float) for value in found.values())
    assert not {"list", "folds", "min_dcf"} & found.keys()


def test_error_rates_accuracies_and_other_figures_are_described() -> None:
    assert describe_result(FIRST).startswith(
        "EER 25.00 %, minDCF(0.01) 0.5000 (2 target and 2 non-"
    )
    assert describe_result(FIRST | {"mean_accuracy": 99.5}).startswith("accuracy 99.50 %, EER")
    assert describe_result({"map_at_r": 41.25, "images": 1234}) == "map at r 41.25, images 1,234"
