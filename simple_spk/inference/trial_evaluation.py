"""From a trial list to error rates, straight from recordings; validation takes this path too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.data.manifest import read_manifest
from simple_spk.data.trials import Trials, read_trials
from simple_spk.distributed import rank
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import write_scores
from simple_spk.evaluation.scoring import score_trials
from simple_spk.inference.batch_embedding import BATCH_SECONDS, Embed, ask_all, embed_recordings
from simple_spk.models.similarity import Similarity


class Located(NamedTuple):
    """Where n recordings lie, and how long they are if a manifest says so."""

    paths: list[Path]
    durations_seconds: NDArray[np.floating] | None  # (n,)


class VerificationEvaluation:
    """A trial list with the recordings it names, ready to be scored with any model.

    The recordings are found in ``manifest`` (by its ID column), or in ``audio_folder``, where a
    name of the list is a path below the folder, as in the VoxCeleb lists.
    """

    def __init__(
        self,
        trials: str | Path,
        manifest: str | Path | None = None,
        audio_folder: str | Path | None = None,
        sample_rate: int = SAMPLE_RATE,
        batch_seconds: float = BATCH_SECONDS,
        workers: int = 0,
        progress: bool = True,
    ) -> None:
        self.trials = read_trials(trials)
        self.recordings = locate(self.trials.ids, manifest, audio_folder, progress)
        self.sample_rate = sample_rate
        self.batch_seconds = batch_seconds
        self.workers = workers
        self.progress = progress

    def __call__(
        self, embed: Embed, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """Error rates as plain data; the scores go to ``scores_file`` if one is given."""
        embeddings = embed_recordings(
            self.recordings.paths,
            embed,
            self.sample_rate,
            self.batch_seconds,
            self.workers,
            self.progress,
            self.recordings.durations_seconds,
        )
        scores = score_trials(self.trials, embeddings, similarity)
        if scores_file is not None and rank() == 0:
            write_scores(scores_file, self.trials, scores)
        return trial_metrics(self.trials, scores)


def trial_metrics(trials: Trials, scores: NDArray[np.floating]) -> dict[str, Any]:
    """The error rates of a scored list as plain data; only its size if it has no labels."""
    if trials.is_target is None:
        return {"trials": len(trials)}
    try:
        return summary(scores, trials.is_target)
    except ValueError as error:
        raise ValueError(f"{trials.path}: {error}") from error


def locate(
    names: Sequence[str],
    manifest: str | Path | None = None,
    audio_folder: str | Path | None = None,
    progress: bool = True,
) -> Located:
    """Where recordings lie, by the ID column of a manifest or as paths below a folder."""
    if (manifest is None) == (audio_folder is None):
        raise ValueError("give either a manifest or an audio_folder for the trials' recordings")
    durations = None
    if manifest is not None:
        utterances = read_manifest(manifest)
        row_of_id = utterances.row_of_id
        _require_all(names, [name for name in names if name not in row_of_id], str(manifest))
        rows = [row_of_id[name] for name in names]
        paths = [utterances.wav(row) for row in rows]
        durations = utterances.durations_seconds[rows]
    else:
        assert audio_folder is not None
        if not Path(audio_folder).is_dir():
            raise FileNotFoundError(f"no audio folder at {audio_folder}: correct the path")
        paths = [Path(audio_folder, name) for name in names]
    is_there = ask_all(Path.is_file, paths, "find", progress)
    found = zip(names, paths, is_there, strict=True)
    missing = [f"{name} at {path}" for name, path, is_file in found if not is_file]
    _require_all(names, missing, "their places")
    return Located(paths, durations)


def _require_all(names: Sequence[str], missing: Sequence[str], place: str) -> None:
    """Raise if recordings are missing somewhere."""
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(names)} recordings of the trials are not in {place} (first: "
            f"{', '.join(missing[:3])}): complete the data or correct the list"
        )
