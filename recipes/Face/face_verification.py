"""Face verification on sets of pairs: accuracy over folds, EER, TPR at FAR."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipes.Face.metrics import fold_accuracies, verification_rates
from recipes.Face.pairs import FacePairs, read_face_pairs
from recipes.Face.recordio import read_face_image
from simple_spk.data.trials import Trials
from simple_spk.distributed import rank
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import write_scores
from simple_spk.evaluation.scoring import score_trials
from simple_spk.models.similarity import Similarity
from simple_spk.vision.embedding import EmbeddingOptions, EmbedInputs, embed_images
from simple_spk.vision.image_table import ImageTable, read_image_table
from simple_spk.vision.transforms import Transform


@dataclass(frozen=True, eq=False)
class FaceSet:
    """A verification set: its images, its pairs, and the table rows of the images of the pairs."""

    name: str
    images: ImageTable
    pairs: FacePairs
    rows: NDArray[np.int64]  # (ids of the pairs,)


class FaceVerification:
    """The evaluation of a model on verification sets such as LFW.

    A set NAME is two files of the data folder: NAME.csv, the table of its images, and
    NAME_pairs.txt with lines ``label image image fold``. Accuracy is computed for each set over its
    folds; EER, TPR at FAR etc. over all pairs of the ``combined`` sets (default: all sets). The
    paper combines lfw, agedb_30, calfw and cplfw.

    An image and its mirror image are fused (``mirrored``) by the mean of their embeddings, without
    normalization. For the cosine this is equivalent to the usual sum; for the generalized inner
    product the mean keeps the scale of single images.
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
        self.options = EmbeddingOptions(transform, batch_size, workers, mirrored, progress)
        self.false_accept_rates = false_accept_rates

    def __call__(
        self, embed: EmbedInputs, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """Rates in percent as plain data; scores are written to ``scores_file`` if it is given."""
        scores = [
            score_trials(
                one.pairs.trials,
                embed_images(one.images, embed, self.options)[one.rows],
                similarity,
            )
            for one in self.sets
        ]
        if scores_file is not None and rank() == 0:
            write_scores(scores_file, joined_trials(self.sets), np.concatenate(scores))
        scored = [
            (values, one.pairs.is_target)
            for one, values in zip(self.sets, scores, strict=True)
            if one.name in self.combined
        ]
        together, is_target = (np.concatenate(column) for column in zip(*scored, strict=True))
        rates = verification_rates(together, is_target, self.false_accept_rates)
        return {
            **accuracies_of_sets(self.sets, scores),
            "combined": self.combined,
            **summary(together, is_target),
            "tpr_at_far": rates["tpr_at_far"],
        }


def read_face_set(folder: str | Path, name: str) -> FaceSet:
    """The set of NAME.csv and NAME_pairs.txt."""
    pairs = read_face_pairs(Path(folder) / f"{name}_pairs.txt")
    images = read_image_table(Path(folder) / f"{name}.csv", reader=read_face_image)
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

    As in published tables, the variance over k folds is divided by k, not k - 1.
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
        # JSON has no infinity: None means that all pairs, or none, are accepted.
        result["fold_thresholds"][one.name] = [
            threshold if math.isfinite(threshold) else None
            for threshold in folds.thresholds.tolist()
        ]
    return {"mean_accuracy": float(np.mean(list(result["accuracy"].values()))), **result}


def joined_trials(sets: Sequence[FaceSet]) -> Trials:
    """The pairs of several sets as one list; IDs begin with the name of their set."""
    all_trials = [one.pairs.trials for one in sets]
    offsets = np.cumsum([0, *(len(trials.ids) for trials in all_trials[:-1])], dtype=np.int32)
    return Trials(
        ids=[f"{one.name}/{image}" for one in sets for image in one.pairs.trials.ids],
        enroll=np.concatenate([t.enroll + o for t, o in zip(all_trials, offsets, strict=True)]),
        test=np.concatenate([t.test + o for t, o in zip(all_trials, offsets, strict=True)]),
        is_target=np.concatenate([one.pairs.is_target for one in sets]),
    )
