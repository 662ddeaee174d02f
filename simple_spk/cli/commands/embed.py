"""Embeddings of audio files, folders of them, or lists, as one file or as Parquet parts.

An interrupted run resumes: finished embeddings are kept in FILE.parts until all are done.
Recordings that cannot be used are named; the others are written, and the exit code is 1.
A LIST is .txt or .scp with 'path' or 'id path' in each line, or a manifest (.csv).

To share the work among processes, or with --device cuda among GPUs:
torchrun --nproc_per_node=N --no-python simple-spk embed ...

For jobs that do not know of each other, such as those of a Slurm array, --shard I/N embeds the
I-th of N parts of the list (I from 1 to N), and -o FOLDER takes a Parquet file of each. A part that
is complete is not embedded again.
"""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from simple_spk.cli.messages import say, warn
from simple_spk.cli.options import add_audio, add_model, add_value, load_extractor
from simple_spk.cli.outputs import check_outputs, warn_of_other_files
from simple_spk.data.recording_lists import Shard, find_recordings
from simple_spk.distributed import gather_objects, join_group, leave_group, own_device, rank
from simple_spk.evaluation.embedding_files import PARQUET, check_format
from simple_spk.io.parquet_parts import check_parts, part_name, read_stamp

if TYPE_CHECKING:
    from simple_spk.inference.embedding_store import EmbeddingStore
    from simple_spk.inference.extractor import Extractor


def read_shard(text: str) -> Shard:
    """The shard of a text such as 3/8."""
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    shard = Shard(0, 0) if match is None else Shard(int(match[1]), int(match[2]))
    if not 1 <= shard.number <= shard.total:
        what = "expected I/N with I from 1 to N, such as 3/8"
        raise ArgumentTypeError(f"{text!r} is not a shard: {what}")
    return shard


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of embed."""
    add_audio(parser)
    what = (
        ".npz, .safetensors, .parquet or .ark (with an .scp) to write, or a folder of Parquet parts"
    )
    add_value(parser, "-o --output FILE|FOLDER", what, required=True)
    what = "embed only the I-th of N equal parts of the list"
    add_value(parser, "--shard I/N", what, read_shard, default=Shard(1, 1))
    add_model(parser, with_workers=True)


def run(options: Namespace) -> int:
    """Embed, and write the file; 1 if some recordings could not be used."""
    from simple_spk.inference.embedding_store import EmbeddingStore

    join_group()
    ids, paths, left_out = find_recordings(options.audio)
    if rank() == 0:
        warn_of_other_files(left_out)
    output, shard = options.output, options.shard
    ids, paths = shard.of(ids), shard.of(paths)
    if not output.suffix or output.is_dir():
        check_parts(output, shard.total)
        output = output / part_name(*shard)
    check_outputs([output], [*paths, *options.audio])
    check_format(output, ids)
    extractor = load_extractor(options, own_device(options.device))
    store = EmbeddingStore.of(extractor, output, ids, paths)
    is_done = output.suffix == PARQUET and read_stamp(output) == store.digest()
    if any(gather_objects(is_done)):
        if rank() == 0:
            say(f"{len(ids)} embeddings are in {output} already")
        leave_group(0)
        return 0
    with store.held():
        if rank() == 0 and not store.begin():
            warn(f"note: {store.folder} was of another model: starting anew")
        gather_objects(None)  # nobody reads before the first process has made the folder ready
        missing = store.missing()
        if rank() == 0 and len(missing) < len(ids):
            warn(f"{len(ids) - len(missing)} of {len(ids)} embeddings are there already")
        failed = store.fill(extractor, missing, options.workers)
        if rank() == 0:
            _write(output, store, failed, extractor)
    code = 1 if failed else 0
    leave_group(code)
    return code


def _write(
    output: Path, store: "EmbeddingStore", failed: dict[int, str], extractor: "Extractor"
) -> None:
    """Write all embeddings to the output, and report which recordings are missing in it."""
    count, dimension = store.finish(output, failed, extractor)
    total = len(store.ids)
    if not count:
        first = failed[min(failed)]
        raise ValueError(f"none of {total} recordings could be embedded; the first: {first}")
    for index in sorted(failed):  # all of them, so that they can be repaired
        warn(f"not embedded: {store.ids[index]}: {failed[index]}")
    say(f"{count} embeddings of dimension {dimension} in {output}")
    if failed:
        warn(
            f"{len(failed)} of {total} recordings are missing in {output}: repair them or leave "
            "them out; the same command tries only them again"
        )
