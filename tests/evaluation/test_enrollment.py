"""Laws of templates: a model compares as the mean of its recordings, and mistakes are named."""

from pathlib import Path

import numpy as np
import pytest

from simple_spk.data.trials import Trials
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.evaluation.enrollment import (
    Enrollments,
    TemplateKind,
    durations_of_trials,
    embeddings_of_trials,
    read_enrollments,
    recordings_needed,
)
from simple_spk.evaluation.scoring import score_trials
from simple_spk.models.similarity import GeneralizedInnerProduct

RECORDINGS = ["r0", "r1", "r2", "r3", "r4"]
EMBEDDINGS = Embeddings(
    RECORDINGS, np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32), Path("e.npz")
)
MODELS = {"m": ["r3", "r0", "r4"], "n": ["r1"], "unused": ["r9"]}


@pytest.fixture
def enrollments_file(tmp_path: Path) -> Path:
    path = tmp_path / "spk2utt"
    path.write_text("".join(f"{model} {' '.join(of)}\n" for model, of in MODELS.items()))
    return path


def make_trials(pairs: list[tuple[str, str]]) -> Trials:
    ids = list(dict.fromkeys(name for pair in pairs for name in pair))
    sides = np.array([[ids.index(name) for name in pair] for pair in pairs], dtype=np.int32)
    return Trials(ids, *sides.T, path=Path("list.txt"))


TRIALS = make_trials([("n", "r0"), ("m", "r2"), ("n", "r2"), ("m", "r1")])


@pytest.mark.parametrize("kind", ["mean", "normalized"])
def test_a_template_is_the_mean_of_its_recordings(
    kind: TemplateKind, enrollments_file: Path
) -> None:
    found = embeddings_of_trials(TRIALS, EMBEDDINGS, read_enrollments(enrollments_file), kind)
    assert found.dtype == np.float32
    for name, row in zip(TRIALS.ids, found, strict=True):
        parts = [EMBEDDINGS.matrix[RECORDINGS.index(r)] for r in MODELS.get(name, [name])]
        if kind == "normalized" and name in MODELS:
            parts = [part / np.linalg.norm(part) for part in parts]
        expected = np.mean(parts, axis=0)
        if kind == "mean":  # as long as its recordings are on average
            expected *= np.linalg.norm(parts, axis=1).mean() / np.linalg.norm(expected)
        np.testing.assert_allclose(row, expected, rtol=1e-5)


@pytest.mark.parametrize("bias", [0.3, 0.9])
def test_more_recordings_never_raise_misses_at_the_rate_of_one(bias: float) -> None:
    """Without the length of a single recording, a template would be judged by another measure."""
    random = np.random.default_rng(0)
    voices = random.normal(size=(200, 64))
    table = (voices[:, None] + 0.9 * random.normal(size=(200, 8, 64))).astype(np.float32)
    table *= random.uniform(0.8, 1.2, size=(200, 8, 1)).astype(np.float32) / 8
    ids = [f"{voice}-{take}" for voice in range(200) for take in range(8)]
    embeddings = Embeddings(ids, table.reshape(-1, 64))
    enroll, test = np.indices((200, 200)).reshape(2, -1)
    names = [f"m{voice}" for voice in range(200)] + [f"{voice}-7" for voice in range(200)]
    pairs = Trials(names, enroll.astype(np.int32), (test + 200).astype(np.int32), enroll == test)
    rates = []
    for count in (1, 2, 3, 5, 7):
        models = {f"m{voice}": [f"{voice}-{n}" for n in range(count)] for voice in range(200)}
        compared = embeddings_of_trials(pairs, embeddings, Enrollments(models, Path("x")))
        scores = score_trials(pairs, compared, GeneralizedInnerProduct(bias))
        if count == 1:
            threshold = np.quantile(scores[enroll != test], 0.99)
        accepted = scores >= threshold
        rates.append((np.mean(~accepted[enroll == test]), np.mean(accepted[enroll != test])))
    misses, false_accepts = zip(*rates, strict=True)
    assert list(misses) == sorted(misses, reverse=True) and misses[-1] < misses[0]
    assert max(false_accepts) < 0.02


def test_without_enrollments_names_are_recordings() -> None:
    trials = make_trials([("r3", "r0"), ("r0", "r3")])
    assert np.array_equal(embeddings_of_trials(trials, EMBEDDINGS), EMBEDDINGS.matrix[[3, 0]])


def test_what_lists_need_is_named_once(enrollments_file: Path) -> None:
    plain = [make_trials([("a", "b"), ("c", "a")]), make_trials([("d", "b")])]
    assert recordings_needed(plain, None) == ["a", "b", "c", "d"]
    enrollments = read_enrollments(enrollments_file)
    assert recordings_needed([TRIALS], enrollments) == ["r1", "r0", "r3", "r4", "r2"]


def test_a_model_is_as_long_as_its_recordings_together(enrollments_file: Path) -> None:
    seconds = {name: 2.0**number for number, name in enumerate(RECORDINGS)}
    found = durations_of_trials(TRIALS, seconds, read_enrollments(enrollments_file))
    assert dict(zip(TRIALS.ids, found.tolist(), strict=True)) == {
        **{"n": 2.0, "r0": 1.0, "m": 8.0 + 1.0 + 16.0, "r2": 4.0, "r1": 2.0}
    }
    assert durations_of_trials(make_trials([("r2", "r1")]), seconds).tolist() == [4.0, 2.0]
    with pytest.raises(ValueError, match=r"1 of 2 recordings .* \(first: z\)"):
        durations_of_trials(make_trials([("r2", "z")]), seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m a b\nn\n", "line 2: found 'n'; expected 'model recording"),
        ("m a b\n\nn c\n", "line 2: found a blank line"),
        ("", "line 1: found a blank line"),
        ("m a\nn b\nm c\n", "line 3: found 'm c'; but m is in an earlier line"),
        ("m a b a\n", "line 1: found 4 fields; but a recording counts once"),
    ],
)
def test_what_are_no_enrollments_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spk2utt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_enrollments(tmp_path / "spk2utt")


def test_models_and_recordings_that_do_not_fit_are_named(enrollments_file: Path) -> None:
    enrollments = read_enrollments(enrollments_file)
    with pytest.raises(ValueError, match=r"1 names on the enroll side .* \(first: r0\)"):
        embeddings_of_trials(make_trials([("m", "r2"), ("r0", "r2")]), EMBEDDINGS, enrollments)
    with pytest.raises(ValueError, match=r"n is a model of .* but is on the test side, too"):
        embeddings_of_trials(
            make_trials([("m", "r2"), ("n", "r0"), ("m", "n")]), EMBEDDINGS, enrollments
        )
    with pytest.raises(ValueError, match="r9"):
        embeddings_of_trials(make_trials([("unused", "r2")]), EMBEDDINGS, enrollments)


def test_only_the_spaces_of_trial_lists_separate_names(tmp_path: Path) -> None:
    (tmp_path / "spk2utt").write_text("\ufeffm a\u00a0b\tc\u3000d\n", encoding="utf-8")
    found = read_enrollments(tmp_path / "spk2utt").recordings_of_model
    assert found == {"m": ["a\u00a0b", "c\u3000d"]}
