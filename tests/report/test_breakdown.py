"""Laws of breakdowns, against one that takes a trial at a time."""

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from simple_spk.data.trials import Trials
from simple_spk.evaluation.bootstrap import MetricOptions, intervals
from simple_spk.evaluation.error_rates import error_rates
from simple_spk.evaluation.metrics import equal_error_rate, minimum_detection_cost
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.breakdown import (
    MINIMUM_SPEAKERS,
    MINIMUM_TRIALS,
    QUANTILES,
    Breakdown,
    Condition,
    breakdown,
)
from simple_spk.report.metadata import Metadata

SPEAKERS, TAKES = 24, 4


def listed(seed: int, count: int = 6000) -> tuple[ScoredTrials, np.ndarray]:
    """A scored list of random trials, some tied, and the speaker of each recording."""
    generator = np.random.default_rng(seed)
    ids = [f"s{speaker}/{take}.wav" for speaker in range(SPEAKERS) for take in range(TAKES)]
    speakers = np.repeat(np.arange(SPEAKERS), TAKES)
    enroll = generator.integers(len(ids), size=count).astype(np.int32)
    test = generator.integers(len(ids), size=count).astype(np.int32)
    again = np.arange(count) % 2 == 0  # half of them targets
    test[again] = (enroll[again] // TAKES) * TAKES + test[again] % TAKES
    is_target = speakers[enroll] == speakers[test]
    scores = np.round(generator.normal(2.0 * is_target), 2).astype(np.float32)
    return ScoredTrials(Trials(ids, enroll, test, is_target), scores, "made up"), speakers


def table(**columns: list[str]) -> Metadata:
    """Metadata of the speakers of ``listed``."""
    keys = tuple(f"s{speaker}" for speaker in range(SPEAKERS))
    return Metadata(Path("m.csv"), keys, {name: tuple(texts) for name, texts in columns.items()})


def by_recording(**columns: list[str]) -> Metadata:
    """Metadata of the recordings of ``listed``."""
    keys = tuple(f"s{speaker}/{take}.wav" for speaker in range(SPEAKERS) for take in range(TAKES))
    return Metadata(Path("m.csv"), keys, {name: tuple(texts) for name, texts in columns.items()})


def conditions(found: Breakdown, column: int = 0) -> dict[str, Condition]:
    return {one.label: one for one in found.columns[column].conditions}


WORDS = ["m", "f", "", "m", "f", "x", "m", "f"] * 3


def slow_label(left: str, right: str) -> str:
    if not left or not right:
        return "unknown"
    return f"{left}-{left}" if left == right else "cross"


@pytest.mark.parametrize("seed", range(3))
def test_words_as_by_one_trial_at_a_time(seed):
    scored, speakers = listed(seed)
    found = breakdown(scored, table(gender=WORDS), speakers, MetricOptions((0.05,)))
    trials = scored.trials
    groups = defaultdict(list)
    for index, (enroll, test) in enumerate(zip(trials.enroll, trials.test, strict=True)):
        groups[slow_label(WORDS[enroll // TAKES], WORDS[test // TAKES])].append(index)
    measured = conditions(found)
    assert set(measured) == set(groups)
    threshold = equal_error_rate(error_rates(scored.scores, trials.is_target)).threshold
    assert found.threshold == threshold
    for label, members in groups.items():
        one = measured[label]
        scores, is_target = scored.scores[members], trials.is_target[members]
        both = {*speakers[trials.enroll[members]], *speakers[trials.test[members]]}
        assert (one.trials, one.targets) == (len(members), is_target.sum())
        assert one.speakers == len(both)
        if label == "cross":
            assert one.eer is None and one.miss_rate is None and one.note == "no targets"
        elif one.eer is not None:
            rates = error_rates(scores, is_target)
            assert one.eer == 100 * equal_error_rate(rates).rate
            assert one.min_dcf == {"0.05": minimum_detection_cost(rates, 0.05).cost}
            assert one.miss_rate == pytest.approx(np.mean(scores[is_target] < threshold))
        if one.false_alarm_rate is not None:
            assert one.false_alarm_rate == np.mean(scores[~is_target] >= threshold)
    assert measured["m-m"].eer is not None and measured["f-f"].eer is not None


def test_what_is_too_small_is_named_and_not_measured():
    scored, speakers = listed(0)
    found = breakdown(scored, table(gender=WORDS), speakers)
    rare = conditions(found)["x-x"]  # three speakers
    assert rare.speakers == 3 < MINIMUM_SPEAKERS
    assert "3 speakers" in rare.note
    assert rare.eer is rare.miss_rate is rare.false_alarm_rate is None
    few, speakers = listed(0, count=2 * MINIMUM_TRIALS)
    for one in breakdown(few, table(gender=WORDS), speakers).columns[0].conditions:
        if min(one.targets, one.trials - one.targets) < MINIMUM_TRIALS:
            assert one.eer is None and "target" in one.note


def test_numbers_fall_into_quarters_by_the_smaller_side():
    scored, speakers = listed(1)
    seconds = np.random.default_rng(5).uniform(2.0, 20.0, SPEAKERS * TAKES).round(2)
    metadata = by_recording(duration=[f"{value}" for value in seconds])
    found = breakdown(scored, metadata, speakers)
    trials = scored.trials
    smaller = np.minimum(seconds[trials.enroll], seconds[trials.test])
    measured = found.columns[0].conditions
    assert len(measured) == QUANTILES
    assert sum(one.trials for one in measured) == len(trials)
    low, *middle, high = [one.label for one in measured]
    edges = [float(low.removeprefix("below ")), float(high.removesuffix(" or more"))]
    assert measured[0].trials == np.count_nonzero(smaller < edges[0])
    assert measured[-1].trials == np.count_nonzero(smaller >= edges[1])
    for label, one in zip(middle, measured[1:-1], strict=True):
        least, limit = map(float, label.split(" to below "))
        assert one.trials == np.count_nonzero((smaller >= least) & (smaller < limit))
    assert all(abs(one.trials - len(trials) / 4) < 0.1 * len(trials) for one in measured)


def test_numbers_with_gaps_and_few_values():
    scored, speakers = listed(2)
    gaps = ["" if speaker % 5 == 0 else str(speaker // 2) for speaker in range(SPEAKERS)]
    column = breakdown(scored, table(age=gaps), speakers).columns[0]
    assert column.conditions[-1].label == "unknown"
    assert sum(one.trials for one in column.conditions) == len(scored.trials)
    # A number of few values is a category: 0 and 1 are not cut into quarters.
    flags = breakdown(scored, table(flag=["0", "1"] * 12), speakers)
    assert set(conditions(flags)) == {"0-0", "1-1", "cross"}
    # A value that most trials share leaves fewer conditions, never an empty one.
    heavy = ["1"] * 20 + ["2", "3", "4", "5"]
    assert all(
        one.trials for one in breakdown(scored, table(n=heavy), speakers).columns[0].conditions
    )


def test_columns_that_are_no_conditions_say_why():
    scored, speakers = listed(0)
    names = [f"Name {speaker}" for speaker in range(SPEAKERS)]
    metadata = table(name=names, set=["test"] * SPEAKERS, nothing=["N/A"] * SPEAKERS)
    found = breakdown(scored, metadata, speakers)
    assert [column.conditions for column in found.columns] == [(), (), ()]
    assert [column.how.split(":")[0] for column in found.columns] == [
        "names the speakers",
        "is always test",
        "is empty",
    ]
    takes = by_recording(title=[f"take {number}" for number in range(SPEAKERS * TAKES)])
    assert "96 different texts" in breakdown(scored, takes, speakers).columns[0].how


def test_recordings_without_metadata_are_counted_and_unknown():
    scored, speakers = listed(0)
    full = table(gender=["m", "f"] * 12)
    half = Metadata(full.path, full.keys[:12], {"gender": full.columns["gender"][:12]})
    found = breakdown(scored, half, speakers)
    assert found.recordings_without_metadata == 12 * TAKES
    trials = scored.trials
    outside = (speakers[trials.enroll] >= 12) | (speakers[trials.test] >= 12)
    assert conditions(found)["unknown"].trials == outside.sum()


def test_intervals_are_those_of_the_trials_of_each_measured_condition():
    scored, speakers = listed(0)
    drawn = MetricOptions(replicates=50, seed=3)
    found = conditions(breakdown(scored, table(gender=WORDS), speakers, drawn))
    trials = scored.trials
    left, right = speakers[trials.enroll], speakers[trials.test]
    words = np.array(WORDS)
    both_m = (words[left] == "m") & (words[right] == "m")
    columns = (scored.scores, trials.is_target, left, right)
    sides = [column[both_m] for column in columns]
    assert found["m-m"].intervals == intervals(*sides, drawn)
    assert found["cross"].intervals is None


def test_speakers_that_contradict_the_labels_cost_the_intervals_only():
    scored, speakers = listed(0)
    wrong = np.arange(len(speakers)) % SPEAKERS
    drawn = MetricOptions(replicates=20)
    one = conditions(breakdown(scored, table(gender=WORDS), wrong, drawn))["m-m"]
    assert one.eer is not None and one.intervals is None and "no interval" in one.note


def test_a_breakdown_is_plain_data():
    scored, speakers = listed(0)
    found = breakdown(scored, table(gender=WORDS), speakers)
    again = json.loads(json.dumps(asdict(found), allow_nan=False))
    assert again["columns"][0]["conditions"][0]["trials"] == found.columns[0].conditions[0].trials


def test_missing_labels_are_named():
    scored, speakers = listed(0)
    trials = scored.trials
    unlabeled = ScoredTrials(Trials(trials.ids, trials.enroll, trials.test), scored.scores, "bare")
    with pytest.raises(ValueError, match="bare has no labels"):
        breakdown(unlabeled, table(gender=WORDS), speakers)
