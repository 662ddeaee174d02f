"""From a trial list to error rates: one path for validation, commands and the library."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simple_spk.distributed import rank
from simple_spk.manifest import Manifest, read_manifest
from simple_spk.metrics import summary
from simple_spk.recordings import Embed, embed_recordings
from simple_spk.similarity import Similarity
from simple_spk.trials import Trials, read_trials, write_scores


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
        sample_rate: int = 16000,
        batch_seconds: float = 120.0,
        workers: int = 0,
        progress: bool = True,
    ) -> None:
        self.trials = read_trials(trials)
        if (manifest is None) == (audio_folder is None):
            raise ValueError("give either a manifest or an audio_folder for the trials' recordings")
        if manifest is not None:
            self.paths = paths_from_manifest(self.trials, read_manifest(manifest))
        else:
            assert audio_folder is not None
            self.paths = paths_below(self.trials, Path(audio_folder))
        named = zip(self.trials.ids, self.paths, strict=True)
        missing = [f"{name} at {path}" for name, path in named if not path.is_file()]
        _require_all(self.trials, missing, "their places")
        self.sample_rate = sample_rate
        self.batch_seconds = batch_seconds
        self.workers = workers
        self.progress = progress

    def __call__(
        self, embed: Embed, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """Error rates as plain data; the scores go to ``scores_file`` if one is given."""
        embeddings = embed_recordings(
            self.paths, embed, self.sample_rate, self.batch_seconds, self.workers, self.progress
        )
        scores = score_trials(self.trials, embeddings, similarity)
        if scores_file is not None and rank() == 0:
            write_scores(scores_file, self.trials, scores)
        return trial_metrics(self.trials, scores)


@torch.no_grad()
def score_trials(
    trials: Trials, embeddings: NDArray[np.float32], similarity: Similarity, block: int = 65536
) -> NDArray[np.float32]:
    """Scores (trials,) in list order; row i of embeddings (recordings, dim) is of trials.ids[i]."""
    device = next((t.device for t in similarity.state_dict().values()), torch.device("cpu"))
    table = torch.from_numpy(embeddings).to(device)
    enrol, test = (torch.from_numpy(side).to(device).long() for side in (trials.enrol, trials.test))
    blocks = [
        similarity.pairs(table[rows], table[columns])
        for rows, columns in zip(enrol.split(block), test.split(block), strict=True)
    ]
    return torch.cat(blocks).cpu().numpy()


def trial_metrics(trials: Trials, scores: NDArray[np.float32]) -> dict[str, Any]:
    """The error rates of a scored list as plain data; only its size if it has no labels."""
    if trials.is_target is None:
        return {"trials": len(trials)}
    try:
        return summary(scores, trials.is_target)
    except ValueError as error:
        raise ValueError(f"{trials.path}: {error}") from error


def embeddings_of_trials(
    trials: Trials, embeddings: Mapping[str, NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The embeddings (recordings, dim) that a list needs, in the order of trials.ids."""
    _require_all(trials, [name for name in trials.ids if name not in embeddings], "the embeddings")
    return np.stack([embeddings[name] for name in trials.ids])


def paths_from_manifest(trials: Trials, manifest: Manifest) -> list[Path]:
    """Where each recording of a trial list lies, according to a manifest."""
    rows = manifest.row_of_id
    _require_all(trials, [name for name in trials.ids if name not in rows], str(manifest.path))
    return [manifest.wav(rows[name]) for name in trials.ids]


def paths_below(trials: Trials, folder: Path) -> list[Path]:
    """Where each recording of a trial list lies below a folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no audio folder at {folder}: correct the path")
    return [folder / name for name in trials.ids]


def _require_all(trials: Trials, missing: Sequence[str], place: str) -> None:
    """Raise if recordings of a trial list are missing somewhere."""
    if missing:
        examples = ", ".join(missing[:3])
        raise ValueError(
            f"{len(missing)} of {len(trials.ids)} recordings of the trial list {trials.path} are "
            f"not in {place} (first: {examples}): complete the data or correct the list"
        )
