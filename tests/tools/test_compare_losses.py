"""Comparisons of losses and settings: statistics by hand, and toy trainings from outside."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from simple_spk.io.atomic_file import write_text
from tools import ablate, compare_losses
from tools.ablate import variants_of
from tools.compare_losses import (
    compare,
    loss_file,
    loss_variants,
    split_overrides,
)
from tools.exchange_loss import write_experiment
from tools.experiment_runs import Run, Variant, run_all, run_once
from tools.make_toy_corpus import make_toy_corpus
from tools.seed_statistics import Comparison, estimate, markdown, write_comparison

ROOT = Path(__file__).parents[2]
TINY = [
    *("--prepare=null", "--speakers_per_batch=3", "--recordings_per_speaker=2", "--workers=0"),
    *("--crop_seconds=[0.4, 0.5]", "--batches_per_epoch=2", "--number_of_epochs=1", "--width=4"),
    *("--tensorboard=null", "--validation=null", "--device=cpu"),
]


def metrics(eer, min_dcf=0.5):
    return {"eer": eer, "min_dcf": {"0.01": min_dcf, "0.05": 0.1}}


def made_up_runs():
    """Two losses, three seeds, two lists; seed 4 was trained for one of the losses only."""
    eers = {"simple": [10.0, 12.0, 11.0], "softmax": [13.0, 14.5, 14.0]}
    runs = [
        Run(name, seed, {"a": metrics(eer), "b": metrics(eer + 2.0, 0.7)})
        for name, values in eers.items()
        for seed, eer in enumerate(values, start=1)
    ]
    return [*runs, Run("simple", 4, {"a": metrics(99.0), "b": metrics(99.0)})]


def test_intervals_are_those_of_scipy():
    values = [1.0, 1.4, 0.7, 1.1]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    mean, half_width = estimate(values)
    assert (mean - half_width, mean + half_width) == pytest.approx((low, high))
    assert estimate([2.5]).text(2) == "2.50"


def test_differences_are_paired_by_seed():
    comparison = Comparison(made_up_runs())
    assert comparison.seeds == [1, 2, 3], "a seed that one loss lacks does not count"
    np.testing.assert_allclose(comparison.headline, [[11, 13, 12], [14, 15.5, 15]])
    expected = stats.ttest_rel([14, 15.5, 15], [11, 13, 12]).confidence_interval(0.95)
    mean, half_width = comparison.difference(1)
    assert (mean - half_width, mean + half_width) == pytest.approx(tuple(expected))
    assert half_width < estimate([14, 15.5, 15]).half_width  # pairing takes out the seed


def test_the_table_and_the_plot_show_every_loss(tmp_path):
    text = write_comparison(tmp_path, "`command`", made_up_runs())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and len({row.count("|") for row in rows}) == 1
    assert "simple" in rows[2] and "11.00 ± 2.48" in rows[2]
    assert "softmax" in rows[3] and "2.83 ± 0.72" in rows[3]
    assert (tmp_path / "table.md").read_text() == text
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    one_seed = markdown(Comparison([run for run in made_up_runs() if run.seed == 1]))
    assert "±" not in one_seed and "One seed" in one_seed


def test_runs_without_anything_in_common_are_refused():
    runs = [Run("a", 1, {"x": metrics(1.0)}), Run("b", 2, {"x": metrics(1.0)})]
    with pytest.raises(ValueError, match="no seed"):
        Comparison(runs)


def test_the_grid_has_every_point_and_similarity(tmp_path):
    """mini.yaml stands at sharpness 2 and positive weight 0.1; it comes first, and once."""
    base = ROOT / "hparams/mini.yaml"
    grid = {"sharpness": [1.0, 2.0], "positive_weight": [0.05, 0.1]}
    variants = variants_of(base, grid, ["inner_product", "cosine"], tmp_path, [])
    assert [variant.name for variant in variants] == [
        *("sharpness_2-positive_weight_0.1", "sharpness_1-positive_weight_0.05"),
        *("sharpness_1-positive_weight_0.1", "sharpness_2-positive_weight_0.05"),
        *("inner_product", "cosine"),
    ]
    assert variants[0].overrides == ()
    assert variants[1].overrides == ["--sharpness=1.0", "--positive_weight=0.05"]
    assert "CosineSimilarity" in variants[-1].yaml.read_text()
    assert "angular_bias: 0.0" in variants[-2].yaml.read_text()
    moved = variants_of(base, grid, [], tmp_path, ["--sharpness=7"])
    assert moved[0].name == "sharpness_7-positive_weight_0.1" and len(moved) == 5
    assert [variant.name for variant in variants_of(base, {}, [], tmp_path, [])] == ["simple"]
    with pytest.raises(ValueError, match="no numbers rounds"):
        variants_of(base, {"rounds": [1.0]}, [], tmp_path, [])


def test_the_grid_takes_sizes_of_the_queue(tmp_path):
    variants = variants_of(ROOT / "hparams/mini.yaml", {"queue_size": [64, 4096]}, [], tmp_path, [])
    assert [variant.name for variant in variants] == ["queue_size_4096", "queue_size_64"]
    assert variants[1].overrides == ["--queue_size=64"]


def test_unknown_losses_are_named_with_the_known_ones():
    base = ROOT / "hparams/mini.yaml"
    assert loss_file("aamsoftmax", base).is_file()
    with pytest.raises(ValueError, match=r"no loss arcsoftmax.*aamsoftmax"):
        loss_file("arcsoftmax", base)


def test_a_recipe_s_own_losses_come_first():
    base = ROOT / "recipes/CUB200/hparams/cub40_small.yaml"
    assert loss_file("contrastive", base).parent == base.parent / "losses"
    assert loss_file("supcon", base).parent == ROOT / "hparams/losses"


def test_retrieval_is_compared_by_its_own_metrics(tmp_path):
    found = {"map_at_r": 20.0, "precision_at_1": 60.0, "r_precision": 30.0, "nmi": 70.0}
    runs = [
        Run(name, seed, {"test": found | {"map_at_r": value + seed}})
        for name, value in (("simple", 20.0), ("triplet", 17.0))
        for seed in (1, 2)
    ]
    text = write_comparison(tmp_path, "`command`", runs)
    assert "test, MAP@R %" in text and "Δ MAP@R vs simple (paired)" in text
    assert "| triplet | 18.50" in text and "-3.00 ± 0.00 |" in text and "EER" not in text


def test_options_for_all_must_not_undo_a_loss(tmp_path):
    """SimPLE's positive_weight is alpha, SphereFace2's lambda; the balanced loss has r = 1."""
    base = ROOT / "hparams/mini.yaml"
    for loss, option in (("sphereface2", "positive_weight"), ("balanced", "sharpness")):
        with pytest.raises(ValueError, match=f"--{option} would replace"):
            compare(base, [loss], [1], tmp_path, [f"--{option}=0.2"])
    with pytest.raises(ValueError, match="--angular_bias would replace"):
        variants_of(base, {}, ["inner_product"], tmp_path, ["--angular_bias=0.4"])
    assert not list(tmp_path.rglob("metrics.json"))


def test_whole_experiments_are_compared_as_they_are(tmp_path):
    """Also with options that their loss has, which a file of a loss alone would refuse."""
    base, softmax = ROOT / "hparams/mini.yaml", tmp_path / "softmax.yaml"
    write_experiment(base, ROOT / "hparams/losses/softmax.yaml", softmax)
    variants = loss_variants(base, [str(softmax), "normface"], tmp_path, [])
    assert [variant.yaml for variant in variants[:2]] == [base, softmax]
    assert variants[2].yaml == tmp_path / "experiments/normface.yaml"
    assert loss_variants(base, [str(softmax)], tmp_path, ["--num_classes=3"])[1].yaml == softmax


def test_options_after_the_dashes_are_those_of_training():
    assert split_overrides(["x", "--", "--a=1", "--"]) == (["x"], ["--a=1", "--"])
    assert split_overrides(["x"]) == (["x"], [])
    spaced = ["--", "--steps", "64", "--debug", "--width", "64"]
    assert split_overrides(spaced) == ([], ["--steps=64", "--debug", "--width=64"])


def test_an_option_that_one_of_the_losses_lacks_is_refused_before_any_is_trained(tmp_path):
    base = ROOT / "hparams/mini.yaml"
    with pytest.raises(ValueError, match=r"--queue_size is not a key of .*softmax\.yaml"):
        compare(base, ["softmax"], [1], tmp_path, ["--queue_size=64", "--precision=bf16"])
    assert not (tmp_path / "simple").exists()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "corpus"
    make_toy_corpus(
        folder, train_speakers=4, valid_speakers=2, test_speakers=2, recordings_per_speaker=2
    )
    return folder


def run_tool(main, monkeypatch, capsys, *arguments):
    """The exit code and the errors of a tool; what it trains are processes of their own."""
    monkeypatch.setattr(sys, "argv", [main.__module__, *map(str, arguments)])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return main(), capsys.readouterr().err


def test_losses_are_compared_and_nothing_is_done_twice(corpus, tmp_path, monkeypatch, capsys):
    output = tmp_path / "losses"
    base = ROOT / "hparams/mini.yaml"
    command = [compare_losses.main, monkeypatch, capsys, base, "--losses", "softmax", "--seeds"]
    command += [7, 8, "-o", output, "--at-once=2", "--", f"--data_folder={corpus}", *TINY]
    code, errors = run_tool(*command)
    assert code == 0, errors
    results = {
        name: [output / name / str(seed) / "metrics.json" for seed in (7, 8)]
        for name in ("simple", "softmax")
    }
    table = (output / "table.md").read_text()
    for name, paths in results.items():
        eers = [json.loads(path.read_text())["eer"] for path in paths]
        assert f"| {name} | {estimate(eers).text(2)} |" in table
    times = {path: path.stat().st_mtime_ns for paths in results.values() for path in paths}
    assert run_tool(*command)[0] == 0 and (output / "table.md").read_text() == table
    assert {path: path.stat().st_mtime_ns for path in times} == times
    # Other settings must not be mistaken for these.
    code, errors = run_tool(*command, "--learning_rate=0.3")
    assert code == 1 and "other settings" in errors


def test_the_ablation_runs_and_failures_are_told(corpus, tmp_path, monkeypatch, capsys):
    """An option for all that is varied, too, gives way to the grid."""
    command = [ablate.main, monkeypatch, capsys, ROOT / "hparams/mini.yaml", "--sharpness=2", "-o"]
    overrides = ["--", f"--data_folder={corpus}", *TINY]
    code, errors = run_tool(*command, tmp_path / "a", *overrides, "--sharpness=3")
    assert code == 0, errors
    table = (tmp_path / "a/table.md").read_text()
    assert "| sharpness_3 |" in table and "| sharpness_2 |" in table
    code, errors = run_tool(*command, tmp_path / "b", *overrides, "--learning_rat=1")
    assert code == 1 and "--learning_rat is not a key of" in errors
    code, errors = run_tool(*command, tmp_path / "b", *overrides, "--learning_rate=-1")
    assert code == 1 and "learning rate" in errors and "train.log" in errors


def test_a_training_that_outlived_its_tool_is_left_alone(tmp_path):
    """It holds its log, as its standard output; only when it ends is the folder free again."""
    lock = "import fcntl, sys, time; fcntl.flock(1, fcntl.LOCK_EX); "
    with (tmp_path / "train.log").open("a") as log:
        left_over = subprocess.Popen(
            [sys.executable, "-c", f"{lock} print('here', flush=True); time.sleep(60)"], stdout=log
        )
    try:
        while not (tmp_path / "train.log").read_text():
            assert left_over.poll() is None
        with pytest.raises(BlockingIOError, match="still at work"):
            run_once(Variant("a", ROOT / "hparams/mini.yaml"), 1, tmp_path, [])
    finally:
        left_over.kill()
        left_over.wait()


def test_lists_without_labels_cannot_be_compared(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps({"lists": {"x": {"trials": 3}}}))
    with pytest.raises(ValueError, match="x have no metric in common"):
        run_once(Variant("a", ROOT / "hparams/mini.yaml"), 1, folder, [])


def test_after_a_failure_no_other_training_begins(tmp_path):
    """Seeds come in order, each when all variants have it; what was done before is only read."""
    variants = [Variant(name, ROOT / "hparams/mini.yaml") for name in ("a", "b")]
    for seed, names in {5: "ab", 4: "ab", 6: "b"}.items():
        for name in names:
            folder = tmp_path / name / str(seed)
            folder.mkdir(parents=True)
            lists = {"x": metrics(float(seed))}
            (folder / "metrics.json").write_text(json.dumps({"lists": lists}))
    nowhere = ["--prepare=null", f"--data_folder={tmp_path}/nowhere"]
    seeds = run_all(variants, [5, 4, 6, 7], tmp_path, nowhere)
    assert [(run.variant, run.seed) for run in next(seeds)] == [("a", 5), ("b", 5)]
    assert [run.seed for run in next(seeds)] == [4, 4]
    with pytest.raises(ChildProcessError, match="no manifest at"):
        next(seeds)
    assert not (tmp_path / "a/7").exists()
    for at_once in (0, -1):
        with pytest.raises(ValueError, match="--at-once must be 1 or more"):
            next(run_all(variants, [5], tmp_path, [], at_once))


def test_a_run_that_failed_before_its_first_checkpoint_may_be_corrected(tmp_path, monkeypatch):
    experiment, folder = tmp_path / "one.yaml", tmp_path / "run"
    metrics = json.dumps({"lists": {"all": {"eer": 5.0}}})

    def train(arguments, log, threads):
        if "misspelt" in experiment.read_text():
            raise ChildProcessError("a key has no effect")
        write_text(folder / "metrics.json", metrics)

    monkeypatch.setattr("tools.experiment_runs._train", train)
    experiment.write_text("misspelt: 1")
    with pytest.raises(ChildProcessError):
        run_once(Variant("one", experiment), 1, folder, [])
    experiment.write_text("spelt: 1")
    assert run_once(Variant("one", experiment), 1, folder, []) == {"all": {"eer": 5.0}}
    experiment.write_text("spelt: 2")
    with pytest.raises(ValueError, match="other settings"):
        run_once(Variant("one", experiment), 1, folder, [])
