"""Prepare a corpus for training: convert audio, write manifests, trial lists and tar files.

All corpora can share one TARGET, the data folder of hparams/simple_resnet34.yaml or, with musan and
rooms, of hparams/simple_resnet34_modern.yaml.
"""

import contextlib
from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path

from simple_spk.cli.messages import say, warn
from simple_spk.cli.options import add_value
from simple_spk.corpora.tables import PreparedCorpus, count_kinds
from simple_spk.corpora.tar_shards import SHARD_MEGABYTES, store_recordings
from simple_spk.corpora.voxceleb import prepare_voxceleb1, prepare_voxceleb2
from simple_spk.data.voxceleb_lists import TOTALS
from simple_spk.distributed import usable_cores
from simple_spk.io.atomic_file import lock_folder


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of prepare."""
    corpora = parser.add_subparsers(dest="corpus", required=True, metavar="CORPUS")
    purpose = "convert VoxCeleb2 dev to 16 kHz, 16 bit, mono, and write TARGET/train.csv; resumable"
    second = _add_corpus(corpora, "voxceleb2", purpose, "dev/aac/id00012/...")
    what = "flac (default) takes half the disk space"
    second.add_argument("--format", choices=("flac", "wav"), default="flac", help=what)
    what = "processes that convert (default: all cores)"
    add_value(second, "--workers N", what, int, default=usable_cores())
    what = "retry bad files even if they have not changed"
    second.add_argument("--retry-quarantined", action="store_true", help=what)
    purpose = "write test.csv of VoxCeleb1, and valid.csv and valid_trials.txt of 40 dev speakers"
    first = _add_corpus(corpora, "voxceleb1", purpose, "wav/id10270/..., or dev/wav and test/wav")
    what = "trial lists to check and copy, the first as TARGET/test_trials.txt"
    add_value(first, "--trials LIST", what, nargs="+", default=[])
    purpose = "write TARGET/musan.csv, the noises to train with"
    musan = _add_corpus(corpora, "musan", purpose, "noise, music and speech")
    purpose = "write TARGET/rooms.csv, the room impulse responses (RIRS_NOISES) to train with"
    rooms = _add_corpus(corpora, "rooms", purpose, "simulated_rirs")
    purpose = "copy the recordings of any manifest into tar files, with a manifest that reads them"
    shards = _add_parser(corpora, "shards", purpose)
    add_value(shards, "source MANIFEST", "manifest (.csv), such as DATA/train.csv")
    add_value(shards, "target TARGET", "folder to write: shard-0000.tar, ... and the manifest")
    what = f"size of a tar file (default {SHARD_MEGABYTES})"
    add_value(shards, "--shard-megabytes N", what, float, default=SHARD_MEGABYTES)
    purpose = "write a manifest of cuts of lhotse, with FLAC files of those that are parts of files"
    lhotse = _add_parser(corpora, "lhotse", purpose)
    add_value(lhotse, "source CUTS", "NAME.jsonl or NAME.jsonl.gz, of MonoCuts with a speaker")
    add_value(lhotse, "target TARGET", "data folder to write: NAME.csv and cuts/")
    add_value(lhotse, "--workers N", "files read at a time (default 8)", int, default=8)
    for in_place in (first, musan, rooms):
        in_place.description = f"{in_place.description} The audio files stay where they are."
        add_value(in_place, "--workers N", "files read at a time (default 8)", int, default=8)


def _add_parser(
    corpora: "_SubParsersAction[ArgumentParser]", name: str, purpose: str
) -> ArgumentParser:
    """A parser whose help and description are the purpose."""
    return corpora.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")


def _add_corpus(
    corpora: "_SubParsersAction[ArgumentParser]", name: str, purpose: str, content: str
) -> ArgumentParser:
    """The command line of one corpus, whose source folder has this content."""
    parser = _add_parser(corpora, name, purpose)
    add_value(parser, "source SOURCE", f"folder that contains {content}")
    add_value(parser, "target TARGET", "data folder to write")
    return parser


def run(options: Namespace) -> int:
    """Prepare, and print what was written; 1 if some recordings cannot be used."""
    if options.corpus == "shards":
        with lock_folder(options.target / ".shards", "preparing"):
            stored = store_recordings(options.source, options.target, options.shard_megabytes)
        say(f"{stored.recordings} recordings in {stored.tars} tar files, in {stored.manifest}")
        return 0
    if options.workers < 1:
        raise ValueError(f"--workers is {options.workers}, but must be at least 1")
    with contextlib.ExitStack() as locks:
        expected = Path.is_file if options.corpus == "lhotse" else Path.is_dir
        if expected(options.source):
            # Different corpora may be prepared at once: they write different files of the target.
            folder = options.target / f".{options.corpus}"
            locks.enter_context(lock_folder(folder, "preparing"))
        prepared = _prepare(options)
    speakers = "kinds" if options.corpus in ("musan", "rooms") else "speakers"
    say(
        f"{prepared.recordings} recordings of {prepared.speakers} {speakers}, "
        f"{prepared.hours:.1f} hours, in {prepared.manifest}"
    )
    if prepared.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in prepared.ignored.most_common(5))
        say(f"{prepared.ignored.total()} other files were ignored: {kinds}")
    if bad := prepared.quarantined:
        kinds = f"{len(bad)} recordings cannot be used ({count_kinds(bad)})"
        warn(f"{kinds}; they are left out, and listed in {prepared.quarantine}")
    return 1 if bad else 0


def _prepare(options: Namespace) -> PreparedCorpus:
    """Prepare the corpus of the options."""
    from simple_spk.corpora.lhotse_cuts import prepare_lhotse
    from simple_spk.corpora.musan_rirs import prepare_musan, prepare_rooms

    source, target, workers = options.source, options.target, options.workers
    if options.corpus == "lhotse":
        return prepare_lhotse(source, target, workers)
    if options.corpus == "musan":
        return prepare_musan(source, target, workers)
    if options.corpus == "rooms":
        return prepare_rooms(source, target, workers)
    if options.corpus == "voxceleb1":
        prepared = prepare_voxceleb1(source, target, options.trials, workers)
        if prepared.validation_recordings:
            say(f"{prepared.validation_recordings} recordings in valid.csv, to validate with")
        else:
            warn("no valid.csv: it needs two speakers of VoxCeleb1 dev with two videos each")
        return prepared
    prepared = prepare_voxceleb2(source, target, options.format, workers, options.retry_quarantined)
    found = prepared.recordings + len(prepared.quarantined)
    whole = TOTALS["VoxCeleb2 dev"].utterances
    if found != whole:
        warn(f"found {found} recordings; VoxCeleb2 dev has {whole}")
    return prepared
