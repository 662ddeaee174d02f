"""Laws of calibration: it finds what is there to be found, and never more than a rising line."""

import json
import math
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from simple_spk.cli.commands import calibrate
from simple_spk.data.manifest import write_manifest
from simple_spk.data.trials import Trials
from simple_spk.evaluation import quality_measures as quality_module
from simple_spk.evaluation.calibration import Calibration, train_calibration
from simple_spk.evaluation.embedding_files import write_embeddings
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.quality_measures import pack_background, quality_measures, typicality
from simple_spk.evaluation.score_files import write_scores


def true_ratios(count: int, seed: int, mean: float = 6.0) -> tuple[NDArray, NDArray]:
    """Log likelihood ratios (count,) of two normal classes, and labels, a fifth of them targets."""
    random = np.random.default_rng(seed)
    is_target = np.arange(count) % 5 == 0
    # Where mean and half the variance agree, a value is its own log likelihood ratio.
    return random.normal(np.where(is_target, mean, -mean), math.sqrt(2 * mean)), is_target


def cllr_of(scores: NDArray, is_target: NDArray) -> float:
    return summary(scores, is_target)["cllr"]


@pytest.mark.parametrize("prior", [0.01, 0.5, 0.9])
def test_it_undoes_what_was_done_to_true_ratios(prior: float) -> None:
    ratios, is_target = true_ratios(200_000, seed=0)
    calibration = train_calibration(100.0 + 0.02 * ratios, is_target, target_prior=prior)
    assert calibration.score_weight == pytest.approx(50.0, rel=0.1)
    found = calibration.apply(100.0 + 0.02 * ratios)
    np.testing.assert_allclose(found, ratios, rtol=0.1, atol=0.3)
    others, labels = true_ratios(200_000, seed=1)
    cllr = cllr_of(calibration.apply(100.0 + 0.02 * others), labels)
    assert cllr == pytest.approx(cllr_of(others, labels), rel=0.05)


@pytest.mark.parametrize("prior", [0.003, 0.5, 0.8])
def test_it_is_the_weighted_logistic_regression_of_a_library(prior: float) -> None:
    random = np.random.default_rng(0)
    is_target = random.random(500) < 0.3
    scores = random.normal(size=500) + is_target
    duration = random.normal(size=500) + 0.4 * is_target
    ours = train_calibration(scores, is_target, {"duration": duration}, prior)
    share = np.where(is_target, prior / is_target.sum(), (1 - prior) / (~is_target).sum())
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    theirs.fit(np.stack([scores, duration], 1), is_target, sample_weight=500 * share)
    slopes = [ours.score_weight, ours.quality_weights["duration"]]
    assert slopes == pytest.approx(theirs.coef_[0], rel=1e-3)
    # Theirs contains the prior's log odds, which belong to the application.
    odds = math.log(prior / (1 - prior))
    assert ours.offset == pytest.approx(theirs.intercept_[0] - odds, rel=1e-3, abs=1e-3)


def test_at_equal_priors_no_line_has_a_lower_cllr() -> None:
    ratios, is_target = true_ratios(2000, seed=2)
    scores = np.arctan(ratios / 9)
    best = train_calibration(scores, is_target, target_prior=0.5)
    lowest = cllr_of(best.apply(scores), is_target)
    assert lowest <= cllr_of(scores, is_target)
    for weight in (0.99, 1.0, 1.01):
        for shift in (-0.02, 0.0, 0.02):
            line = replace(
                best, score_weight=weight * best.score_weight, offset=best.offset + shift
            )
            assert cllr_of(line.apply(scores), is_target) >= lowest - 1e-9


