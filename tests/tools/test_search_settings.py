"""The search for settings: equal effort, validation speakers only, and a best that can be used."""

import json
import sys
from pathlib import Path

import pytest
import yaml

import train
from simple_spk.training.settings_check import check_settings
from tests.training_runs import train_here
from tools import search_settings
from tools.compare_losses import loss_variants
from tools.experiment_runs import Run
from tools.make_toy_corpus import make_toy_corpus
from tools.search_settings import (
    best_of_each,
    make_candidates,
    markdown,
    read_candidates,
)
from tools.seed_statistics import Comparison

ROOT = Path(__file__).parents[2]
MINI = ROOT / "hparams/mini.yaml"
SMALL = ROOT / "recipes/OpenSpeech/hparams/simple_resnet34_small.yaml"
TINY = [
    *("--prepare=null", "--speakers_per_batch=3", "--recordings_per_speaker=2", "--workers=0"),
    *("--crop_seconds=[0.4, 0.5]", "--batches_per_epoch=2", "--number_of_epochs=1", "--width=4"),
    *("--tensorboard=null", "--validation=null", "--device=cpu"),
]


def values_of(path):
    """The top-level lines of an experiment, by key."""
    lines = [line for line in path.read_text().splitlines() if line[:1].isalpha()]
    return {line.partition(":")[0]: line.partition(":")[2].split("#")[0].strip() for line in lines}


def test_a_candidate_is_the_experiment_with_its_settings(tmp_path):
    settings = {
        "simple": [{}, {"sharpness": 3.0}],
        "amsoftmax": [{"learning_rate": 0.05}, {"margin_ramp": "[0, !ref <seed> * 9]"}],
    }
    candidates = make_candidates(MINI, settings, tmp_path, [])
    names = [candidate.variant.name for candidate in candidates]
    assert names == ["simple-1", "simple-2", "amsoftmax-1", "amsoftmax-2"]
    files = [candidate.variant.yaml for candidate in candidates]
    assert files[0].read_text() == MINI.read_text()
    assert values_of(files[1]) == values_of(MINI) | {"sharpness": "3.0"}
    assert values_of(files[2])["learning_rate"] == "0.05"
    assert values_of(files[3])["margin_ramp"] == "[0, !ref <seed> * 9]"
    assert all(
        candidate.variant.overrides == ["--evaluated_part=valid"] for candidate in candidates
    )


def test_the_best_has_the_least_mean_over_lists_and_seeds(tmp_path):
    settings = {"simple": [{}, {"sharpness": 3.0}], "softmax": [{}, {"learning_rate": 0.05}]}
    candidates = make_candidates(MINI, settings, tmp_path, [])
    eers = {"simple-1": (4, 9, 9, 6), "simple-2": (6, 6, 7, 8), "softmax-1": (9, 9, 9, 9)}
    eers["softmax-2"] = eers["softmax-1"]  # of equals, the first
    runs = [
        Run(name, seed, {"a": metrics(values[seed]), "b": metrics(values[2 + seed])})
        for name, values in eers.items()
        for seed in (0, 1)
    ]
    comparison = Comparison(runs)
    best = best_of_each(candidates, comparison)
    assert [candidate.variant.name for candidate in best] == ["simple-2", "softmax-1"]
    rows = markdown(candidates, comparison, best).splitlines()[2:6]
    assert "| simple | sharpness 3.0 | 6.00 | 7.50 | **6.75** |" in rows
    assert sum("**" in row for row in rows) == 2


def metrics(eer):
    return {"eer": eer, "min_dcf": {"0.01": 0.5}}


