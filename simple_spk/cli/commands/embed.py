"""Embeddings of audio files, of folders of them, or of lists, as one file.

An interrupted run goes on where it was: what is done lies in FILE.parts until all is. Recordings
that cannot be used are named; the others are written, and the exit code is 1.

To share the work among processes, or with --device cuda among GPUs:
torchrun --nproc_per_node=N --no-python simple-spk embed ...
"""

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk.cli.options import add_model, add_workers
from simple_spk.cli.outputs import check_outputs
from simple_spk.data.recording_lists import find_recordings
from simple_spk.distributed import (
    gather_objects,
    join_group,
    leave_group,
    own_device,
    rank,
    world_size,
)
from simple_spk.evaluation.embedding_files import EmbeddingParts, check_format, write_embeddings
from simple_spk.inference.extractor import Extractor

SECONDS_BETWEEN_PARTS = 30.0


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
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="file to write: .npz, .safetensors, or .ark (with an .scp)",
    )
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
    parts = EmbeddingParts(options.output, made_by, ids, paths)
    if rank() == 0 and not parts.begin():
        print(
            f"simple-spk: note: {parts.folder} was of another model or list: starting anew",
            file=sys.stderr,
        )
    gather_objects(None)  # nobody reads before the first process has made the folder ready
    done = parts.read()
    if rank() == 0 and done:
        print(f"{len(done)} of {len(ids)} embeddings are there already", file=sys.stderr)
    missing = [index for index in range(len(ids)) if index not in done]
    del done  # gigabytes, in every process
    gather_objects(None)  # nobody writes before all have read
    errors = _embed(extractor, paths, missing, parts, options.workers)
    failed = {index: text for some in gather_objects(errors) for index, text in some.items()}
    if rank() == 0:
        _write(options.output, ids, parts, failed, extractor.fingerprint)
    code = 1 if failed else 0
    leave_group(code)
    return code


def _embed(
    extractor: Extractor,
    paths: list[Path],
    missing: list[int],
    parts: EmbeddingParts,
    workers: int,
) -> dict[int, str]:
    """Embed recordings into parts; why some could not be, by their places."""
    made: dict[int, NDArray[np.float32]] = {}
    errors: dict[int, str] = {}
    last = time.monotonic()

    def keep() -> None:
        nonlocal last
        if made:
            parts.write(made)
            made.clear()
            last = time.monotonic()

    share = len(range(rank(), len(missing), world_size()))
    bar = tqdm(total=share, unit="rec", desc="embed", disable=rank() > 0)
    try:
        with bar:
            todo = [paths[index] for index in missing]
            for batch in extractor.embed_each(todo, workers=workers, progress=True):
                rows = zip(batch.indexes, batch.embeddings, strict=True)
                made.update({missing[place]: row for place, row in rows})
                errors.update({missing[p]: str(error) for p, error in batch.errors.items()})
                bar.update(len(batch.indexes) + len(batch.errors))
                if time.monotonic() - last > SECONDS_BETWEEN_PARTS:
                    keep()
    finally:
        keep()  # also when Ctrl-C ends it
    return errors


def _write(
    output: Path, ids: list[str], parts: EmbeddingParts, failed: dict[int, str], fingerprint: str
) -> None:
    """Write the embeddings of all parts, and say what is in the file and what is not."""
    done = parts.read()
    for index in set(range(len(ids))) - set(done) - set(failed):
        failed[index] = "it changed while the others were embedded"
    if not done:
        parts.remove()
        first = failed[min(failed)]
        raise ValueError(f"none of {len(ids)} recordings could be embedded; the first: {first}")
    for index in sorted(failed):  # all of them: the list is what to mend
        print(f"simple-spk: not embedded: {ids[index]}: {failed[index]}", file=sys.stderr)
    places = sorted(done)
    matrix = np.stack([done[place] for place in places])
    write_embeddings(output, [ids[place] for place in places], matrix, fingerprint)
    print(f"{len(places)} embeddings of dimension {matrix.shape[1]} in {output}")
    if failed:
        print(
            f"simple-spk: {len(failed)} of {len(ids)} recordings are missing in {output}: mend "
            "them or leave them out; the same command tries only them again",
            file=sys.stderr,
        )
    else:
        parts.remove()
