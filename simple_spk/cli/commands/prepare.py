"""Prepare VoxCeleb for training: convert its audio, write manifests and trial lists.

All corpora may have one TARGET, which is then the data folder of hparams/simple_resnet34.yaml, or,
with musan and rooms, of hparams/simple_resnet34_modern.yaml.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.corpora.musan_rirs import prepare_musan, prepare_rooms
from simple_spk.corpora.tables import PreparedCorpus, count_kinds
from simple_spk.corpora.voxceleb import prepare_voxceleb1, prepare_voxceleb2
from simple_spk.data.voxceleb_lists import TOTALS
from simple_spk.distributed import usable_cores


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of prepare."""
    corpora = parser.add_subparsers(dest="corpus", required=True, metavar="CORPUS")
    second = corpora.add_parser(
        "voxceleb2",
        help="VoxCeleb2 dev: m4a to 16 kHz, and train.csv",
        description="Convert VoxCeleb2 dev to 16 kHz, 16 bit, mono, and write TARGET/train.csv. "
        "Stop it in whatever way: the same command goes on where it was.",
    )
    _add_folders(second, "holds dev/aac/id00012/...")
    second.add_argument(
        "--format",
        choices=("flac", "wav"),
        default="flac",
        help="flac (default) takes half the disk",
    )
    second.add_argument(
        "--workers",
        type=int,
        default=usable_cores(),
        metavar="N",
        help="processes that convert (default: all cores)",
    )
    second.add_argument(
        "--retry-quarantined", action="store_true", help="try bad files again, even if unchanged"
    )
    second.set_defaults(prepare=_voxceleb2)
    first = corpora.add_parser(
        "voxceleb1",
        help="VoxCeleb1: test.csv, and a list to validate with; the wav files stay where they are",
        description="Write TARGET/test.csv of VoxCeleb1 dev and test, and of 40 dev speakers "
        "valid.csv and valid_trials.txt.",
    )
    _add_folders(first, "holds wav/id10270/..., or dev/wav and test/wav")
    first.add_argument(
        "--trials",
        type=Path,
        nargs="+",
        default=[],
        metavar="LIST",
        help="trial lists to check and copy, the first as TARGET/test_trials.txt",
    )
    first.add_argument(
        "--workers",
        type=int,
        default=8,
        metavar="N",
        help="headers that are read at a time (default 8)",
    )
    first.set_defaults(prepare=_voxceleb1)
    sounds = {
        "musan": ("noises to train with: MUSAN, as it is", "holds noise, music and speech"),
        "rooms": ("rooms to train with: RIRS_NOISES, as it is", "holds simulated_rirs"),
    }
    for name, (purpose, holds) in sounds.items():
        description = f"Write TARGET/{name}.csv; the files stay where they are."
        sound = corpora.add_parser(name, help=purpose, description=description)
        _add_folders(sound, holds)
        sound.add_argument(
            "--workers",
            type=int,
            default=8,
            metavar="N",
            help="files that are read at a time (default 8)",
        )
        sound.set_defaults(prepare=_sounds)


def run(options: Namespace) -> int:
    """Prepare, and say what was made; 1 if some recordings cannot be used."""
    if options.workers < 1:
        raise ValueError(f"--workers is {options.workers}, but at least one has to work")
    prepared: PreparedCorpus = options.prepare(options)
    speakers = "kinds" if options.prepare is _sounds else "speakers"
    print(
        f"{prepared.recordings} recordings of {prepared.speakers} {speakers}, "
        f"{prepared.hours:.1f} hours, in {prepared.manifest}"
    )
    if prepared.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in prepared.ignored.most_common(5))
        print(f"{prepared.ignored.total()} other files were ignored: {kinds}")
    if not prepared.quarantined:
        return 0
    bad = prepared.quarantined
    print(
        f"{len(bad)} recordings cannot be used ({count_kinds(bad)}); "
        f"they are left out, and listed in {prepared.quarantine}",
        file=sys.stderr,
    )
    return 1


def _add_folders(parser: ArgumentParser, holds: str) -> None:
    """From where, to where."""
    parser.add_argument("source", type=Path, metavar="SOURCE", help=f"the folder that {holds}")
    parser.add_argument("target", type=Path, metavar="TARGET", help="the data folder to make")


def _voxceleb2(options: Namespace) -> PreparedCorpus:
    """Prepare VoxCeleb2 as the options say, and tell whether all of it was there."""
    prepared = prepare_voxceleb2(
        options.source,
        options.target,
        options.format,
        options.workers,
        options.retry_quarantined,
    )
    found = prepared.recordings + len(prepared.quarantined)
    whole = TOTALS["VoxCeleb2 dev"].utterances
    if found != whole:
        print(
            f"found {found} recordings; the whole of VoxCeleb2 dev are {whole}",
            file=sys.stderr,
        )
    return prepared


def _voxceleb1(options: Namespace) -> PreparedCorpus:
    """Prepare VoxCeleb1 as the options say, and tell of the validation list."""
    prepared = prepare_voxceleb1(options.source, options.target, options.trials, options.workers)
    if prepared.validation_recordings:
        print(f"{prepared.validation_recordings} recordings in valid.csv, to validate with")
    else:
        print("no valid.csv: that needs speakers of VoxCeleb1 dev", file=sys.stderr)
    return prepared


def _sounds(options: Namespace) -> PreparedCorpus:
    """Prepare noises or rooms as the options say."""
    prepare = {"musan": prepare_musan, "rooms": prepare_rooms}[options.corpus]
    return prepare(options.source, options.target, options.workers)