@pytest.mark.parametrize(
    "candidates, options, words",
    [
        ({"simple": [{}, {}], "softmax": [{}]}, [], "equally many"),
        ({"simple": {"sharpness": 3}}, [], "a list of settings"),
        ({"simple": [{"sharpnes": 3}]}, [], "settings 1 of simple: sharpnes would be without"),
        ({"simpel": [{}]}, [], "no loss simpel"),
        ({"simple": [{"sharpness": 3}]}, ["--sharpness=2"], "--sharpness after --"),
        ({"simple": [{}]}, ["--evaluated_part=test"], "--evaluated_part after --"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(
    candidates, options, words, tmp_path, monkeypatch, capsys
):
    (tmp_path / "candidates.yaml").write_text(yaml.safe_dump(candidates))
    arguments = [MINI, tmp_path / "candidates.yaml", "-o", tmp_path / "o", "--", *options]
    monkeypatch.setattr(sys, "argv", ["search_settings.py", *map(str, arguments)])
    assert search_settings.main() == 1
    assert words in capsys.readouterr().err
    assert not list(tmp_path.rglob("metrics.json"))


def test_candidates_must_be_yaml(tmp_path):
    (tmp_path / "candidates.yaml").write_text("simple: [{sharpness: 3.0}")
    with pytest.raises(ValueError, match=r"candidates\.yaml cannot be read as YAML"):
        read_candidates(tmp_path / "candidates.yaml")


def test_an_experiment_must_be_able_to_leave_the_test_alone(tmp_path):
    with pytest.raises(ValueError, match="no evaluated_part"):
        make_candidates(ROOT / "hparams/simple_resnet34.yaml", {"simple": [{}]}, tmp_path, [])


def test_the_candidates_of_the_recipe_fit_it(tmp_path):
    """Five losses, seven settings each, all different."""
    settings = read_candidates(ROOT / "recipes/OpenSpeech/candidates.yaml")
    assert len(settings) == 5 and {len(several) for several in settings.values()} == {7}
    candidates = make_candidates(SMALL, settings, tmp_path, ["--steps=250"])
    texts = {candidate.variant.yaml.read_text() for candidate in candidates}
    assert len(texts) == 35
    used = (
        *train.REQUIRED_KEYS,
        *train.OPTIONAL_KEYS,
        "seed",
        "max_grad_norm",
        "ckpt_interval_minutes",
    )
    for candidate in candidates:  # none has a key that its loss left without effect
        check_settings(candidate.variant.yaml, {}, used, ())


def test_a_search_ends_in_experiments_to_compare(tmp_path, monkeypatch, capsys):
    corpus = tmp_path / "corpus"
    make_toy_corpus(
        corpus, train_speakers=4, valid_speakers=3, test_speakers=2, recordings_per_speaker=2
    )
    candidates = tmp_path / "candidates.yaml"
    candidates.write_text("simple: [{sharpness: 3.0}]\nsoftmax: [{learning_rate: 0.05}]\n")
    output = tmp_path / "search"
    arguments = [MINI, candidates, "-o", output, "--", f"--data_folder={corpus}", *TINY]
    monkeypatch.setattr(sys, "argv", ["search_settings.py", *map(str, arguments)])
    monkeypatch.setattr("tools.experiment_runs._train", train_here)
    assert search_settings.main() == 0, capsys.readouterr().err
    trained = json.loads((output / "softmax-1/1/metrics.json").read_text())
    valid = (corpus / "valid_trials.txt").read_text().splitlines()
    assert trained["trials"] == len(valid) != len((corpus / "test_trials.txt").read_text().split())
    assert f"{trained['eer']:.2f}" in (output / "table.md").read_text()
    best = output / "best/softmax.yaml"
    variants = loss_variants(output / "best/simple.yaml", [str(best)], tmp_path, [])
    assert [values_of(variant.yaml)["learning_rate"] for variant in variants] == ["0.1", "0.05"]
    # A second time nothing is trained.
    times = {path: path.stat().st_mtime_ns for path in output.rglob("metrics.json")}
    assert search_settings.main() == 0
    assert {path: path.stat().st_mtime_ns for path in output.rglob("metrics.json")} == times