def test_neither_unit_nor_zero_of_a_feature_matters() -> None:
    ratios, is_target = true_ratios(3000, seed=3)
    length = np.random.default_rng(1).normal(10.0, 2.0, size=3000) + is_target
    found = train_calibration(ratios, is_target, {"x": length}).apply(ratios, {"x": length})
    moved = (1e-4 * ratios - 7.0, {"x": 1e5 * length + 1e6})
    again = train_calibration(moved[0], is_target, moved[1]).apply(*moved)
    np.testing.assert_allclose(again, found, atol=1e-4)


def test_what_lowers_scores_helps_to_judge_them() -> None:
    ratios, is_target = true_ratios(20_000, seed=4)
    random = np.random.default_rng(5)
    seconds = random.uniform(1.0, 20.0, size=500)
    enroll, test = random.integers(500, size=(2, 20_000))
    quality = quality_measures(enroll, test, durations_seconds=seconds)
    scores = ratios + 3.0 * quality["least_log_duration"]
    plain = train_calibration(scores, is_target).apply(scores)
    informed = train_calibration(scores, is_target, quality).apply(scores, quality)
    assert summary(informed, is_target)["eer"] < summary(plain, is_target)["eer"] - 0.5
    np.testing.assert_allclose(informed, ratios, rtol=0.2, atol=1.5)


def test_a_measure_beyond_what_was_seen_counts_as_the_last_that_was() -> None:
    """Nothing was learned there: an hour is no hundred times better evidence than half a minute."""
    ratios, is_target = true_ratios(2000, seed=11)
    seconds = np.random.default_rng(0).uniform(1.0, 30.0, size=2000)
    calibration = train_calibration(ratios - 3.0 / seconds, is_target, {"x": seconds})
    at = [
        float(calibration.apply([1.0], {"x": np.array([x])})[0]) for x in (0.1, 1.0, 30.0, 3600.0)
    ]
    assert at[0] == pytest.approx(at[1], abs=0.01) and at[2] == pytest.approx(at[3], abs=0.01)
    assert abs(at[2] - at[1]) > 0.1


def test_quality_measures_are_symmetric_and_as_defined() -> None:
    seconds, table = np.array([1.0, math.e, 4.0]), np.array([[3.0, 4.0], [0.0, 1.0], [8.0, 6.0]])
    enroll, test = np.array([0, 1, 2]), np.array([1, 1, 0])
    found = quality_measures(enroll, test, seconds, table.astype(np.float32))
    assert found["least_log_duration"] == pytest.approx([0.0, 1.0, 0.0])
    assert found["greatest_log_duration"] == pytest.approx([1.0, 1.0, math.log(4.0)])
    assert found["least_length"].tolist() == [1.0, 1.0, 5.0]
    assert found["greatest_length"].tolist() == [5.0, 1.0, 10.0]
    mirrored = quality_measures(test, enroll, seconds, table)
    for name, values in found.items():
        np.testing.assert_array_equal(mirrored[name], values)
    assert quality_measures(enroll, test) == {}
    with pytest.raises(
        ValueError, match=r"must be positive: 1 of 3 are not, the first at index 1: 0\.0"
    ):
        quality_measures(enroll, test, np.array([1.0, 0.0, 2.0]))


def threshold(calibration: Calibration, rate: float, **options: Any) -> float:
    return calibration.threshold_at(rate, **options).log_likelihood_ratio


def test_thresholds_of_false_accept_rates_hold_on_other_trials_and_beyond_the_list() -> None:
    ratios, is_target = true_ratios(200_000, seed=8)
    calibration = train_calibration(0.02 * ratios, is_target)
    others, labels = true_ratios(200_000, seed=9)
    fresh = calibration.apply(0.02 * others[~labels])
    for rate in (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4):
        found = np.mean(fresh >= threshold(calibration, rate))
        assert found == pytest.approx(rate, rel=0.1, abs=4 * math.sqrt(rate / len(fresh)))
    law = NormalDist(-6.0, math.sqrt(12.0))  # 160,000 non-targets tell little below 1e-4
    for rate in (1e-4, 1e-5, 1e-6):
        assert threshold(calibration, rate) == pytest.approx(law.inv_cdf(1 - rate), abs=2.0)
        extrapolated = calibration.threshold_at(rate).extrapolated
        assert extrapolated == (rate * 160_000 < 10)


