"""Embeddings of audio files, folders of them, or lists, as one file.

An interrupted run resumes: finished embeddings are kept in FILE.parts until all are done.
Recordings that cannot be used are named; the others are written, and the exit code is 1.
A LIST is .txt or .scp with 'path' or 'id path' in each line, or a manifest (.csv).

To share the work among processes, or with --device cuda among GPUs:
torchrun --nproc_per_node=N --no-python simple-spk embed ...
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simple_spk.cli.messages import say, warn
from simple_spk.cli.options import add_model, add_value, load_extractor
from simple_spk.cli.outputs import check_outputs
from simple_spk.data.recording_lists import find_recordings
from simple_spk.distributed import gather_objects, join_group, leave_group, own_device, rank
from simple_spk.evaluation.embedding_files import check_format, write_embeddings

if TYPE_CHECKING:
    from simple_spk.inference.embedding_store import EmbeddingStore


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of embed."""
    what = "audio files, folders of them, lists (.txt, .scp) or manifests (.csv)"
    add_value(parser, "audio FILE|FOLDER|LIST", what, nargs="+")
    what = "file to write: .npz, .safetensors, or .ark (with an .scp)"
    add_value(parser, "-o --output FILE", what, required=True)
    add_model(parser, with_workers=True)


def run(options: Namespace) -> int:
    """Embed, and write the file; 1 if some recordings could not be used."""
    from simple_spk.inference.embedding_store import EmbeddingStore

    join_group()
    ids, paths, left_out = find_recordings(options.audio)
    if left_out and rank() == 0:
        first = ", ".join(map(str, left_out[:3]))
        warn(
            f"left out {len(left_out)} files that are not audio by their names ({first}"
            f"{', ...' if len(left_out) > 3 else ''}): name those that are"
        )
    check_outputs([options.output], [*paths, *options.audio])
    check_format(options.output, ids)
    extractor = load_extractor(options, own_device(options.device))
    made_by = f"{extractor.fingerprint} in {options.precision}"
    store = EmbeddingStore(options.output, made_by, ids, paths)
    with store.held():
        if rank() == 0 and not store.begin():
            warn(f"note: {store.folder} was of another model: starting anew")
        gather_objects(None)  # nobody reads before the first process has made the folder ready
        missing = store.missing()
        if rank() == 0 and len(missing) < len(ids):
            warn(f"{len(ids) - len(missing)} of {len(ids)} embeddings are there already")
        failed = store.fill(extractor, missing, options.workers)
        if rank() == 0:
            _write(options.output, ids, store, failed, extractor.fingerprint)
    code = 1 if failed else 0
    leave_group(code)
    return code


def _write(
    output: Path, ids: list[str], store: "EmbeddingStore", failed: dict[int, str], fingerprint: str
) -> None:
    """Write all embeddings to the output, and report which recordings are missing in it."""
    done = store.collect(failed)
    if not done:
        store.remove()
        first = failed[min(failed)]
        raise ValueError(f"none of {len(ids)} recordings could be embedded; the first: {first}")
    for index in sorted(failed):  # all of them, so that they can be repaired
        warn(f"not embedded: {ids[index]}: {failed[index]}")
    matrix = np.stack(list(done.values()))
    write_embeddings(output, [ids[index] for index in done], matrix, fingerprint)
    say(f"{len(done)} embeddings of dimension {matrix.shape[1]} in {output}")
    if failed:
        warn(
            f"{len(failed)} of {len(ids)} recordings are missing in {output}: repair them or leave "
            "them out; the same command tries only them again"
        )
    else:
        store.remove()
