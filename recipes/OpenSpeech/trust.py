"""Do thresholds mean what they say? python recipes/OpenSpeech/trust.py DATA [--model MODEL]

Measures a calibrated model on the test speakers of DATA, which prepare.py and conditions.py made:

* under several conditions: EER, Cllr and its minimum, and at a false-accept rate of 0.001 the real
  one and the misses;
* the same for voices of several enrollment recordings;
* open-set identification: at a false-positive identification rate (FPIR, strangers accepted as
  anybody) of 0.01 the real one, the rate of genuine recordings that are named rightly (DIR), and
  the highest DIR that any threshold has at a real FPIR of 0.01.

Brackets are 95 % intervals over speakers. A gallery of N voices is one recording each of N draws of
other speakers; where N exceeds their number, speakers are drawn again, with other recordings.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk import Extractor
from simple_spk.cli.errors import exit_code
from simple_spk.data.manifest import read_manifest
from simple_spk.data.trials import Trials, read_trials
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.quality_measures import (
    SOUND_MEASURES,
    at_length,
    joined_measures,
    quality_measures,
)
from simple_spk.evaluation.scoring import score_trials
from simple_spk.inference.model import Model
from simple_spk.io.atomic_file import atomic_write, write_json

RATE, IDENTIFICATION_RATE = 1e-3, 1e-2
ROWS = (  # title, corpus, conditions of both sides
    ("speechocean762, whole", "speechocean762", "whole", "whole"),
    ("AudioMNIST, 2 s", "audiomnist", "2s", "2s"),
    ("speechocean762, telephone band", "speechocean762", "telephone", "telephone"),
    ("speechocean762, wideband against telephone", "speechocean762", "whole", "telephone"),
    ("speechocean762, mp3 of 32 kbit/s", "speechocean762", "mp3", "mp3"),
    ("speechocean762, noise at 10 dB", "speechocean762", "noise", "noise"),
    ("Common Voice, English, across sessions", "cvx", "whole", "whole"),
    ("Common Voice, many languages", "cvm", "whole", "whole"),
)
ENROLLMENTS = (1, 2, 3, 5)
GALLERIES = (2, 10, 100, 1000)
TEST_RECORDINGS = 3  # of a speaker, for the tables of enrollments and galleries
REPLICATES = 500

Values = NDArray[np.float64]
Rows = NDArray[np.int64]


class Sides(NamedTuple):
    """Recordings, or voices of several, as a decision sees them."""

    embeddings: NDArray[np.float32]  # (n, dim)
    seconds: Values  # (n,)
    sound: Values  # (n, measures)
    speakers: Rows  # (n,)

    def take(self, rows: Rows) -> "Sides":
        """Some of them."""
        embeddings, seconds, sound, speakers = self
        return Sides(embeddings[rows], seconds[rows], sound[rows], speakers[rows])

    def joined(self, groups: Sequence[Rows]) -> "Sides":
        """The voices of groups of recordings, each of one speaker."""
        parts = [self.take(group) for group in groups]
        means = np.stack([part.embeddings.astype(np.float64).mean(axis=0) for part in parts])
        lengths = [np.linalg.norm(part.embeddings, axis=1).mean() for part in parts]
        return Sides(
            at_length(means, np.array(lengths)).astype(np.float32),
            np.array([part.seconds.sum() for part in parts]),
            np.stack([joined_measures(part.sound) for part in parts]),
            np.array([part.speakers[0] for part in parts]),
        )


def judged(
    model: Model, enroll: Sides, test: Sides, pairs: tuple[Rows, Rows], rate: float, voices: int = 1
) -> tuple[Values, Values]:
    """The log likelihood ratios (n,) of pairs, and the thresholds (n,) of a rate."""
    assert model.calibration is not None
    table = np.concatenate([enroll.embeddings, test.embeddings])
    one, other = pairs[0], pairs[1] + len(enroll.embeddings)
    names = list(map(str, range(len(table))))
    trials = Trials(names, one.astype(np.int32), other.astype(np.int32))
    scores = score_trials(trials, table, model.similarity)
    sound = np.concatenate([enroll.sound, test.sound]).T
    quality = quality_measures(
        one,
        other,
        np.concatenate([enroll.seconds, test.seconds]),
        table,
        dict(zip(SOUND_MEASURES, sound, strict=True)),
        model.calibration.background,
    )
    limits = model.calibration.thresholds_at(rate / voices, quality, len(scores))
    return model.calibration.apply(scores, quality), limits


def listen(extractor: Extractor, data_folder: Path, names: Sequence[str], kept: Path) -> Sides:
    """Recordings under conditions (CONDITION/ID), embedded; they are kept for the next time."""
    if kept.is_file():
        with np.load(kept) as file:
            if str(file["fingerprint"]) == extractor.fingerprint and [*file["names"]] == [*names]:
                return Sides(*(file[field] for field in Sides._fields))
    tables = {
        "whole": read_manifest(data_folder / "test.csv"),
        "2s": read_manifest(data_folder / "test_2s.csv"),
    }
    coded = read_manifest(data_folder / "test_conditions.csv")
    paths, speakers = [], []
    for name in names:
        condition, _, recording = name.partition("/")
        table = tables.get(condition, coded)
        row = table.row_of_id[recording if condition in tables else name]
        paths.append(table.wav(row))
        speakers.append(table.speakers[table.speaker_of_row[row]])
    found: dict[int, tuple[Any, Any]] = {}
    with tqdm(total=len(paths), unit="rec", desc="embed") as bar:
        for batch in extractor.embed_each(paths, with_quality=True):
            for error in batch.errors.values():
                raise error
            pairs = zip(batch.embeddings, batch.qualities, strict=True)
            found |= dict(zip(batch.indexes, pairs, strict=True))
            bar.update(len(batch.indexes))
    embeddings, qualities = zip(*(found[place] for place in range(len(paths))), strict=True)
    heard = Sides(
        np.stack(embeddings),
        np.array([quality.seconds for quality in qualities]),
        np.stack([quality.sound_measures() for quality in qualities]),
        np.unique(speakers, return_inverse=True)[1].astype(np.int64),
    )
    with atomic_write(kept) as partial, partial.open("wb") as file:
        np.savez(file, fingerprint=extractor.fingerprint, names=names, **heard._asdict())
    return heard


def interval(measure: Callable[[Values], float], speakers: int) -> str:
    """The value of a measure of multiplicities (speakers,), and its interval."""
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(REPLICATES):
        chosen = random.integers(speakers, size=speakers)
        drawn.append(measure(np.bincount(chosen, minlength=speakers).astype(np.float64)))
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return f"{measure(np.ones(speakers)):.3g} [{low:.3g}, {high:.3g}]"


def percent(measure: Callable[[Values], float], speakers: int) -> str:
    """A share in percent, and its interval."""
    return interval(lambda drawn: 100.0 * measure(drawn), speakers) + " %"


def share(
    accepted: NDArray[np.bool_], one: Rows, other: Rows, speakers: int
) -> Callable[[Values], float]:
    """The share of accepted trials (n,), as a function of how often speakers are drawn."""
    hits, total = np.zeros((2, speakers, speakers))
    np.add.at(hits, (one, other), accepted)
    np.add.at(total, (one, other), 1.0)
    is_target = bool((one == other).all())

    def measure(drawn: Values) -> float:
        weights = np.diag(drawn) if is_target else np.outer(drawn, drawn)
        return float((hits * weights).sum() / max((total * weights).sum(), 1e-12))

    return measure


def rates(ratios: Values, limits: Values, one: Rows, other: Rows, speakers: int) -> tuple[str, str]:
    """The false-accept rate in thousandths and the misses in percent, with intervals."""
    is_target, accepted = one == other, ratios >= limits
    false = share(accepted[~is_target], one[~is_target], other[~is_target], speakers)
    missed = share(~accepted[is_target], one[is_target], other[is_target], speakers)
    return (
        interval(lambda drawn: 1e3 * false(drawn), speakers) + "e-3",
        percent(missed, speakers),
    )


def run(data_folder: Path, model_folder: str | None, output: Path | None) -> None:
    """Print the three tables, and write them as JSON if asked."""
    extractor = Extractor.load(model_folder)
    model = extractor.model
    if model.calibration is None:
        raise ValueError(f"{model_folder} is not calibrated: export it with --calibration")
    lists = {
        corpus: read_trials(data_folder / f"test_trials_{corpus}.txt")
        for corpus in dict.fromkeys(row[1] for row in ROWS)
    }
    needed = {(corpus, side) for _, corpus, *sides in ROWS for side in sides}
    names = [f"{side}/{name}" for corpus, side in sorted(needed) for name in lists[corpus].ids]
    row_of = {name: row for row, name in enumerate(names)}
    heard = listen(extractor, data_folder, names, data_folder / "trust.npz")
    tables: dict[str, list[dict[str, Any]]] = {"conditions": [], "enrollments": [], "voices": []}
    for title, corpus, first, second in ROWS:
        trials = lists[corpus]
        one = np.array([row_of[f"{first}/{name}"] for name in trials.ids])[trials.enroll]
        other = np.array([row_of[f"{second}/{name}"] for name in trials.ids])[trials.test]
        if first != second:  # each recording under each of both conditions
            swapped = np.array([row_of[f"{second}/{name}"] for name in trials.ids])[trials.enroll]
            plain = np.array([row_of[f"{first}/{name}"] for name in trials.ids])[trials.test]
            one, other = np.concatenate([one, plain]), np.concatenate([other, swapped])
        tables["conditions"].append({"condition": title} | _condition(model, heard, one, other))
    whole = np.array([row_of[f"whole/{name}"] for name in lists["speechocean762"].ids])
    of_speaker = [whole[heard.speakers[whole] == s] for s in np.unique(heard.speakers[whole])]
    tables["enrollments"] = _enrollments(model, heard, of_speaker)
    tables["voices"] = _galleries(model, heard, of_speaker)
    for rows in tables.values():
        print("\n| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
        for row in rows:
            print("| " + " | ".join(str(cell) for cell in row.values()) + " |")
    if output is not None:
        write_json(output, tables)


def _condition(model: Model, heard: Sides, one: Rows, other: Rows) -> dict[str, Any]:
    """The measures of one list of pairs of recordings."""
    ratios, limits = judged(model, heard, heard, (one, other), RATE)
    names, numbers = np.unique(heard.speakers[np.stack([one, other])], return_inverse=True)
    first, second = numbers.reshape(2, -1)
    found = summary(ratios, first == second)
    false, missed = rates(ratios, limits, first, second, len(names))
    return {
        "EER %": f"{found['eer']:.2f}",
        "Cllr / minCllr": f"{found['cllr']:.3f} / {found['min_cllr']:.3f}",
        f"real FA at {RATE:g}": false,
        "misses": missed,
    }


def _enrollments(model: Model, heard: Sides, of_speaker: list[Rows]) -> list[dict[str, Any]]:
    """Error rates of voices of several recordings against the last recordings of speakers."""
    tests = heard.take(np.concatenate([rows[-TEST_RECORDINGS:] for rows in of_speaker]))
    found = []
    for count in ENROLLMENTS:
        voices = heard.joined([rows[:count] for rows in of_speaker])
        one, other = np.indices((len(of_speaker), len(tests.speakers))).reshape(2, -1)
        ratios, limits = judged(model, voices, tests, (one, other), RATE)
        speaker_of_test = np.repeat(np.arange(len(of_speaker)), TEST_RECORDINGS)
        false, missed = rates(ratios, limits, one, speaker_of_test[other], len(of_speaker))
        found.append({"recordings": count, f"real FA at {RATE:g}": false, "misses": missed})
    return found


def _galleries(model: Model, heard: Sides, of_speaker: list[Rows]) -> list[dict[str, Any]]:
    """DIR and FPIR of the last recordings of speakers in galleries of random others."""
    count, random = len(of_speaker), np.random.default_rng(0)
    tests = heard.take(np.concatenate([rows[-TEST_RECORDINGS:] for rows in of_speaker]))
    enrolled = np.stack([rows[: len(of_speaker[0]) - TEST_RECORDINGS] for rows in of_speaker])
    per_speaker = enrolled.shape[1]
    voices = heard.take(enrolled.ravel())
    speaker_of_test = np.repeat(np.arange(count), TEST_RECORDINGS)
    one, other = np.indices((len(voices.speakers), len(speaker_of_test))).reshape(2, -1)
    found = []
    for size in GALLERIES:
        ratios, limits = (
            values.reshape(len(voices.speakers), -1)
            for values in judged(model, voices, tests, (one, other), IDENTIFICATION_RATE, size)
        )
        margins = ratios - limits
        strangers, genuine, is_right = [], [], []
        draws = max(1, 2000 // len(speaker_of_test))
        for test, speaker in enumerate(np.repeat(speaker_of_test, draws)):
            query = test // draws
            others = (speaker + 1 + _drawn(random, size, count - 1)) % count
            gallery = others * per_speaker + random.integers(per_speaker, size=size)
            best = gallery[ratios[gallery, query].argmax()]
            strangers.append(margins[best, query])
            gallery[0] = speaker * per_speaker + random.integers(per_speaker)
            best = gallery[ratios[gallery, query].argmax()]
            genuine.append(margins[best, query])
            is_right.append(best // per_speaker == speaker)
        stranger, own, right = map(np.array, (strangers, genuine, is_right))
        owner = np.repeat(speaker_of_test, draws)
        best_limit = np.quantile(stranger, 1.0 - IDENTIFICATION_RATE)
        accepted = {
            f"real FPIR at {IDENTIFICATION_RATE:g}": stranger >= 0.0,
            "DIR": right & (own >= 0.0),
            "first": right,
            "best DIR": right & (own >= best_limit),
        }
        cells: dict[str, Any] = {"voices": size}
        for title, hits in accepted.items():
            cells[title] = percent(share(hits, owner, owner, count), count)
        found.append(cells)
    return found


def _drawn(random: np.random.Generator, size: int, count: int) -> Rows:
    """As many numbers below a count, each as often as any other but for one."""
    rounds = [random.permutation(count) for _ in range(-(-size // count))]
    return np.concatenate(rounds)[:size]


def main() -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data_folder", type=Path, help="the folder that prepare.py wrote")
    parser.add_argument("--model", help="a model folder (default: the built-in model)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables here")
    options = parser.parse_args()
    return exit_code("trust.py", lambda: run(options.data_folder, options.model, options.json))


if __name__ == "__main__":
    sys.exit(main())
