"""Laws of resampling speakers, against a reference that writes out every copy of every trial."""

import json
import math
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from simple_spk.cli.commands import compare as command
from simple_spk.data.trials import Trials
from simple_spk.evaluation import bootstrap
from simple_spk.evaluation.bootstrap import MetricOptions, compare, intervals
from simple_spk.evaluation.metrics import prior_name, summary
from simple_spk.evaluation.score_files import write_scores


class List(NamedTuple):
    """Labeled trials (n,) with their speakers, as the functions take them."""

    is_target: NDArray[np.bool_]
    enroll_speaker: NDArray[np.int64]
    test_speaker: NDArray[np.int64]


def made_list(
    seed: int, speakers: int = 12, targets: int = 15, nontargets: int = 200
) -> tuple[NDArray[np.float64], List]:
    """Scores that depend on the speaker of a target trial, and on both of any other."""
    random = np.random.default_rng(seed)
    same = np.repeat(np.arange(speakers), targets)
    first = random.integers(speakers, size=nontargets)
    second = (first + random.integers(1, speakers, size=nontargets)) % speakers
    ease, likeness = random.normal(size=(2, speakers)) * [[0.6], [0.3]]
    means = [4.0 + ease[same], likeness[first] + likeness[second]]
    scores = np.concatenate(means) + random.normal(size=len(same) + nontargets)
    labels = np.arange(len(scores)) < len(same)
    order = random.permutation(len(scores))
    trials = List(labels, np.append(same, first), np.append(same, second))
    return scores[order], List(*(column[order] for column in trials))


