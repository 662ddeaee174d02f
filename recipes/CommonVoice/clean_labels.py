"""Find wrong speaker labels: python recipes/CommonVoice/clean_labels.py DATA/train.csv -o FILE

A model compares each recording with the rest of its speaker and with other speakers, and speakers
with each other. FILE (CSV) gets the recordings that are hardly of their speaker, to be dropped, and
the speakers that sound like one, to be merged; prepare.py --clean-labels FILE applies it. Do not
give test manifests: labels that a model has chosen make its error rates look better.

The model's own errors are suspects, too. To see how many to expect, give a manifest of a corpus
whose labels are known. Embeddings are kept in --embeddings, which simple-spk embed may have made.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simple_spk.cli.errors import exit_code
from simple_spk.cli.options import add_model
from simple_spk.corpora.label_fixes import LabelFix, write_label_fixes
from simple_spk.data.manifest import read_manifest
from simple_spk.evaluation.label_noise import LabelNoise, find_label_noise
from simple_spk.inference.embedding_store import embed_into_file
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.trial_evaluation import LocatedRecordings


def clean_labels(
    manifests: Sequence[Path],
    output: Path,
    extractor: Extractor,
    embeddings: Path,
    false_share: float = 0.05,
    workers: int = 0,
) -> LabelNoise:
    """Write the suspects among the recordings of manifests."""
    tables = [read_manifest(path) for path in manifests]
    ids = [name for table in tables for name in table.row_of_id]
    if len(set(ids)) < len(ids):
        raise ValueError(f"recordings are in two of {', '.join(map(str, manifests))}")
    recordings = LocatedRecordings(
        ids,
        [table.wav(row) for table in tables for row in range(len(table))],
        np.concatenate([table.durations_seconds for table in tables]),
    )
    made = embed_into_file(embeddings, extractor, recordings, extractor.fingerprint, workers)
    labels = [table.speakers[number] for table in tables for number in table.speaker_of_row]
    speakers, numbers = np.unique(labels, return_inverse=True)
    noise = find_label_noise(made.of(ids), numbers, extractor.model.similarity, false_share)
    fixes = [
        LabelFix("drop", ids[one.row], labels[one.row], f"{one.score:.4f}", f"{one.rank:.3f}")
        for one in noise.recordings
    ]
    fixes += [
        LabelFix(
            "merge", str(speakers[pair.second]), str(speakers[pair.first]), f"{pair.score:.4f}"
        )
        for pair in noise.pairs
    ]
    write_label_fixes(output, fixes)
    return noise


def report(noise: LabelNoise, output: Path) -> str:
    """What was found, for people."""
    lines = [
        f"wrong labels: about {noise.wrong_labels:.0f} of {noise.judged} recordings "
        f"({noise.wrong_labels / max(1, noise.judged):.2%}), the model's own errors included",
        f"to drop: {len(noise.recordings)} recordings, of which about "
        f"{noise.wrongly_suspected:.1f} have the right label (rank above {noise.rank:g})",
        f"to merge: {len(noise.pairs)} pairs of speakers, of which about "
        f"{noise.wrongly_paired:.1f} are two voices",
    ]
    if noise.recordings:
        scores = [one.score for one in noise.recordings]
        lines[1] += f"; scores with their speakers {min(scores):.3f} to {max(scores):.3f}"
    if noise.pairs:
        lines[2] += f"; normalized scores {noise.pairs[-1].score:.2f} to {noise.pairs[0].score:.2f}"
    return "\n".join([*lines, f"suspects: {output}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifests", type=Path, nargs="+", metavar="MANIFEST", help="train.csv ...")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="CSV file")
    parser.add_argument(
        "--embeddings",
        type=Path,
        metavar="FILE",
        help=".npz or .safetensors to use and complete (default: OUTPUT with .npz)",
    )
    parser.add_argument(
        "--false-share", type=float, default=0.05, help="of the suspects, at most (default 0.05)"
    )
    add_model(parser, with_workers=True)
    options = parser.parse_args(arguments)

    def run() -> None:
        extractor = Extractor.load(options.model, options.device, options.precision)
        embeddings = options.embeddings or options.output.with_suffix(".npz")
        noise = clean_labels(
            options.manifests,
            options.output,
            extractor,
            embeddings,
            options.false_share,
            options.workers,
        )
        print(report(noise, options.output))

    return exit_code("clean_labels.py", run, resumes=True)


if __name__ == "__main__":
    sys.exit(main())