def test_thresholds_hold_under_each_quality() -> None:
    """Where bad recordings make scores of strangers spread, a threshold is higher there."""
    random = np.random.default_rng(1)
    is_target = np.arange(300_000) % 5 == 0
    noise = random.integers(2, size=300_000).astype(float)
    spread = 1.0 + 0.8 * noise
    scores = random.normal(np.where(is_target, 4.0, 0.0), spread)
    calibration = train_calibration(scores, is_target, {"noise": noise}, 0.5)
    ratios = calibration.apply(scores, {"noise": noise})
    at = calibration.thresholds_at(1e-3, {"noise": noise}, len(scores))
    misses = calibration.miss_rates(at, {"noise": noise})
    assert misses is not None
    for level in (0.0, 1.0):
        strangers = (noise == level) & ~is_target
        assert np.mean(ratios[strangers] >= at[strangers]) == pytest.approx(1e-3, rel=0.5)
        own = (noise == level) & is_target
        assert np.mean(ratios[own] < at[own]) == pytest.approx(misses[own].mean(), abs=0.05)
    for rate in (0.3, 1e-3, 1e-7):
        at = calibration.thresholds_at(rate, {"noise": noise}, len(scores))[:9]
        assert calibration.false_accept_rates(at, {"noise": noise[:9]}) == pytest.approx(rate)


def test_a_background_tells_typical_channels_from_others() -> None:
    """Strangers who share what most speakers share score higher; thresholds know it."""
    random = np.random.default_rng(2)
    background = np.eye(24)[:1]
    is_typical = np.arange(2000) % 2 == 0
    own = random.normal(size=(2000, 24)) / math.sqrt(24)  # no longer or shorter than the background
    embeddings = own + np.where(is_typical[:, None], background, own[::-1])
    enroll = random.integers(2000, size=100_000)
    test = (enroll + 2 * random.integers(1, 1000, size=100_000)) % 2000
    is_target = np.arange(100_000) % 10 == 0
    scores = np.einsum("ij,ij->i", embeddings[enroll], embeddings[test]) + 3.0 * is_target
    for others, holds in ((background, True), (None, False)):
        packed = "" if others is None else pack_background(others)
        quality = quality_measures(enroll, test, None, embeddings, None, packed)
        trained = train_calibration(scores, is_target, quality, 0.5, "", others)
        reached = trained.apply(scores, quality) >= trained.thresholds_at(
            1e-2, quality, len(scores)
        )
        rates = [reached[~is_target & (is_typical[test] == kind)].mean() for kind in (True, False)]
        assert holds == all(0.003 < rate < 0.03 for rate in rates)
        assert trained.background == packed
    with pytest.raises(
        ValueError, match="a background of 3 numbers, which are not embeddings of 24"
    ):
        quality_measures(enroll, test, None, embeddings, None, pack_background(np.ones((1, 3))))


