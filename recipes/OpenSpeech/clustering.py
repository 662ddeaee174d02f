"""How well recordings are sorted by speaker: python recipes/OpenSpeech/clustering.py CSV LIST ...

Clusters the recordings that each trial list names, which are of one corpus, as simple-spk cluster
does, and compares the clusters with the speakers of the manifest (CSV). Nothing is tuned.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from simple_spk import Extractor
from simple_spk.cli.errors import exit_code
from simple_spk.data.manifest import read_manifest
from simple_spk.data.trials import read_trials
from simple_spk.inference.diarization.recording_clusters import sorted_rows
from simple_spk.inference.trial_evaluation import locate_recordings


def summary(rows: list[dict[str, Any]], speakers: list[str]) -> str:
    """A row of a table: how rows of ``sorted_rows`` agree with their true speakers."""
    from sklearn.metrics import adjusted_rand_score

    found = [row["speaker"] for row in rows]
    doubtful = np.array([row["doubtful"] for row in rows])
    votes: dict[str, list[str]] = {}
    for cluster, speaker in zip(found, speakers, strict=True):
        votes.setdefault(cluster, []).append(speaker)
    majority = {cluster: max(set(of), key=of.count) for cluster, of in votes.items()}
    wrong = np.array([majority[f] != s for f, s in zip(found, speakers, strict=True)])
    shares = [100 * wrong.mean(), 100 * doubtful.mean()]
    shares += [100 * wrong[of].mean() if of.any() else 0.0 for of in (doubtful, ~doubtful)]
    cells = [str(len(of)) for of in (rows, set(speakers), set(found))]
    cells += [f"{adjusted_rand_score(speakers, found):.3f}", *(f"{x:.1f}" for x in shares)]
    return " | ".join(cells)


def main() -> None:
    """Print a table with a row for each list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path, metavar="CSV")
    parser.add_argument("lists", type=Path, nargs="+", metavar="LIST")
    parser.add_argument("--model", metavar="MODEL")
    parser.add_argument("--same-prior", type=float, help="(default 0.1)")
    options = parser.parse_args()
    manifest, extractor = read_manifest(options.manifest), Extractor.load(options.model)
    speaker_of = {
        name: manifest.speakers[manifest.speaker_of_row[row]]
        for name, row in manifest.row_of_id.items()
    }
    print("list | recordings | speakers | clusters | adjusted Rand index | % in a cluster of "
          "another speaker | % doubtful | % wrong of these | % wrong of the others")  # fmt: skip
    for path in options.lists:
        names, paths, _ = locate_recordings([read_trials(path)], options.manifest)
        rows, failed = sorted_rows(extractor, names, paths, same_prior=options.same_prior)
        print(f"{path.stem} | {summary(rows, [speaker_of[row['id']] for row in rows])}")
        if failed:
            print(f"left out: {', '.join(failed)}")


if __name__ == "__main__":
    sys.exit(exit_code("clustering.py", main))
