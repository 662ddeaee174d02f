"""Enrolled speakers: several recordings make one template, compared as one embedding is."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.manifest import read_manifest
from simple_spk.data.text_table import numbered_lines, shown
from simple_spk.data.trials import Trials
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.evaluation.quality_measures import SOUND_MEASURES, at_length, joined_measures

# The mean of embeddings as they are, in which long and clear recordings count more (SimPLE's
# embeddings have a length for that), brought to their mean length; or of embeddings of length 1.
TemplateKind = Literal["mean", "normalized"]


@dataclass(frozen=True, eq=False)
class Enrollments:
    """The recordings that each enrolled model is made of."""

    recordings_of_model: dict[str, list[str]]
    path: Path


def read_enrollments(path: str | Path) -> Enrollments:
    """The models of a text file in Kaldi's spk2utt format: ``model recording recording ...``."""
    path = Path(path)
    recordings_of_model: dict[str, list[str]] = {}
    for number, line in numbered_lines(path, "enrollments"):
        # Fields are cut as in trial lists: odd spaces of Unicode belong to names.
        model, *recordings = [field.decode() for field in line.split()] or [""]
        problem = ""
        if not recordings:
            problem = "expected 'model recording ...'"
        elif model in recordings_of_model:
            problem = f"but {model} is in an earlier line: put its recordings into one"
        elif len(set(recordings)) < len(recordings):
            problem = "but a recording counts once: remove the repetition"
        if problem:
            raise ValueError(f"{path}, line {number}: found {shown(line, number)}; {problem}")
        recordings_of_model[model] = recordings
    if not recordings_of_model:
        raise ValueError(f"{path}, line 1: found a blank line; expected 'model recording ...'")
    return Enrollments(recordings_of_model, path)


def recordings_needed(lists: Sequence[Trials], enrollments: Enrollments | None) -> list[str]:
    """The recordings, each once, that must be embedded to score some lists."""
    needed: dict[str, None] = {}
    for trials in lists:
        names: Iterable[str] = trials.ids
        if enrollments is not None:
            names = itertools.chain.from_iterable(_groups(trials, enrollments)[0])
        needed.update(dict.fromkeys(names))
    return list(needed)


def embeddings_of_trials(
    trials: Trials,
    embeddings: Embeddings,
    enrollments: Enrollments | None = None,
    kind: TemplateKind = "mean",
) -> NDArray[np.float32]:
    """What a list compares (ids, dim): the embedding of each recording, the template of each model.

    With enrollments, names on the enroll side are models, and those on the test side recordings.
    """
    if enrollments is None:
        return embeddings.of(trials.ids, trials.path)
    groups, is_model = _groups(trials, enrollments)
    sizes = np.array([len(group) for group in groups])
    names = list(itertools.chain.from_iterable(groups))
    parts = embeddings.of(names, f"{trials.path} and {enrollments.path}")
    if kind == "normalized":
        enrolled = np.repeat(is_model, sizes)
        lengths = np.linalg.norm(parts[enrolled], axis=1, keepdims=True)
        parts[enrolled] /= np.maximum(lengths, np.finfo(np.float32).tiny)
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(parts, starts, axis=0) / sizes[:, None]
    if kind == "mean":
        lengths = np.linalg.norm(parts.astype(np.float64), axis=1)
        means = at_length(means, np.add.reduceat(lengths, starts) / sizes)
    return means.astype(np.float32)


def read_durations(manifest: str | Path) -> dict[str, float]:
    """How many seconds each recording of a manifest lasts, by its ID."""
    utterances = read_manifest(manifest)
    return dict(zip(utterances.row_of_id, utterances.durations_seconds.tolist(), strict=True))


def durations_of_trials(
    trials: Trials,
    seconds_of_recording: Mapping[str, float],
    enrollments: Enrollments | None = None,
) -> NDArray[np.float64]:
    """How long each name (ids,) of a list is; a model is as long as its recordings together."""
    needed = recordings_needed([trials], enrollments)
    missing = [name for name in needed if name not in seconds_of_recording]
    if missing:
        raise ValueError(
            f"the durations of {len(missing)} of {len(needed)} recordings of {trials.path} are not "
            f"known (first: {', '.join(missing[:3])}): give a manifest that has them"
        )
    if enrollments is None:
        return np.array([seconds_of_recording[name] for name in trials.ids])
    groups, _ = _groups(trials, enrollments)
    return np.array([sum(map(seconds_of_recording.__getitem__, group)) for group in groups])


def measures_of_trials(
    trials: Trials,
    measures_of_recording: Mapping[str, NDArray[np.float64]],
    enrollments: Enrollments | None = None,
) -> dict[str, NDArray[np.float64]]:
    """The measures (ids,) of the sound of each name of a list, by the names of SOUND_MEASURES."""
    groups = [[name] for name in trials.ids]
    if enrollments is not None:
        groups, _ = _groups(trials, enrollments)
    rows = [
        joined_measures(np.stack([measures_of_recording[n] for n in names])) for names in groups
    ]
    return dict(zip(SOUND_MEASURES, np.stack(rows).T, strict=True))


def _groups(trials: Trials, enrolled: Enrollments) -> tuple[list[list[str]], NDArray[np.bool_]]:
    """The recordings of each name (ids,) of a list, and which are models (on its enroll side)."""
    is_model = np.zeros(len(trials.ids), dtype=bool)
    is_model[trials.enroll] = True
    of_model = enrolled.recordings_of_model
    models = [trials.ids[index] for index in np.flatnonzero(is_model).tolist()]
    unknown = [name for name in models if name not in of_model]
    if unknown:
        raise ValueError(
            f"{len(unknown)} names on the enroll side of {trials.path} are not models of "
            f"{enrolled.path} (first: {', '.join(unknown[:3])}): add their lines"
        )
    both = trials.test[is_model[trials.test]]
    if len(both):
        raise ValueError(
            f"{trials.path}: {trials.ids[both[0]]} is a model of {enrolled.path}, but is on "
            "the test side, too, where recordings do: rename one of them"
        )
    named = zip(trials.ids, is_model.tolist(), strict=True)
    return [of_model[name] if model else [name] for name, model in named], is_model
