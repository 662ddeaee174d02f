"""Error rates by condition: by what a metadata table says about both sides of a trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk.data.trials import Trials
from simple_spk.evaluation.bootstrap import MetricOptions, intervals
from simple_spk.evaluation.error_rates import error_rates
from simple_spk.evaluation.metrics import equal_error_rate, summary
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.metadata import Metadata, rows_of_recordings

MINIMUM_TRIALS = 30  # of each class: with fewer, a rate says more about chance than the system
MINIMUM_SPEAKERS = 5
QUANTILES = 4  # numbers are cut into this many conditions of about equally many trials
MAXIMUM_CONDITIONS = 60  # a column of more is a list of names
_UNKNOWN_TEXTS = ("", "-", "?", "na", "n/a", "nan", "none", "null", "unknown")


@dataclass(frozen=True)
class Condition:
    """The trials of one condition, and their error rates; None where there are too few trials."""

    label: str
    trials: int
    targets: int
    speakers: int
    eer: float | None = None  # percent
    min_dcf: Mapping[str, float] | None = None  # by prior as text
    miss_rate: float | None = None  # at the threshold of the breakdown
    false_alarm_rate: float | None = None
    intervals: Mapping[str, Any] | None = None  # as the bootstrap gives them
    note: str = ""  # what there is too little of, such as "12 targets"


@dataclass(frozen=True)
class ConditionColumn:
    """The conditions that one column of the metadata makes, or why it makes none."""

    name: str
    how: str  # trials became conditions
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Breakdown:
    """A scored list by condition; ``dataclasses.asdict`` makes it ready for JSON."""

    keyed_by: str
    recordings: int
    recordings_without_metadata: int
    threshold: float  # of miss and false alarm rates, the list's equal error rate threshold
    columns: tuple[ConditionColumn, ...]


class _Labels(NamedTuple):
    """A label for each of n trials: indexes (n,) into ``names``; no names, no conditions."""

    how: str
    of_trial: NDArray[np.int64] | None = None
    names: Sequence[str] = ()

    def groups(self) -> list[tuple[str, NDArray[np.int64]]]:
        """The labels that trials have, each with the indexes (k,) of its trials, rising."""
        if self.of_trial is None:
            return []
        order = np.argsort(self.of_trial, kind="stable")
        ends = np.cumsum(np.bincount(self.of_trial, minlength=len(self.names)))
        members = np.split(order, ends[:-1])
        return [pair for pair in zip(self.names, members, strict=True) if len(pair[1])]


@dataclass(frozen=True, eq=False)
class _Measures:
    """How the trials of a condition are measured."""

    scored: ScoredTrials
    is_target: NDArray[np.bool_]
    speakers: NDArray[np.int64]  # (len(trials.ids),)
    threshold: float
    options: MetricOptions

    def of(self, label: str, members: NDArray[np.int64]) -> Condition:
        """The condition of the trials at the indexes ``members`` (k,)."""
        scores, is_target = self.scored.scores[members], self.is_target[members]
        left = self.speakers[self.scored.trials.enroll[members]]
        right = self.speakers[self.scored.trials.test[members]]
        speakers = len(np.unique(np.concatenate([left, right])))
        targets = int(np.count_nonzero(is_target))
        nontargets = len(members) - targets
        notes = [
            f"{count or 'no'} {name}{'' if count == 1 else 's'}"
            for count, least, name in (
                (targets, MINIMUM_TRIALS, "target"),
                (nontargets, MINIMUM_TRIALS, "non-target"),
                (speakers, MINIMUM_SPEAKERS, "speaker"),
            )
            if count < least
        ]
        is_wrong = (scores >= np.float64(self.threshold)) != is_target
        found: dict[str, Any] = {}
        if speakers >= MINIMUM_SPEAKERS and targets >= MINIMUM_TRIALS:
            found["miss_rate"] = float(is_wrong[is_target].mean())
        if speakers >= MINIMUM_SPEAKERS and nontargets >= MINIMUM_TRIALS:
            found["false_alarm_rate"] = float(is_wrong[~is_target].mean())
        if not notes:
            metrics = summary(scores, is_target, **self.options.costs)
            found |= {"eer": metrics["eer"], "min_dcf": metrics["min_dcf"]}
            try:
                if self.options.replicates:
                    found["intervals"] = intervals(scores, is_target, left, right, self.options)
            except ValueError as error:  # the rates are valid without it
                notes.append(f"no interval: {error}")
        note = ", ".join(notes)
        return Condition(label, len(members), targets, speakers, note=note, **found)


def breakdown(
    scored: ScoredTrials,
    metadata: Metadata,
    speakers: NDArray[np.int64],
    options: MetricOptions | None = None,
    progress: bool = False,
) -> Breakdown:
    """The error rates of a labeled list for each condition of each column of the metadata.

    ``speakers`` holds the speaker of each recording of the list, (len(trials.ids),). A column of
    words puts a trial under "m-m" if both sides are m, and under "cross" if they differ; a column
    of numbers puts it under the quartile of the smaller of its two values. A column that only
    names rows or speakers makes no conditions, and says so. With replicates in the ``options``,
    conditions get confidence intervals by resampling their speakers.
    """
    trials, is_target = scored.trials, scored.trials.is_target
    if is_target is None:
        raise ValueError(f"{scored.name} has no labels; a breakdown of its errors needs them")
    found = rows_of_recordings(metadata, trials.ids)
    threshold = equal_error_rate(error_rates(scored.scores, is_target)).threshold
    measures = _Measures(scored, is_target, speakers, threshold, options or MetricOptions())
    labels = {
        name: _labels(texts, found.rows, trials, speakers)
        for name, texts in metadata.columns.items()
    }
    groups = [(name, *group) for name, one in labels.items() for group in one.groups()]
    conditions: dict[str, list[Condition]] = {name: [] for name in labels}
    for name, label, members in tqdm(
        groups, desc="conditions", unit="condition", disable=not progress
    ):
        conditions[name].append(measures.of(label, members))
    return Breakdown(
        keyed_by=found.keyed_by,
        recordings=len(trials.ids),
        recordings_without_metadata=int(np.count_nonzero(found.rows < 0)),
        threshold=threshold,
        columns=tuple(
            ConditionColumn(name, one.how, tuple(conditions[name])) for name, one in labels.items()
        ),
    )


def _labels(
    texts: Sequence[str], rows: NDArray[np.int64], trials: Trials, speakers: NDArray[np.int64]
) -> _Labels:
    """What one column of the metadata calls each trial; ``rows`` (recordings,) lead into it."""
    values, of_row = np.unique(np.array([*texts, ""]), return_inverse=True)
    is_known = ~np.isin(np.char.lower(values), _UNKNOWN_TEXTS)
    # A recording without a row has row -1, which is the empty text at the end.
    value = np.where(is_known[of_row], of_row, -1)[rows]  # (recordings,)
    present = np.unique(value[value >= 0])
    if len(present) < 2:
        always = f"is always {values[present[0]]}" if len(present) else "is empty"
        return _Labels(f"{always}: nothing to compare")
    numbers = np.array([_number(text) for text in values.tolist()])
    are_numbers = bool(np.isfinite(numbers[present]).all())
    are_whole = are_numbers and bool(np.char.isdecimal(values[present]).all())
    if (are_whole or not are_numbers) and _are_names(value, speakers):
        return _Labels("names the speakers: it is not a condition")
    left, right = value[trials.enroll], value[trials.test]
    both_known = (left >= 0) & (right >= 0)
    if len(present) > QUANTILES and are_numbers and both_known.any():
        return _by_smaller_number(numbers[left], numbers[right], both_known)
    if len(present) > MAXIMUM_CONDITIONS:
        return _Labels(f"has {len(present):,} different texts: too many for conditions")
    return _by_equal_words(left, right, both_known, values)


def _are_names(value: NDArray[np.int64], speakers: NDArray[np.int64]) -> bool:
    """Whether each speaker has one value (recordings,), -1 aside, that no other speaker has."""
    known = value >= 0
    pairs = np.unique(np.stack([value[known], speakers[known]]), axis=1)
    return all(len(np.unique(side)) == pairs.shape[1] for side in pairs)


def _number(text: str) -> float:
    """The number that a text spells; nan if it spells none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _by_smaller_number(
    left: NDArray[np.float64], right: NDArray[np.float64], both_known: NDArray[np.bool_]
) -> _Labels:
    """Labels by the quantile, among all trials, of the smaller of the two numbers of a trial."""
    smaller = np.minimum(left, right)
    levels = np.linspace(0.0, 1.0, QUANTILES + 1)[1:-1]
    # Existing values, not means of two, so that the limits of a condition read as in the table.
    edges = np.unique(np.quantile(smaller[both_known], levels, method="higher"))
    edges = edges[edges > smaller[both_known].min()]
    shown = [f"{edge:g}" for edge in edges]
    names = [f"below {shown[0]}"] if shown else ["all"]
    names += [f"{low} to below {high}" for low, high in pairwise(shown)]
    names += [f"{shown[-1]} or more"] if shown else []
    of_trial = np.where(both_known, np.searchsorted(edges, smaller, side="right"), len(names))
    return _Labels("by the smaller value of the two sides", of_trial, [*names, "unknown"])


def _by_equal_words(
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    both_known: NDArray[np.bool_],
    values: NDArray[np.str_],
) -> _Labels:
    """Labels by the word that both sides share, the commonest first; then cross, then unknown."""
    cross, unknown = len(values), len(values) + 1
    raw = np.where(both_known, np.where(left == right, left, cross), unknown)
    counts = np.bincount(raw, minlength=unknown + 1)
    by_size = np.argsort(-counts[:cross], kind="stable")
    rank = np.argsort([*by_size, cross, unknown])
    names = [f"{word}-{word}" for word in values[by_size].tolist()]
    return _Labels("by the value that both sides share", rank[raw], [*names, "cross", "unknown"])
