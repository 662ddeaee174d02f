"""From pairs of face images to accuracies and error rates, as training asks for them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipes.Face.fold_accuracy import fold_accuracies
from recipes.Face.pairs import FacePairs, read_face_pairs
from recipes.Face.verification_rates import verification_rates
from simple_spk.data.trials import Trials
from simple_spk.distributed import rank
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import write_scores
from simple_spk.evaluation.scoring import score_trials
from simple_spk.models.similarity import Similarity
from simple_spk.vision.batches import Transform
from simple_spk.vision.embedding import Embed, embed_images
from simple_spk.vision.image_table import ImageTable, read_image_table


@dataclass(frozen=True, eq=False)
class FaceSet:
    """A verification set: its images, its pairs, and where the images of the pairs are."""

    name: str
    images: ImageTable
    pairs: FacePairs
    rows: NDArray[np.int64]  # (ids of the pairs,), of the table


class FaceVerification:
    """Verification sets such as LFW, ready to be scored with any model.

    A set NAME is two files of the data folder: NAME.csv, the table of its images, and
    NAME_pairs.txt, lines of ``label image image fold``. Accuracy is that of each set over its
    folds; EER, TPR at FAR and the like are those of all pairs of the ``combined`` sets (default:
    all sets) together; the paper combines lfw, agedb_30, calfw and cplfw.

    An image and its mirror image are fused (``mirrored``) as SimPLE fuses all that is of one
    person: by the plain mean of embeddings as they are. The cosine of means is that of sums, the
    usual way there; to the generalized inner product the mean gives the scale of single images.
    """

    def __init__(
        self,
        data_folder: str | Path,
        sets: Sequence[str],
        transform: Transform,
        combined: Sequence[str] | None = None,
        mirrored: bool = True,
        false_accept_rates: Sequence[float] = (1e-4, 1e-3, 1e-2),
        batch_size: int = 64,
        workers: int = 0,
        progress: bool = True,
    ) -> None:
        if not sets or len(set(sets)) < len(sets):
            raise ValueError(f"sets must name some verification sets, each once, not {list(sets)}")
        self.combined = list(sets if combined is None else combined)
        unknown = [name for name in self.combined if name not in sets]
        if unknown or not self.combined:
            raise ValueError(
                f"combined must name some of the sets {list(sets)}, not {self.combined}"
            )
        self.sets = [read_face_set(data_folder, name) for name in sets]
        self.transform = transform
        self.mirrored = mirrored
        self.false_accept_rates = false_accept_rates
        self.batch_size = batch_size
        self.workers = workers
        self.progress = progress

    def __call__(
        self, embed: Embed, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """Rates in percent as plain data; the scores go to ``scores_file`` if one is given."""
        scores = [
            score_trials(one.pairs.trials, self._embeddings(one, embed), similarity)
            for one in self.sets
        ]
        if scores_file is not None and rank() == 0:
            write_scores(scores_file, joined_trials(self.sets), np.concatenate(scores))
        judged = [
            (values, one.pairs.is_target)
            for one, values in zip(self.sets, scores, strict=True)
            if one.name in self.combined
        ]
        together, is_target = (np.concatenate(column) for column in zip(*judged, strict=True))
        rates = verification_rates(together, is_target, self.false_accept_rates)
        return {
            **accuracies_of_sets(self.sets, scores),
            "combined": self.combined,
            **summary(together, is_target),
            "tpr_at_far": rates["tpr_at_far"],
        }

    def _embeddings(self, one: FaceSet, embed: Embed) -> NDArray[np.float32]:
        """The embeddings (ids of the pairs, dim) of a set."""
        embeddings = embed_images(
            *(one.images, embed, self.transform, self.batch_size, self.workers),
            *(self.mirrored, self.progress),
        )
        return embeddings[one.rows]


def read_face_set(folder: str | Path, name: str) -> FaceSet:
    """The set of NAME.csv and NAME_pairs.txt."""
    pairs = read_face_pairs(Path(folder) / f"{name}_pairs.txt")
    images = read_image_table(Path(folder) / f"{name}.csv")
    absent = [image for image in pairs.trials.ids if image not in images.row_of_id]
    if absent:
        raise ValueError(
            f"{len(absent)} of {len(pairs.trials.ids)} images of {pairs.trials.path} are not in "
            f"{images.path} (first: {', '.join(absent[:3])}): prepare the data again"
        )
    return FaceSet(name, images, pairs, np.array([images.row_of_id[i] for i in pairs.trials.ids]))


def accuracies_of_sets(
    sets: Sequence[FaceSet], scores: Sequence[NDArray[np.float32]]
) -> dict[str, Any]:
    """The mean and the standard deviation over folds of the accuracy of each set, and its EER.

    The deviation is that of the folds themselves (divided by k, not k - 1), as tables have it.
    """
    result: dict[str, Any] = {
        name: {}
        for name in ("accuracy", "accuracy_std", "set_eer", "fold_accuracies", "fold_thresholds")
    }
    for one, values in zip(sets, scores, strict=True):
        try:
            folds = fold_accuracies(values, one.pairs.is_target, one.pairs.folds)
        except ValueError as error:
            raise ValueError(f"{one.pairs.trials.path}: {error}") from error
        percent = 100.0 * folds.accuracies
        result["accuracy"][one.name] = float(percent.mean())
        result["accuracy_std"][one.name] = float(percent.std())
        result["set_eer"][one.name] = verification_rates(values, one.pairs.is_target, [])["eer"]
        result["fold_accuracies"][one.name] = percent.tolist()
        # JSON knows no infinite numbers: None accepts all pairs, or none.
        result["fold_thresholds"][one.name] = [
            threshold if math.isfinite(threshold) else None
            for threshold in folds.thresholds.tolist()
        ]
    return {"mean_accuracy": float(np.mean(list(result["accuracy"].values()))), **result}


def joined_trials(sets: Sequence[FaceSet]) -> Trials:
    """The pairs of several sets as one list; names begin with that of their set."""
    all_trials = [one.pairs.trials for one in sets]
    offsets = np.cumsum([0, *(len(trials.ids) for trials in all_trials[:-1])], dtype=np.int32)
    return Trials(
        ids=[f"{one.name}/{image}" for one in sets for image in one.pairs.trials.ids],
        enroll=np.concatenate([t.enroll + o for t, o in zip(all_trials, offsets, strict=True)]),
        test=np.concatenate([t.test + o for t, o in zip(all_trials, offsets, strict=True)]),
        is_target=np.concatenate([one.pairs.is_target for one in sets]),
    )
