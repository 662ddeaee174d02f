"""Which trials of a list cannot be scored with the recordings at hand?"""

from collections.abc import Callable, Collection, Iterable

import numpy as np

from simple_spk.data.trials import Trials
from simple_spk.data.voxceleb_lists import list_name, part_of, wrong_list_hint
from simple_spk.doctor.finding import Finding, Status, not_checked


def check_trials(
    trials: Trials, is_at_hand: Callable[[str], bool] | None, corpora: Collection[str] = ()
) -> list[Finding]:
    """Which list it is, the recordings that are missing, and the trials that need them.

    ``is_at_hand`` tells whether a recording can be used (None: no place of recordings was given);
    ``corpora`` are those of which recordings were given, if they are known.
    """
    topic = f"trial list {trials.path}"
    hint = wrong_list_hint(trials)
    text = f"{list_name(trials)}: {len(trials):,} trials of {len(trials.ids):,} recordings"
    findings = [Finding(topic, "list", Status.NOTE if hint else Status.OK, text, hint or "")]
    if is_at_hand is None:
        where = "give --voxceleb1, --manifest or --audio-folder to learn which can be scored"
        return [*findings, not_checked(topic, "trials", where)]
    own = corpora_of(trials.ids)
    if own and corpora and not own & {*corpora}:  # a manifest for training, as a rule
        why = f"the list is of {_joined(own)}, but only {_joined(corpora)} was given"
        return [*findings, not_checked(topic, "trials", f"{why}: give --{min(own).lower()}, too")]
    present = np.array([is_at_hand(name) for name in trials.ids], dtype=bool)
    lacking = [trials.ids[index] for index in np.flatnonzero(~present).tolist()]
    lost = np.flatnonzero(~(present[trials.enroll] & present[trials.test]))
    lines = [
        f"line {trial + 1}: {trials.ids[trials.enroll[trial]]} {trials.ids[trials.test[trial]]}"
        for trial in lost.tolist()
    ]
    status = Status.PROBLEM if lacking else Status.OK
    cure = "fetch or convert these recordings again (simple-spk prepare)"
    text, scored = f"all {len(trials.ids):,} are at hand", "all can be scored"
    if lacking:
        text = f"{len(lacking):,} of {len(trials.ids):,} are missing or unreadable"
        scored = f"{len(lost):,} of {len(trials):,} cannot be scored"
    return [
        *findings,
        Finding(topic, "recordings", status, text, cure, lacking, {"missing": len(lacking)}),
        Finding(topic, "trials", status, scored, "", lines, {"lost": len(lost)}),
    ]


def corpora_of(names: Iterable[str]) -> set[str]:
    """VoxCeleb1, VoxCeleb2 or both, of which utterances are; empty if one is of neither.

    >>> corpora_of(["id10270/x/00001.wav", "id10271/x/00001.wav"]), corpora_of(["a0.wav"])
    ({'VoxCeleb1'}, set())
    """
    parts = {part_of(name) for name in {name[:7] for name in names}}
    return set() if None in parts else {str(part).partition(" ")[0] for part in parts}


def _joined(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