def test_typicality_is_the_mean_of_the_highest_products(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    embeddings = random.normal(size=(10, 6)).astype(np.float32)
    others = random.integers(-8, 8, size=(200, 6)).astype(np.float32)  # exact in 16 bits
    expected = np.sort(embeddings @ others.T, axis=1)[:, -10:].mean(axis=1)  # 5 % of 200
    monkeypatch.setattr(quality_module, "BLOCK_ROWS", 4)
    assert typicality(embeddings, pack_background(others)) == pytest.approx(expected, rel=1e-5)


def test_the_background_of_an_old_file_is_read_as_one_embedding() -> None:
    plain = Calibration(1.0, 0.0, {}, 0.5, "list", 9, 5).plain() | {"background": [0.5, -0.25]}
    packed = pack_background(np.array([[0.5, -0.25]]))
    assert Calibration.from_plain(plain).background == packed


def test_thresholds_rise_smoothly_as_rates_fall_and_say_when_they_are_extrapolated() -> None:
    ratios, is_target = true_ratios(5000, seed=10)
    trained = train_calibration(ratios, is_target)
    old = Calibration.from_plain(
        json.loads((Path(__file__).with_name("calibration_2.json")).read_text())
    )
    for calibration, least in ((trained, 0.0025), (old, 1.44e-4)):
        rates = np.geomspace(0.5, 1e-12, 400)
        found = [calibration.threshold_at(rate) for rate in rates]
        steps = np.diff([one.log_likelihood_ratio for one in found])
        assert np.all(steps > 0.0)
        assert steps[100:].max() < 0.5  # no jump: the old rule had one of 4
        for rate, one in zip(rates, found, strict=True):
            assert one.extrapolated == (rate < least)
    assert threshold(old, 1e-3) == pytest.approx(3.807, abs=1e-3)  # as the file has it
    unknown = replace(trained, nontarget_spread=None)
    assert unknown.threshold_at(1e-3) == (pytest.approx(math.log(1e3)), True)
    assert threshold(trained, 0.05, voices=10) == threshold(trained, 0.005)
    for rate in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            trained.threshold_at(rate)


@pytest.mark.parametrize("prior", [0.01, 0.5])
def test_where_no_error_was_seen_ratios_reach_as_far_as_trials_bear_out(prior: float) -> None:
    """Two scores, one for each class: a rate that was 0 of n counts as 1 of n + 2."""
    scores = np.repeat([0.0, 1.0], [300, 40])
    separable = train_calibration(scores, scores > 0.5, target_prior=prior)
    ratios = separable.apply([0.0, 1.0])
    assert ratios == pytest.approx([-math.log(42), math.log(302)], abs=1e-3)
    mirrored = train_calibration(-scores, scores > 0.5, target_prior=prior)
    assert mirrored.apply([0.0, -1.0]) == pytest.approx(ratios, abs=1e-6)
    # An error of each kind is enough to learn from: all is as the likelihood has it.
    scores[0], scores[-1] = 1.0, 0.0
    seen = train_calibration(scores, np.arange(340) >= 300, target_prior=prior)
    expected = [math.log((1 / 40) / (299 / 300)), math.log((39 / 40) / (1 / 300))]
    assert seen.apply([0.0, 1.0]) == pytest.approx(expected, abs=1e-3)
    scores[-1] = 1.0  # no target was missed: still nothing says how rare that is
    one_sided = train_calibration(scores, np.arange(340) >= 300, target_prior=prior)
    assert -math.log(50) < one_sided.apply([0.0])[0] < -math.log(40)


def test_separable_and_constant_scores_have_finite_weights() -> None:
    separable = train_calibration([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1])
    ratios = separable.apply([1.0, 2.0, 3.0, 4.0])
    assert ratios[1] < 0 < ratios[2] and np.all(np.diff(ratios) > 0)
    assert np.abs(ratios).max() < 3.0
    constant = train_calibration([0.1] * 7, [0, 0, 0, 0, 1, 1, 1], {"x": np.full(7, 0.3)})
    assert constant.apply([0.1], {"x": np.array([0.3])}) == pytest.approx([0.0], abs=1e-6)


def test_a_saved_calibration_is_the_same_to_the_bit(tmp_path: Path) -> None:
    ratios, is_target = true_ratios(50, seed=6)
    trained = train_calibration(ratios, is_target, {"x": ratios**2}, trained_on="Vöx/list.txt")
    trained.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == trained
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.json"]


SPREAD = {"center_weights": {}, "log_deviation_weights": {}, "levels": [[0.1, 1.0]], "count": 9}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calibration_version": 1}, "no calibration of version 3"),
        ({"score_weight": "1.0"}, "score_weight is '1.0' and not a finite number"),
        ({"offset": math.inf}, "offset is inf"),
        ({"quality_weights": [1]}, "quality_weights is not a mapping"),
        ({"quality_weights": {"x": True}}, "x is True"),
        ({"target_prior": 1.0}, "target_prior is 1.0"),
        ({"trials": "many"}, "trials is 'many'"),
        ({"trials": True}, "trials is True"),
        ({"trials": 10**400}, "trials is 1000"),
        ({"surprise": 1}, "found the fields .*surprise"),
        ({"quality_ranges": {"y": [0.0, 1.0]}}, "not a mapping of the quality measures"),
        ({"quality_ranges": {"x": [1.0, 0.0]}}, r"x is \[1.0, 0.0\]"),
        ({"quality_means": {"y": 1.0}}, "quality_means is not a mapping"),
        ({"quality_means": {"x": "1"}}, "quality_means: x is '1'"),
        ({"background": [1.0, "2"]}, "background is not a list of finite numbers"),
        ({"background": "AAA"}, "background is not base64 of finite 16-bit numbers"),
        ({"background": "AHw="}, "background is not base64 of finite 16-bit numbers"),  # infinite
        ({"background": 1.0}, "background is not base64 of finite 16-bit numbers"),
        ({"nontarget_spread": {"levels": []}}, "nontarget_spread: a spread has the fields"),
        ({"target_spread": {**SPREAD, "levels": [[1.0, 2.0]]}}, "not between 0 and 1"),
        ({"target_spread": {**SPREAD, "levels": [[0.1, 2.0], [0.1, 3.0]]}}, "rates must fall"),
        ({"target_spread": {**SPREAD, "levels": []}}, "target_spread: it has no levels"),
        ({"target_spread": {**SPREAD, "count": 0}}, "count is 0"),
        ({"target_spread": {**SPREAD, "count": 10**400}}, "count is 1000"),
        ({"target_spread": {**SPREAD, "center_weights": {"y": 1.0}}}, "not weights of the"),
        (
            {"target_spread": {**SPREAD, "center_weights": {"x": 1.0}}},
            "not weights of the",
        ),  # no mean
        ({"false_accept_thresholds": {"0.1": 1.0}}, "not a list of pairs"),
        ({"false_accept_thresholds": [[0.1, math.nan]]}, "not a list of pairs"),
        ({"false_accept_thresholds": [[1.0, 2.0]]}, "not between 0 and 1"),
        ({"false_accept_thresholds": [[0.1, 2.0], [0.1, 3.0]]}, "rates must fall"),
        ({"false_accept_thresholds": [[0.1, 2.0], [0.01, 1.0]]}, "rates must fall"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    Calibration(2.0, -1.0, {"x": 0.5}, 0.01, "list", 10, 5).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message) as caught:
        Calibration.load(path)
    assert str(path) in str(caught.value)


def test_a_spread_beyond_all_measures_has_a_finite_threshold() -> None:
    spread = SPREAD | {"log_deviation_weights": {"x": 1.0}}
    plain = Calibration(2.0, -1.0, {"x": 0.5}, 0.01, "list", 10, 5).plain()
    damaged = Calibration.from_plain(
        plain | {"quality_means": {"x": 1e38}, "nontarget_spread": spread}
    )
    assert math.isfinite(damaged.threshold_at(1e-3).log_likelihood_ratio)


def test_what_is_not_json_or_not_there_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"\xff\xfe", b"[" * 100_000, b"[1]"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.json"):
            Calibration.load(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError, match="correct the path"):
        Calibration.load(tmp_path / "none.json")
    plain = Calibration(1.0, 0.0, {}, 0.5, "list", 9, 5).plain()
    with pytest.raises(ValueError, match=r"found the fields .*, 1 instead of"):
        Calibration.from_plain(plain | {1: 2})  # as YAML may have it


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(ValueError, match="0 targets and 2 non-targets"):
        train_calibration([1.0, 2.0], [0, 0])
    with pytest.raises(ValueError, match="target_prior must lie strictly"):
        train_calibration([1.0, 2.0], [0, 1], target_prior=0.0)
    with pytest.raises(ValueError, match="scores must be finite: 1 of 2 are not"):
        train_calibration([1.0, math.nan], [0, 1])
    with pytest.raises(ValueError, match=r"x has shape \(3,\); expected \(2,\)"):
        train_calibration([1.0, 2.0], [0, 1], {"x": np.zeros(3)})
    with pytest.raises(ValueError, match="needs the quality measures x:"):
        Calibration(1.0, 0.0, {"x": 1.0}, 0.5, "", 2, 1).apply([1.0], {"y": np.zeros(1)})


def command(*arguments: object) -> None:
    """Run simple-spk calibrate."""
    parser = ArgumentParser()
    calibrate.add_arguments(parser)
    calibrate.run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def scored(tmp_path: Path) -> tuple[Path, Trials, NDArray]:
    """A score file, its trials and scores."""
    ratios, is_target = true_ratios(400, seed=7)
    enroll, test = np.random.default_rng(0).permutation(np.array(np.triu_indices(30, 1)).T)[:400].T
    names = [f"recording{number}" for number in range(30)]
    trials = Trials(names, enroll.astype(np.int32), test.astype(np.int32), is_target)
    scores = 0.1 * ratios + 2.0
    write_scores(tmp_path / "scores.txt", trials, scores)
    return tmp_path / "scores.txt", trials, scores


def test_the_command_learns_what_the_function_learns(
    scored: tuple[Path, Trials, NDArray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, trials, scores = scored
    command(path, "-o", tmp_path / "calibration.json", "--target-prior", 0.2)
    found = Calibration.load(tmp_path / "calibration.json")
    expected = train_calibration(scores, trials.is_target, target_prior=0.2)
    assert found == replace(expected, trained_on="scores.txt")
    printed = capsys.readouterr()
    assert printed.err == ""
    table = dict(line.rsplit(maxsplit=2)[::2] for line in printed.out.splitlines()[3:-1])
    assert "measured down to 0.031, extrapolated" in printed.out
    assert float(table["Cllr"]) == pytest.approx(
        cllr_of(expected.apply(scores), trials.is_target), abs=1e-4
    )


def test_the_command_learns_from_durations_and_lengths(
    scored: tuple[Path, Trials, NDArray], tmp_path: Path
) -> None:
    path, trials, scores = scored
    seconds = np.random.default_rng(1).uniform(1.0, 9.0, size=30).round(3)
    table = np.random.default_rng(2).normal(size=(30, 4)).astype(np.float32)
    write_manifest(tmp_path / "x.csv", trials.ids, trials.ids, seconds.tolist(), trials.ids)
    write_embeddings(tmp_path / "x.npz", trials.ids, table)
    output = tmp_path / "calibration.json"
    command(
        path, "-o", output, "--manifest", tmp_path / "x.csv", "--embeddings", tmp_path / "x.npz"
    )
    found = Calibration.load(output)
    quality = quality_measures(trials.enroll, trials.test, seconds, table)
    expected = train_calibration(scores, trials.is_target, quality)
    assert set(found.quality_weights) == set(quality)
    np.testing.assert_allclose(
        found.apply(scores, quality), expected.apply(scores, quality), atol=1e-4
    )


def test_the_command_notes_distances_and_refuses_missing_labels(
    scored: tuple[Path, Trials, NDArray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, trials, scores = scored
    write_scores(path, trials, -scores)
    command(path, "-o", tmp_path / "calibration.json")
    assert "are these distances" in capsys.readouterr().err
    write_scores(path, replace(trials, is_target=None), scores)
    with pytest.raises(ValueError, match=r"scores\.txt has no labels: give a list with labels"):
        command(path, "-o", tmp_path / "calibration.json")
