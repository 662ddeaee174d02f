"""Errors of diarization on conversations: python recipes/OpenSpeech/diarization.py CONVERSATIONS

CONVERSATIONS is a folder of conversations.py, with NAME.wav and NAME.rttm. The number of speakers
is not told. All systems have the same speech, windows, embeddings and re-segmentation; they differ
in how windows become speakers:

* simple_spk: average linkage of log likelihood ratios, cut at 0; nothing is tuned;
* prior: the same with --same-prior, which --tune finds, too;
* told: the same with the true number of speakers;
* cosine: average linkage of cosines by scikit-learn, cut at --cosine, which --tune finds: the
  threshold with the least error on another folder of conversations;
* centroid: linkage of the centroids of normalized embeddings by SciPy, which pyannote.audio
  uses, too, cut at the distance --centroid, which --tune finds;
* spectral: cosines of which each window keeps the largest, a Laplacian whose eigengap gives the
  number of speakers, and k-means.

DER is that of pyannote.metrics with 0.25 s left out on either side of a boundary (its collar of
0.5), and without overlapping speech. JER leaves nothing out. Intervals of 95 % and those of paired
differences from simple_spk are of a bootstrap over conversations. Needs the extra
[diarization-metrics].
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk import Extractor
from simple_spk.cli.errors import exit_code
from simple_spk.data.audio import recording_blocks
from simple_spk.inference.diarization.conversation import Conversation, Turn
from simple_spk.inference.diarization.likeness import Items, Likeness
from simple_spk.inference.diarization.pipeline import (
    LEAST_SPEAKER_SECONDS,
    SHORTEST_LINKED_SECONDS,
    Wanted,
    heard_speech,
    speaker_groups,
    turns_of,
)
from simple_spk.inference.diarization.segmentation import Spans, Windows
from simple_spk.io.atomic_file import write_json

COLLAR_SECONDS = 0.5  # pyannote's: half of it on either side
MOST_SPEAKERS = 10  # of the eigengap
KEPT_SHARE, FEWEST_KEPT = 0.1, 6  # of the cosines of a window, as in WeSpeaker
COSINES = np.round(np.arange(0.1, 0.9, 0.05), 2)
DISTANCES = np.round(np.arange(0.5, 1.3, 0.05), 2)  # of unit vectors
PRIORS = (0.5, 0.4, 0.33, 0.25, 0.2, 0.1, 0.05)
REPLICATES = 10_000  # of the bootstrap

Groups = NDArray[np.int64]


class Case(NamedTuple):
    """A conversation whose windows are embedded."""

    name: str
    true: list[Turn]
    speech: Spans
    windows: Windows
    items: Items
    seconds: float
    detector: str


def read_rttm(path: Path) -> list[Turn]:
    """The turns of an RTTM file."""
    fields = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [Turn(float(f[3]), float(f[3]) + float(f[4]), f[7]) for f in fields]


def embedded(folder: Path, extractor: Extractor) -> list[Case]:
    """The conversations of a folder."""
    cases = []
    for wav in sorted(folder.glob("*.wav")):
        blocks = partial(recording_blocks, wav, extractor.sample_rate)
        embed = partial(extractor.embed_waveforms, together=True)
        heard = heard_speech(blocks, wav.name, extractor.model, extractor.sample_rate, embed)
        cases.append(Case(wav.stem, read_rttm(wav.with_suffix(".rttm")), *heard))
    if not cases:
        raise ValueError(f"{folder} holds no conversations: make some with conversations.py")
    return cases


def by_linkage(case: Case, likeness: Likeness, is_told: bool = False) -> tuple[Groups, int]:
    """Our speakers of windows, perhaps as many as there are."""
    number = len({turn.speaker for turn in case.true})
    wanted = Wanted(number, number) if is_told else Wanted()
    return speaker_groups(case.items, case.windows, likeness, wanted, case.name)


def by_cosine(case: Case, threshold: float) -> tuple[Groups, int]:
    """Average linkage of cosines, cut at a threshold; small groups are left to the others."""
    from sklearn.cluster import AgglomerativeClustering

    rows, cosines, seconds = _long_windows(case)
    if len(rows) < 2:
        return np.zeros(len(case.items), np.int64), 1
    found = AgglomerativeClustering(
        None, metric="precomputed", linkage="average", distance_threshold=1.0 - threshold
    ).fit_predict(1.0 - cosines)
    return _large_groups(case, rows, found, seconds)


def by_centroid(case: Case, distance: float) -> tuple[Groups, int]:
    """Centroid linkage of unit vectors, cut at a distance; small groups are left to the others."""
    from scipy.cluster.hierarchy import fcluster, linkage

    rows, _, seconds = _long_windows(case)
    if len(rows) < 2:
        return np.zeros(len(case.items), np.int64), 1
    units = case.items.embeddings[rows].astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    found = fcluster(linkage(units, "centroid"), distance, "distance") - 1
    return _large_groups(case, rows, found, seconds)


def _large_groups(
    case: Case, rows: Groups, found: Groups, seconds: NDArray[np.float64]
) -> tuple[Groups, int]:
    """Groups of all windows from those of some; -1 for small groups and the other windows."""
    totals = np.bincount(found, seconds)
    large = np.flatnonzero(totals >= min(LEAST_SPEAKER_SECONDS, totals.max()))
    numbers = np.full(len(totals), -1)
    numbers[large] = np.arange(len(large))
    groups = np.full(len(case.items), -1)
    groups[rows] = numbers[found]
    return groups, len(large)


def by_spectrum(case: Case) -> tuple[Groups, int]:
    """Spectral clustering with as many speakers as the largest eigengap says."""
    from sklearn.cluster import KMeans

    rows, cosines, _ = _long_windows(case)
    n = len(rows)
    kept = min(n, max(FEWEST_KEPT, int(KEPT_SHARE * n)))
    smallest = np.argsort(cosines, axis=1)[:, : n - kept]
    np.put_along_axis(cosines, smallest, 0.0, axis=1)
    affinity = (cosines + cosines.T) / 2.0
    np.fill_diagonal(affinity, 0.0)
    laplacian = np.diag(np.abs(affinity).sum(axis=1)) - affinity
    values, vectors = np.linalg.eigh(laplacian)
    gaps = np.diff(values[: min(n, MOST_SPEAKERS + 1)])
    count = int(gaps.argmax()) + 1 if len(gaps) else 1
    found = KMeans(count, n_init=10, random_state=0).fit_predict(vectors[:, :count])
    groups = np.full(len(case.items), -1)
    groups[rows] = found
    return groups, count


def _long_windows(case: Case) -> tuple[Groups, NDArray[np.float64], NDArray[np.float64]]:
    """The windows that decide, the cosines of all pairs, and how many seconds each counts."""
    lengths = case.windows.spans[:, 1] - case.windows.spans[:, 0]
    rows = np.flatnonzero(lengths >= SHORTEST_LINKED_SECONDS)
    units = case.items.embeddings[rows].astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    return rows, units @ units.T, lengths[rows] / 2.0


def measured(
    cases: list[Case], system: Callable[[Case], tuple[Groups, int]], likeness: Likeness
) -> list[dict[str, Any]]:
    """The errors of each conversation, in seconds."""
    from pyannote.core import Segment, Timeline
    from pyannote.metrics.diarization import DiarizationErrorRate, JaccardErrorRate

    rows = []
    for case in cases:
        turns = turns_of(*system(case), case.items, case.speech, case.windows, likeness)
        about = (case.name, case.seconds, case.detector)
        true, found = (Conversation(x, *about).annotation() for x in (case.true, turns))
        whole = Timeline([Segment(0.0, case.seconds)])
        errors = DiarizationErrorRate(collar=COLLAR_SECONDS, skip_overlap=True)
        parts = errors(true, found, uem=whole, detailed=True)
        _, speakers, overlap, noise, _ = case.name.rsplit("-", 4)
        rows.append(
            {
                "name": case.name,
                "kind": (int(speakers), f"{overlap} %", noise),
                "total": parts["total"],
                "miss": parts["missed detection"],
                "false_alarm": parts["false alarm"],
                "confusion": parts["confusion"],
                "jer": JaccardErrorRate()(true, found, uem=whole),
                "extra_speakers": len(found.labels()) - int(speakers),
            }
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The errors of several conversations in percent; DER over all time, JER as a mean."""
    total = sum(row["total"] for row in rows)
    kinds = ("miss", "false_alarm", "confusion")
    parts = {kind: 100 * sum(row[kind] for row in rows) / total for kind in kinds}
    jer = 100 * float(np.mean([row["jer"] for row in rows]))
    right = 100 * float(np.mean([row["extra_speakers"] == 0 for row in rows]))
    extra = float(np.mean([row["extra_speakers"] for row in rows]))
    return {"der": sum(parts.values()), **parts, "jer": jer, "right_number": right, "extra": extra}


