"""Made trial lists: true labels, no pair twice, balanced, fair to every recording, repeatable."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.corpora.splits import split_speakers
from simple_spk.corpora.trial_lists import all_pairs, make_trials, plain_id, write_trials
from simple_spk.data.trials import Trials, read_trials


def names_of(trials):
    """The trials as a list of (label, enroll, test)."""
    left = [trials.ids[index] for index in trials.enroll]
    right = [trials.ids[index] for index in trials.test]
    return list(zip(trials.is_target.tolist(), left, right, strict=True))


def possible_pairs(speakers, groups, sessions):
    """All target and all non-target pairs of row numbers, one by one."""
    pairs = list(combinations(range(len(speakers)), 2))
    targets = {
        (i, j)
        for i, j in pairs
        if speakers[i] == speakers[j] and (not sessions[i] or sessions[i] != sessions[j])
    }
    others = {(i, j) for i, j in pairs if speakers[i] != speakers[j] and groups[i] == groups[j]}
    return targets, others


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 1), st.sampled_from(["", "a", "b"])),
        min_size=2,
        max_size=40,
    ),
    st.integers(2, 300),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_trials_are_a_choice_among_all_pairs(
    rows, maximum, seed, with_groups, with_sessions, balanced
):
    speakers = [speaker for speaker, *_ in rows]
    groups = [group if with_groups else 0 for _, group, _ in rows]
    sessions = [session if with_sessions else "" for *_, session in rows]
    targets, others = possible_pairs(speakers, groups, sessions)
    ids = [f"r{row}" for row in range(len(speakers))]
    arguments = (ids, speakers, maximum, groups if with_groups else None, seed)
    arguments += (sessions if with_sessions else None, balanced)
    if not targets or not others:
        with pytest.raises(ValueError, match="can be made"):
            make_trials(*arguments)
        return
    trials = names_of(make_trials(*arguments))
    chosen = [(same, *sorted((int(a[1:]), int(b[1:])))) for same, a, b in trials]
    assert len(set(chosen)) == len(chosen)  # no pair twice, in either order
    assert all((i, j) in (targets if same else others) for same, i, j in chosen)
    expected = min(maximum // 2, len(targets))
    expected_others = min(maximum - expected, len(others))
    if balanced:
        expected = expected_others = min(expected, len(others))
    assert sum(same for same, _, _ in chosen) == expected
    assert len(chosen) == expected + expected_others
    assert names_of(make_trials(*arguments)) == trials


@pytest.mark.parametrize("maximum", [100, 500, 999, 4000, 8000])
def test_recordings_are_used_equally_often_on_both_sides(maximum):
    speakers = np.repeat(np.arange(50), 10)
    trials = make_trials([str(row) for row in range(500)], speakers, maximum)
    uses = np.zeros((2, 2, 500), dtype=int)  # by label, side, recording
    rows = np.array([int(name) for name in trials.ids])
    for label in (False, True):
        for number, side in enumerate((trials.enroll, trials.test)):
            chosen = rows[side[trials.is_target == label]]
            uses[int(label), number] = np.bincount(chosen, minlength=500)
    target_uses, other_uses = uses[1].sum(axis=0), uses[0].sum(axis=0)
    assert np.ptp(target_uses) <= 2
    # A non-target round leaves out whom chance seated beside a recording of the same speaker.
    assert np.ptp(other_uses) <= 2 + 0.25 * other_uses.mean()
    assert np.abs(uses[:, 0] - uses[:, 1]).max() <= 2 + 0.25 * uses.sum(axis=(0, 1)).mean()


def test_a_hundred_thousand_recordings_need_no_table_of_all_pairs():
    speakers = np.random.default_rng(0).integers(0, 1000, 100_000)
    trials = make_trials([str(row) for row in range(100_000)], speakers, maximum=400_000)
    uses = np.bincount(np.concatenate([trials.enroll, trials.test]))
    assert len(trials) == 400_000 and len(uses) == 100_000
    assert uses.min() >= 6 and uses.max() <= 10  # 8 on average


def test_every_speaker_meets_many_others():
    speakers = np.repeat(np.arange(30), 20)
    trials = make_trials([str(row) for row in range(600)], speakers, maximum=2400)
    rows = np.array([int(name) for name in trials.ids])
    sides = [speakers[rows[side[~trials.is_target]]] for side in (trials.enroll, trials.test)]
    met = {(int(min(a, b)), int(max(a, b))) for a, b in zip(*sides, strict=True)}
    assert len(met) > 0.8 * 30 * 29 / 2


def test_another_seed_makes_another_list():
    arguments = [str(row) for row in range(100)], np.repeat(np.arange(10), 10), 200
    assert names_of(make_trials(*arguments, seed=1)) != names_of(make_trials(*arguments, seed=2))


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="one of each per recording"):
        make_trials(["a", "b"], ["x"])
    with pytest.raises(ValueError, match="at least 2"):
        make_trials(["a", "b", "c"], ["x", "x", "y"], maximum=1)
    with pytest.raises(ValueError, match="within one group"):
        make_trials(["a", "b", "c"], ["x", "x", "y"], groups=["f", "f", "m"])


def test_a_written_list_reads_back(tmp_path):
    trials = make_trials(["ä/1.wav", "ä/2.wav", "b/1.wav", "b/2.wav"], [0, 0, 1, 1])
    write_trials(tmp_path / "new" / "trials.txt", trials)
    again = read_trials(tmp_path / "new" / "trials.txt")
    assert names_of(again) == names_of(trials) and again.ids == trials.ids
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["trials.txt"]


def test_a_list_that_could_not_be_read_back_is_not_written(tmp_path):
    index = np.zeros(1, dtype=np.int32)
    with pytest.raises(ValueError, match="'a b'"):
        write_trials(tmp_path / "t.txt", Trials(["a b"], index, index, np.ones(1, dtype=bool)))
    with pytest.raises(ValueError, match="no labels"):
        write_trials(tmp_path / "t.txt", Trials(["a"], index, index))
    assert not list(tmp_path.iterdir())


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=20))
def test_plain_ids_are_distinct_and_hold_no_spaces(names):
    ids = [plain_id(name) for name in names]
    assert len(set(ids)) == len(set(names))
    assert all(len(identifier.split()) == 1 for identifier in ids)


speaker_names = st.sets(st.text(st.characters(exclude_categories=["Cs"])), min_size=8, max_size=60)


@given(speaker_names, st.floats(0.01, 0.4), st.floats(0.01, 0.4), st.integers(0, 3))
def test_no_speaker_is_in_two_parts_and_none_is_lost(speakers, valid, test, seed):
    try:
        split = split_speakers(speakers, valid, test, seed)
    except ValueError as error:
        assert "too few" in str(error)
        return
    assert sorted([*split.train, *split.valid, *split.test]) == sorted(speakers)
    assert min(map(len, split)) >= 2


def test_speakers_stay_in_their_part_when_others_come():
    speakers = [f"speaker{number}" for number in range(2000)]
    before, after = split_speakers(speakers[:1000]), split_speakers(speakers)
    for part in ("train", "valid", "test"):
        assert set(getattr(before, part)) <= set(getattr(after, part))
    assert 150 < len(after.test) < 250 and 150 < len(after.valid) < 250
    assert split_speakers(speakers, seed=1) != after


def test_a_part_of_fraction_zero_is_empty_and_all_may_test():
    assert split_speakers("abcd", 0.0, 1.0) == ([], [], ["a", "b", "c", "d"])
    assert split_speakers("abcd", 0.0, 0.5).valid == []


@pytest.mark.parametrize("fractions", [(-0.1, 0.1), (0.6, 0.6)])
def test_impossible_fractions_are_refused(fractions):
    with pytest.raises(ValueError, match="valid_fraction"):
        split_speakers("abcdefgh", *fractions)


def test_too_few_speakers_are_refused_with_a_cure():
    with pytest.raises(ValueError, match=r"5 speakers are too few.*add speakers"):
        split_speakers("abcde")


def test_all_pairs_of_sessions_leave_out_targets_of_one_session():
    ids, speakers, sessions = ["a1", "a2", "a3", "b1", "b2"], list("aaabb"), ["x", "x", "y", "", ""]
    trials = names_of(all_pairs(ids, speakers, sessions=sessions))
    targets = {(enroll, test) for same, enroll, test in trials if same}
    assert targets == {("a1", "a3"), ("a2", "a3"), ("b1", "b2")}
    assert sum(not same for same, *_ in trials) == 6
    with pytest.raises(ValueError, match="those of one speaker from two sessions"):
        all_pairs(ids, speakers, sessions=["x"] * 5)
    with pytest.raises(
        ValueError, match=r"none of the \d+ speakers .* has recordings of two sessions"
    ):
        make_trials(ids, speakers, sessions=["x"] * 5)
    with pytest.raises(ValueError, match="1 sessions of 5 recordings"):
        make_trials(ids, speakers, sessions=["x"])


def test_all_pairs_are_those_of_the_chosen_recordings():
    speakers = ["a"] * 9 + ["b"] * 2 + ["c"]
    ids = [f"{speaker}{row}" for row, speaker in enumerate(speakers)]
    trials = all_pairs(ids, speakers, per_speaker=3)
    assert trials.ids == ["a0", "a4", "a8", "b9", "b10", "c11"]
    pairs = {
        (trials.ids[i], trials.ids[j]) for i, j in zip(trials.enroll, trials.test, strict=True)
    }
    assert len(pairs) == len(trials) == 15
    assert trials.is_target.sum() == 3 + 1
    within = all_pairs(ids, speakers, groups=["x"] * 9 + ["y"] * 3)
    assert len(within) == 36 + 3 and within.is_target.sum() == 36 + 1
    with pytest.raises(ValueError, match="add speakers or recordings"):
        all_pairs(["a", "b"], ["a", "b"], per_speaker=3)
