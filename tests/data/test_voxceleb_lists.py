"""Laws of recognizing the official lists: by content, and by nothing else."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.data.trials import Trials, read_trials
from simple_spk.data.voxceleb_lists import (
    KNOWN_LISTS,
    KnownList,
    fingerprint,
    list_name,
    recognize,
    wrong_list_hint,
)

laws = settings(max_examples=100, deadline=None, derandomize=True)

LISTS = {
    "Vox1-O": "veri_test.txt.gz",
    "Vox1-O (cleaned)": "veri_test2.txt.gz",
    "Vox1-E": "list_test_all.txt.gz",
    "Vox1-H": "list_test_hard.txt.gz",
}
VOXCELEB = Path(os.environ.get("SIMPLE_SPK_DATA", "nowhere"), "voxceleb")
needs_lists = pytest.mark.skipif(not VOXCELEB.is_dir(), reason="SIMPLE_SPK_DATA has no VoxCeleb")


def rewritten(trials: Trials, order: np.ndarray, path: Path) -> Trials:
    """The same trials, in another order and format, read back from a file."""
    assert trials.is_target is not None
    names = [name.removesuffix(".wav") for name in trials.ids]
    lines = [
        f"{names[trials.enroll[i]]} {names[trials.test[i]]} "
        f"{'target' if trials.is_target[i] else 'nontarget'}\n"
        for i in order
    ]
    path.write_text("".join(lines))
    return read_trials(path)


@needs_lists
@pytest.mark.parametrize("name", LISTS)
def test_official_lists_are_recognized_by_their_text(name: str) -> None:
    trials = read_trials(VOXCELEB / LISTS[name])
    known = recognize(trials)
    assert known is not None
    assert (known.name, known.trials) == (name, len(trials))
    assert trials.git_sha1 is not None and trials.git_sha1.startswith(known.git_sha1)
    assert known.fingerprint == fingerprint(trials)
    assert list_name(replace(trials, path=Path("mine.txt"))) == name
    hint = wrong_list_hint(trials)
    assert (hint is None) == ("cleaned" in name)


@needs_lists
def test_official_lists_are_recognized_in_other_formats_and_only_if_all_trials_are_the_same(
    tmp_path: Path,
) -> None:
    trials = read_trials(VOXCELEB / LISTS["Vox1-O (cleaned)"])
    order = np.random.default_rng(0).permutation(len(trials))
    other = rewritten(trials, order, tmp_path / "mine.txt")
    assert list_name(other) == "Vox1-O (cleaned)"
    assert other.is_target is not None
    flipped = replace(other, is_target=other.is_target ^ (np.arange(len(other)) == 5))
    assert list_name(flipped) == "mine.txt"
    assert "has as many trials as Vox1-O (cleaned)" in (wrong_list_hint(flipped) or "")


@st.composite
def labeled(draw: st.DrawFn) -> Trials:
    size = draw(st.integers(2, 20))
    sides = st.lists(st.integers(0, 5), min_size=size, max_size=size)
    enroll, test = (np.array(draw(sides), dtype=np.int32) for _ in range(2))
    labels = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return Trials([f"a/{n}.wav" for n in range(6)], enroll, test, np.array(labels))


@laws
@given(trials=labeled(), data=st.data())
def test_the_fingerprint_is_of_the_set_of_trials(trials: Trials, data: st.DataObject) -> None:
    assert trials.is_target is not None
    order = np.array(data.draw(st.permutations(range(len(trials)))))
    renumbering = np.array(data.draw(st.permutations(range(6))), dtype=np.int32)
    spelling = data.draw(st.sampled_from(["a/{}.wav", "a/{}.flac", "a-{}", "a-{}.m4a"]))
    ids = [""] * 6
    for old, new in enumerate(renumbering):
        ids[new] = spelling.format(old)
    same = Trials(
        ids,
        renumbering[trials.enroll[order]],
        renumbering[trials.test[order]],
        trials.is_target[order],
    )
    assert fingerprint(same) == fingerprint(trials)

    def rows(of: Trials) -> list:
        return sorted(zip(of.enroll.tolist(), of.test.tolist(), of.is_target.tolist(), strict=True))

    others = [
        replace(trials, enroll=trials.test, test=trials.enroll),
        replace(trials, enroll=np.roll(trials.enroll, 1)),
        replace(trials, is_target=np.roll(trials.is_target, 1)),
    ]
    for other in others:
        assert (fingerprint(other) == fingerprint(trials)) == (rows(other) == rows(trials))
    assert fingerprint(replace(trials, is_target=None)) is None


@pytest.mark.parametrize("known", KNOWN_LISTS, ids=lambda known: known.name)
def test_a_known_name_with_other_trials_is_said_to_be_wrong(
    known: KnownList, tmp_path: Path
) -> None:
    path = tmp_path / known.file_names[0]
    path.write_text("1 a b\n0 a c\n")
    trials = read_trials(path)
    assert list_name(trials) == path.name
    hint = wrong_list_hint(trials)
    assert hint is not None
    assert f"called like {known.name} ({known.trials} trials), but its 2 trials" in hint


@pytest.mark.parametrize("known", KNOWN_LISTS, ids=lambda known: known.name)
def test_text_and_size_must_both_agree(known: KnownList) -> None:
    sides = np.zeros(known.trials, dtype=np.int32)
    labels = np.zeros(known.trials, dtype=bool)
    full_name = known.git_sha1.ljust(40, "0")
    same = Trials(["a"], sides, sides, labels, git_sha1=full_name)
    assert recognize(same) is known
    assert recognize(replace(same, enroll=sides[1:], test=sides[1:], is_target=labels[1:])) is None
    assert recognize(replace(same, git_sha1="f" * 40)) is None


def test_lists_of_ones_own_have_their_file_name_and_no_hint(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("1 a b\n0 a c\n")
    trials = read_trials(tmp_path / "mine.txt")
    assert list_name(trials) == "mine.txt"
    assert wrong_list_hint(trials) is None