def resampled(rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    """DER and JER in percent (2, replicates) of conversations drawn with replacement.

    The same are drawn for each system, so that differences are paired.
    """
    drawn = np.random.default_rng(0).integers(len(rows), size=(REPLICATES, len(rows)))
    errors = np.array([row["miss"] + row["false_alarm"] + row["confusion"] for row in rows])
    totals, jer = np.array([[row["total"], row["jer"]] for row in rows]).T
    der = errors[drawn].sum(axis=1) / totals[drawn].sum(axis=1)
    return 100.0 * np.stack([der, jer[drawn].mean(axis=1)])


def interval(values: NDArray[np.float64], sign: str = "") -> str:
    """The middle 95 % of values."""
    low, high = np.percentile(values, [2.5, 97.5])
    return f"[{low:{sign}.1f}, {high:{sign}.1f}]"


def line(name: str, rows: list[dict[str, Any]]) -> str:
    """A row of a table."""
    found, (der, jer) = summary(rows), resampled(rows)
    cells = [f"{found['der']:.1f} {interval(der)}"]
    cells += [f"{found[key]:.1f}" for key in ("miss", "false_alarm", "confusion")]
    cells += [f"{found['jer']:.1f} {interval(jer)}"]
    cells += [f"{found['right_number']:.0f}", f"{found['extra']:+.2f}"]
    return f"| {name} | {' | '.join(cells)} |"


def difference(name: str, rows: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """A row of a table: by how much errors of a system are above ours."""
    found, own = summary(rows), summary(ours)
    der, jer = resampled(rows) - resampled(ours)
    cells = [f"{found[key] - own[key]:+.1f}" for key in ("der", "jer")]
    return f"| {name} | {cells[0]} {interval(der, '+')} | {cells[1]} {interval(jer, '+')} |"


def _best(results: dict[float, list[dict[str, Any]]]) -> float:
    """The setting with the least DER; prints that of all."""
    errors = {setting: summary(rows)["der"] for setting, rows in results.items()}
    print("DER when tuned:", {setting: round(error, 1) for setting, error in errors.items()})
    return min(errors, key=lambda setting: errors[setting])


def main() -> None:
    """Measure all systems, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("conversations", type=Path, metavar="CONVERSATIONS")
    parser.add_argument("--model", metavar="MODEL")
    parser.add_argument("--tune", type=Path, metavar="CONVERSATIONS")
    parser.add_argument("--cosine", type=float, default=0.5, help="(default 0.5)")
    parser.add_argument("--centroid", type=float, default=0.8, help="(default 0.8)")
    parser.add_argument("--same-prior", type=float, default=0.25, help="(default 0.25)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    extractor = Extractor.load(options.model)
    likeness, model = Likeness(extractor.model), extractor.model
    cosine, prior, distance = options.cosine, options.same_prior, options.centroid
    if options.tune is not None:
        tuned = embedded(options.tune, extractor)
        cosine = _best(
            {float(x): measured(tuned, partial(by_cosine, threshold=x), likeness) for x in COSINES}
        )
        centroids = {float(x): partial(by_centroid, distance=x) for x in DISTANCES}
        distance = _best({x: measured(tuned, way, likeness) for x, way in centroids.items()})
        ways = {p: partial(by_linkage, likeness=Likeness(model, p)) for p in PRIORS}
        prior = _best({p: measured(tuned, way, likeness) for p, way in ways.items()})
    start = time.process_time()
    cases = embedded(options.conversations, extractor)
    seconds = sum(case.seconds for case in cases)
    print(
        f"{len(cases)} conversations, {seconds / 3600:.2f} h, speech by {cases[0].detector}, "
        f"{time.process_time() - start:.0f} s of processor time until embedded"
    )
    systems: dict[str, Callable[[Case], tuple[Groups, int]]] = {
        "simple_spk": partial(by_linkage, likeness=likeness),
        f"simple_spk, prior {prior:g}": partial(by_linkage, likeness=Likeness(model, prior)),
        "simple_spk, number told": partial(by_linkage, likeness=likeness, is_told=True),
        f"cosine {cosine:g}": partial(by_cosine, threshold=cosine),
        f"centroid {distance:g}": partial(by_centroid, distance=distance),
        "spectral": by_spectrum,
    }
    print("| | DER | miss | false alarm | confusion | JER | right number | extra speakers |")
    print("|---|---|---|---|---|---|---|---|")
    results = {name: measured(cases, system, likeness) for name, system in systems.items()}
    for name, rows in results.items():
        print(line(name, rows))
    print("| paired difference from simple_spk | DER | JER |\n|---|---|---|")
    for name, rows in list(results.items())[1:]:
        print(difference(name, rows, results["simple_spk"]))
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in results["simple_spk"]:
        speakers, overlap, noise = row["kind"]
        corpus = row["name"].rsplit("-", 4)[0]
        for kind in (f"{speakers} speakers", f"overlap {overlap}", noise, corpus):
            groups[kind].append(row)
    for kind, rows in groups.items():
        print(line(f"simple_spk, {kind}", rows))
    if options.json is not None:
        settings = {"cosine": cosine, "centroid": distance, "same_prior": prior}
        write_json(options.json, settings | {"systems": results})


if __name__ == "__main__":
    sys.exit(exit_code("diarization.py", main))
