"""The trial lists that experiments with free speech are evaluated on."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from recipes.OpenSpeech.prepare import CONDITIONS
from simple_spk import SAMPLE_RATE
from simple_spk.inference.trial_evaluation import VerificationEvaluation


def evaluation_lists(
    data_folder: str | Path, part: str, sample_rate: int = SAMPLE_RATE, workers: int = 0
) -> dict[str, Callable[[], VerificationEvaluation]]:
    """The list of each corpus of a part (valid or test), under each condition, by its name.

    CORPUS is of whole recordings, CORPUS_CONDITION of those under a condition.
    """
    data_folder = Path(data_folder)
    beginning = f"{part}_trials_"
    found = sorted(data_folder.glob(f"{beginning}*.txt"))
    if not found:
        raise FileNotFoundError(
            f"{data_folder} has no {beginning}CORPUS.txt: run recipes/OpenSpeech/prepare.py"
        )
    return {
        trials.stem.removeprefix(beginning) + ending: partial(
            VerificationEvaluation,
            trials=trials,
            manifest=data_folder / f"{part}{ending}.csv",
            sample_rate=sample_rate,
            workers=workers,
        )
        for trials in found
        for ending in ("", *(f"_{condition}" for condition in CONDITIONS))
    }
