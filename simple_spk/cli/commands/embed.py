"""Embeddings of audio files, folders of them, or lists, as one file.

An interrupted run resumes: finished embeddings are kept in FILE.parts until all are done.
Recordings that cannot be used are named; the others are written, and the exit code is 1.

To share the work among processes, or with --device cuda among GPUs:
torchrun --nproc_per_node=N --no-python simple-spk embed ...
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np

from simple_spk.cli.options import add_model, add_workers
from simple_spk.cli.outputs import check_outputs
from simple_spk.data.recording_lists import find_recordings
from simple_spk.distributed import gather_objects, join_group, leave_group, own_device, rank
from simple_spk.evaluation.embedding_files import check_format, write_embeddings
from simple_spk.inference.batch_embedding import ExtractionOptions
from simple_spk.inference.embedding_store import EmbeddingStore
from simple_spk.inference.extractor import Extractor


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of embed."""
    parser.add_argument(
        "audio",
        type=Path,
        nargs="+",
        metavar="FILE|FOLDER|LIST",
        help="audio files, folders of them, lists (.txt, .scp: 'path' or 'id path' in each line), "
        "or manifests (.csv)",
    )
    what = "file to write: .npz, .safetensors, or .ark (with an .scp)"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=what)
    add_model(parser)
    add_workers(parser)


def run(options: Namespace) -> int:
    """Embed, and write the file; 1 if some recordings could not be used."""
    join_group()
    ids, paths = find_recordings(options.audio)
    check_outputs([options.output], [*paths, *options.audio])
    check_format(options.output, ids)
    extractor = Extractor.load(options.model, own_device(options.device), options.precision)
    made_by = f"{extractor.fingerprint} in {options.precision}"
    store = EmbeddingStore(options.output, made_by, ids, paths)
    if rank() == 0 and not store.begin():
        print(
            f"simple-spk: note: {store.folder} was of another model: starting anew", file=sys.stderr
        )
    gather_objects(None)  # nobody reads before the first process has made the folder ready
    missing = store.missing()
    if rank() == 0 and len(missing) < len(ids):
        done = len(ids) - len(missing)
        print(f"{done} of {len(ids)} embeddings are there already", file=sys.stderr)
    failed = store.fill(extractor, missing, ExtractionOptions(workers=options.workers))
    if rank() == 0:
        _write(options.output, ids, store, failed, extractor.fingerprint)
    code = 1 if failed else 0
    leave_group(code)
    return code


def _write(
    output: Path, ids: list[str], store: EmbeddingStore, failed: dict[int, str], fingerprint: str
) -> None:
    """Write all embeddings to the output, and report which recordings are missing in it."""
    done = store.collect(failed)
    if not done:
        store.remove()
        first = failed[min(failed)]
        raise ValueError(f"none of {len(ids)} recordings could be embedded; the first: {first}")
    for index in sorted(failed):  # all of them, so that they can be repaired
        print(f"simple-spk: not embedded: {ids[index]}: {failed[index]}", file=sys.stderr)
    matrix = np.stack(list(done.values()))
    write_embeddings(output, [ids[index] for index in done], matrix, fingerprint)
    print(f"{len(done)} embeddings of dimension {matrix.shape[1]} in {output}")
    if failed:
        print(
            f"simple-spk: {len(failed)} of {len(ids)} recordings are missing in {output}: repair "
            "them or leave them out; the same command tries only them again",
            file=sys.stderr,
        )
    else:
        store.remove()