def flat(figures: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """The measures of nested figures by their keys, and nothing else."""
    found = {(name,): figures[name] for name in ("eer", "cllr", "min_cllr")}
    for kind in ("min_dcf", "act_dcf"):
        found |= {(kind, prior): value for prior, value in figures[kind].items()}
    return found


@pytest.mark.parametrize("decimals", [0, 1, 9])
@pytest.mark.parametrize("seed", range(4))
def test_a_replicate_is_a_list_with_every_trial_copied(seed: int, decimals: int) -> None:
    scores, trials = made_list(seed, speakers=6, nontargets=100)
    scores = np.round(scores, decimals)
    costs = [(0.01, 1.0, 1.0), (0.3, 2.0, 5.0)]
    speakers = np.stack([trials.enroll_speaker, trials.test_speaker]).astype(np.int32)
    resampled = bootstrap._Resampled(scores, trials.is_target, speakers, costs)
    random = np.random.default_rng(seed)
    for _ in range(10):
        times = np.bincount(random.integers(6, size=6), minlength=6)
        copies = [
            times[a] if same else times[a] * times[b] for same, a, b in zip(*trials, strict=True)
        ]
        measures = resampled.measures(times)
        if not np.any(np.repeat(~trials.is_target, copies)):
            assert np.isnan(measures).all()
            continue
        written = np.repeat(scores, copies), np.repeat(trials.is_target, copies)
        expected: dict[tuple[str, ...], float] = {}
        for prior, *cost_pair in costs:
            figures = flat(summary(*written, None, [prior], *cost_pair))
            expected |= figures
            assert ("min_dcf", prior_name(prior)) in expected
        found = flat(bootstrap._by_name(measures.tolist(), [prior for prior, *_ in costs]))
        assert found == pytest.approx(expected, abs=1e-9)


def test_results_are_plain_json_that_a_seed_determines() -> None:
    scores, trials = made_list(0)
    found = intervals(scores, *trials, MetricOptions(replicates=50, seed=3))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found == intervals(scores, *trials, MetricOptions(replicates=50, seed=3))
    assert found != intervals(scores, *trials, MetricOptions(replicates=50, seed=4))
    facts = {name: found[name] for name in ("level", "replicates", "seed", "speakers")}
    assert facts == {"level": 0.95, "replicates": 50, "seed": 3, "speakers": 12}
    for key, value in flat(summary(scores, trials.is_target)).items():
        low, high = flat(found)[key]
        assert 0.0 <= low < value < high, key


def test_neither_the_order_of_trials_nor_the_names_of_speakers_matter() -> None:
    scores, trials = made_list(1)
    order = np.random.default_rng(0).permutation(len(scores))
    shuffled = List(*(column[order] for column in trials))
    renamed = shuffled._replace(
        enroll_speaker=7 * shuffled.enroll_speaker - 3, test_speaker=7 * shuffled.test_speaker - 3
    )
    expected = flat(intervals(scores, *trials, MetricOptions(replicates=20)))
    for key, value in flat(
        intervals(scores[order], *renamed, MetricOptions(replicates=20))
    ).items():
        assert value == pytest.approx(expected[key]), key


def test_more_speakers_or_a_lower_level_narrow_the_interval() -> None:
    def width(speakers: int, level: float = 0.95) -> float:
        scores, trials = made_list(2, speakers, nontargets=100 * speakers)
        low, high = intervals(scores, *trials, MetricOptions(replicates=200, level=level))["eer"]
        return high - low

    assert width(80) < 0.75 * width(20)
    assert width(20, level=0.5) < 0.5 * width(20)


def test_no_interval_leaves_what_a_measure_can_be() -> None:
    """The least cost of all thresholds or calibrations is at most 1, however few the speakers."""
    exceeded = 0
    for seed in range(5):
        scores, trials = made_list(seed, speakers=5, targets=2, nontargets=30)
        found = flat(intervals(scores / 100, *trials, MetricOptions(replicates=50)))
        for key, (low, high) in found.items():
            assert 0.0 <= low <= high
            assert high <= 1.0 or not key[0].startswith("min_"), key
            exceeded += high == 1.0
    assert exceeded


def test_repeating_every_trial_makes_nobody_surer() -> None:
    """The number of trials is not what counts, which is why trials are not what is resampled."""
    scores, trials = made_list(3)
    often = List(*(np.tile(column, 5) for column in trials))
    expected = flat(intervals(scores, *trials, MetricOptions(replicates=20)))
    for key, value in flat(
        intervals(np.tile(scores, 5), *often, MetricOptions(replicates=20))
    ).items():
        assert value == pytest.approx(expected[key]), key


def test_intervals_hold_the_true_equal_error_rate_about_as_often_as_they_say() -> None:
    # Scores of both classes are normal over all speakers, with these deviations 4 apart.
    deviations = math.hypot(0.6, 1.0) + math.sqrt(2 * 0.3**2 + 1.0)
    truth = 50 * math.erfc(4.0 / deviations / math.sqrt(2))
    held = 0
    for seed in range(60):
        scores, trials = made_list(seed, speakers=30, targets=20, nontargets=1500)
        low, high = intervals(scores, *trials, MetricOptions(replicates=60, seed=seed))["eer"]
        held += low <= truth <= high
    assert 0.85 <= held / 60 <= 1.0
    assert held < 60 or high - low < truth  # nor are they so wide that they say nothing


def test_a_system_does_not_differ_from_itself_but_from_a_worse_one() -> None:
    scores, trials = made_list(4, speakers=40, nontargets=2000)
    noise = np.random.default_rng(0).normal(size=len(scores))
    itself = compare(scores, 2.0 * scores + 1.0, *trials, MetricOptions(replicates=50))
    assert itself["eer"] == {
        "a": pytest.approx(summary(scores, trials.is_target)["eer"]),
        "b": pytest.approx(itself["eer"]["a"]),
        "difference": pytest.approx(0.0, abs=1e-9),
        "interval": pytest.approx([0.0, 0.0], abs=1e-9),
        "p_value": 1.0,
    }
    worse = compare(scores, scores + 1.5 * noise, *trials, MetricOptions(replicates=100))
    for measure in (worse["eer"], worse["min_dcf"]["0.05"]):
        assert measure["p_value"] < 0.01 and 0.0 < measure["interval"][0] < measure["difference"]
    mirrored = compare(scores + 1.5 * noise, scores, *trials, MetricOptions(replicates=100))
    assert mirrored["eer"]["interval"] == pytest.approx(
        [-bound for bound in reversed(worse["eer"]["interval"])]
    )
    assert mirrored["eer"]["p_value"] == pytest.approx(worse["eer"]["p_value"])


def test_pairing_sees_what_two_intervals_do_not() -> None:
    scores, trials = made_list(5, speakers=40, nontargets=2000)
    slightly_worse = scores + 0.2 * np.random.default_rng(1).normal(size=len(scores))
    paired = compare(scores, slightly_worse, *trials, MetricOptions(replicates=100))["eer"][
        "interval"
    ]
    alone = intervals(scores, *trials, MetricOptions(replicates=100))["eer"]
    assert paired[1] - paired[0] < 0.8 * (alone[1] - alone[0])


def test_systems_that_are_equally_good_rarely_differ() -> None:
    false_alarms = 0
    for seed in range(40):
        scores, trials = made_list(seed, speakers=30, nontargets=600)
        noises = np.random.default_rng(seed).normal(size=(2, len(scores)))
        found = compare(*(scores + noises), *trials, MetricOptions(replicates=50, seed=seed))
        false_alarms += found["eer"]["p_value"] < 0.05
    assert false_alarms <= 6  # 2 are expected; 7 or more come once in 300 times


def test_draws_without_a_class_are_counted_and_too_many_refused() -> None:
    scores, trials = made_list(6, speakers=3, targets=4, nontargets=30)
    found = intervals(scores, *trials, MetricOptions(replicates=300))
    # Non-targets are gone if the three draws are all of one speaker: 3 of 27.
    assert found["unusable_replicates"] == pytest.approx(300 / 9, rel=0.5)
    with pytest.raises(ValueError, match="too few speakers"):
        intervals([1.0, 0.0], [True, False], [0, 1], [0, 2], MetricOptions(replicates=100))


def test_unusable_arguments_are_refused() -> None:
    scores, trials = made_list(7)
    with pytest.raises(ValueError, match=r"test_speaker has shape \(2,\) and type int64"):
        intervals(scores, trials.is_target, trials.enroll_speaker, np.array([1, 2]))
    with pytest.raises(ValueError, match="type float64; expected integers"):
        intervals(scores, trials.is_target, trials.enroll_speaker.astype(float), trials[2])
    with pytest.raises(ValueError, match="1 of 3 labels contradict the speakers, first the target"):
        intervals([1.0, 2.0, 3.0], [1, 0, 1], [0, 0, 5], [0, 1, 6])
    with pytest.raises(ValueError, match="replicates must be at least 2"):
        intervals(scores, *trials, MetricOptions(replicates=0))
    with pytest.raises(ValueError, match="seed must be at least 0"):
        intervals(scores, *trials, MetricOptions(replicates=10, seed=-1))
    with pytest.raises(ValueError, match="level must lie"):
        intervals(scores, *trials, MetricOptions(level=95))
    with pytest.raises(ValueError, match="scores must be finite"):
        intervals(np.full(len(scores), np.nan), *trials)


def test_the_command_compares_files_whatever_the_order_of_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores, made = made_list(8, speakers=10, targets=10, nontargets=150)
    count = len(scores)
    others = scores + np.random.default_rng(0).normal(size=count)
    # Every trial has recordings of its own, whose names begin with their speakers.
    sides = [made.enroll_speaker, made.test_speaker]
    names = [
        f"s{speaker}/{side}-{row}" for side in (0, 1) for row, speaker in enumerate(sides[side])
    ]
    rows = np.arange(count, dtype=np.int32)
    trials = Trials(names, rows, rows + count, made.is_target)
    order = np.random.default_rng(1).permutation(count)
    shuffled = Trials(names, rows[order], rows[order] + count, made.is_target[order])
    write_scores(tmp_path / "a.txt", trials, scores)
    write_scores(tmp_path / "b.txt", shuffled, others[order])

    def run(*arguments: object) -> str:
        parser = ArgumentParser()
        command.add_arguments(parser)
        files = (tmp_path / "a.txt", tmp_path / "b.txt")
        command.run(parser.parse_args([str(argument) for argument in (*files, *arguments)]))
        return capsys.readouterr().out

    settings = ("--replicates", 40, "--seed", 2)
    found = json.loads(run(*settings, "--json"))
    assert (found.pop("a"), found.pop("b")) == (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    assert found.pop("list")
    expected = compare(scores, others, *made, MetricOptions(replicates=40, seed=2))
    for name, value in expected["eer"].items():
        assert found["eer"][name] == pytest.approx(value), name
    assert f"{expected['eer']['difference']:+.4f}" in run(*settings, "--json", tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["eer"] == found["eer"]

    shorter = Trials(names, rows[1:], rows[1:] + count, made.is_target[1:])
    write_scores(tmp_path / "b.txt", shorter, others[1:])
    with pytest.raises(ValueError, match=r"b\.txt"):
        run(*settings)
