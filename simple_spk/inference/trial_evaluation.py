"""From trial lists to error rates: the one pipeline of training, the commands and Python users.

    trial lists -> the recordings they name -> embeddings -> scores in list order
    -> templates, AS-norm, calibration -> metrics with intervals

The built-in model on one list:

    extractor, lists = Extractor.load(), [read_trials("trials.txt")]
    source = locate_recordings(lists, audio_folder="wav").source(extractor.embed)
    (result,) = evaluate_trials(lists, source, extractor.model.similarity)
    print(result.summary["eer"])
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import duration_seconds
from simple_spk.data.manifest import read_manifest
from simple_spk.data.tar_store import file_of
from simple_spk.data.trials import Trials, read_trials
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.evaluation.enrollment import Enrollments, recordings_needed
from simple_spk.inference.batch_embedding import (
    BATCH_SECONDS,
    Embed,
    ExtractionOptions,
    ask_all,
    embed_recordings,
)
from simple_spk.inference.speech_quality import quality_of_file
from simple_spk.inference.trial_scoring import EmbeddingSource, EvaluationOptions, evaluate_trials
from simple_spk.models.similarity import Similarity

# What training logs of a summary: the keys of metrics.summary.
METRICS = (
    "eer",
    "eer_threshold",
    "eer_convex_hull",
    "min_dcf",
    "act_dcf",
    "cllr",
    "min_cllr",
    "auc",
    "trials",
    "targets",
)


class LocatedRecordings(NamedTuple):
    """Recordings that exist, and their durations (n,) if a manifest tells them."""

    ids: list[str]
    paths: list[Path]
    durations_seconds: NDArray[np.floating] | None = None

    def seconds_of_recording(self) -> dict[str, float]:
        """The duration of each recording, from the manifest or from the files."""
        durations: Any = self.durations_seconds
        if durations is None:
            durations = ask_all(duration_seconds, self.paths, "durations")
        return dict(zip(self.ids, map(float, durations), strict=True))

    def source(self, embed: Callable[[Sequence[Path]], NDArray[np.float32]]) -> EmbeddingSource:
        """The embeddings (n, dim) that ``embed`` makes of the files."""
        embedded = lambda: Embeddings(self.ids, embed(self.paths))  # noqa: E731
        return EmbeddingSource(embedded, self.seconds_of_recording, self.sound_of_recording)

    def sound_of_recording(self, sample_rate: int = SAMPLE_RATE) -> dict[str, NDArray[np.float64]]:
        """The measures of the sound of each recording, from the files."""

        def measured(path: Path) -> NDArray[np.float64]:
            return quality_of_file(path, sample_rate).sound_measures()

        found = ask_all(measured, self.paths, "listen")
        return dict(zip(self.ids, found, strict=True))


def locate_recordings(
    lists: Sequence[Trials],
    manifest: str | Path | None = None,
    audio_folder: str | Path | None = None,
    enrollments: Enrollments | None = None,
    progress: bool = True,
) -> LocatedRecordings:
    """The recordings that lists name, by the ID column of a manifest or as paths below a folder."""
    if (manifest is None) == (audio_folder is None):
        raise ValueError("give either a manifest or an audio_folder for the trials' recordings")
    names = recordings_needed(lists, enrollments)
    durations, missing, place = None, [], str(manifest)
    if manifest is not None:
        utterances = read_manifest(manifest)
        missing = [name for name in names if name not in utterances.row_of_id]
        rows = [utterances.row_of_id[name] for name in names if not missing]
        paths = [utterances.wav(row) for row in rows]
        durations = utterances.durations_seconds[rows]
    else:
        assert audio_folder is not None
        if not Path(audio_folder).is_dir():
            raise FileNotFoundError(f"no audio folder at {audio_folder}: correct the path")
        paths = [Path(audio_folder, name) for name in names]
    if not missing:
        exists = ask_all(lambda path: file_of(path).is_file(), paths, "find", progress)
        places = zip(names, paths, exists, strict=True)
        missing = [f"{name} at {path}" for name, path, is_file in places if not is_file]
        place = "their places"
    if missing:
        count, first = f"{len(missing)} of {len(names)}", ", ".join(missing[:3])
        raise ValueError(
            f"{count} recordings of the trials are not in {place} (first: {first}): complete the "
            "data or correct the list"
        )
    return LocatedRecordings(names, paths, durations)


class VerificationEvaluation:
    """A trial list and its recordings, to evaluate a model on during training.

    The recordings are those of ``manifest`` (by its ID column), or lie in ``audio_folder``, below
    which the names of the list are paths, as in the VoxCeleb lists.
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
        options: EvaluationOptions | None = None,
    ) -> None:
        self.trials = read_trials(trials)
        self.options = options or EvaluationOptions()
        self.recordings = locate_recordings(
            [self.trials], manifest, audio_folder, self.options.enrollments, progress
        )
        self.how = ExtractionOptions(
            sample_rate=sample_rate,
            batch_seconds=batch_seconds,
            workers=workers,
            progress=progress,
            durations_seconds=self.recordings.durations_seconds,
        )

    def __call__(
        self, embed: Embed, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """The metrics as plain data; the scores go to ``scores_file`` if one is given."""
        source = self.recordings.source(lambda paths: embed_recordings(paths, embed, self.how))
        (result,) = evaluate_trials([self.trials], source, similarity, self.options, [scores_file])
        return {name: result.summary[name] for name in METRICS if name in result.summary}
