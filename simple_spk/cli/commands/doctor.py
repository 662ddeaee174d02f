"""Is the installation sound, is the data complete, and what will training need?

Without options the installation alone is checked. Exit code 1 if there is any problem.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from simple_spk.corpora.inspection import Depth
from simple_spk.data.trials import read_trials
from simple_spk.distributed import usable_cores
from simple_spk.doctor.corpus import (
    InspectionOptions,
    check_files,
    check_voxceleb,
    files_of_folder,
    files_of_manifest,
    read_utterance_list,
    usable_in_folder,
    without_suffix,
)
from simple_spk.doctor.finding import Finding, as_json, as_text, is_well, write_names
from simple_spk.doctor.installation import check_installation
from simple_spk.doctor.trials import check_trials


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of doctor."""
    data = parser.add_argument_group("data")
    data.add_argument("--voxceleb1", type=Path, metavar="DIR", help="a copy of VoxCeleb1")
    data.add_argument(
        "--voxceleb2", type=Path, metavar="DIR", help="a copy of VoxCeleb2, original or converted"
    )
    data.add_argument("--manifest", type=Path, metavar="CSV", help="a manifest of recordings")
    data.add_argument("--audio-folder", type=Path, metavar="DIR", help="a folder of recordings")
    data.add_argument(
        "--utterances",
        type=Path,
        metavar="LIST",
        help="what should be there: 'utterance [seconds]' per line, may be .gz",
    )
    data.add_argument(
        "--trials",
        type=Path,
        nargs="+",
        default=[],
        metavar="LIST",
        help="trial lists: can they be scored?",
    )
    how = data.add_mutually_exclusive_group()
    how.add_argument("--names-only", action="store_true", help="do not open the audio files")
    how.add_argument("--deep", action="store_true", help="decode all: silence, clipping, copies")
    data.add_argument(
        "--shortest",
        type=float,
        default=InspectionOptions.shortest_seconds,
        metavar="SECONDS",
        help="recordings that are shorter are too short to train on (default 1)",
    )
    data.add_argument(
        "--processes",
        type=int,
        default=min(16, usable_cores()),
        metavar="N",
        help="processes that inspect audio (default: as many as cores, at most 16)",
    )
    training = parser.add_argument_group("training (sizes: those of the experiment, unless given)")
    training.add_argument(
        "--training", action="store_true", help="measure what training needs, by a few steps"
    )
    training.add_argument(
        "--hparams", type=Path, metavar="YAML", help="the experiment (default: the paper's setting)"
    )
    training.add_argument("--batch", type=int, metavar="N", help="crops in a batch")
    training.add_argument(
        "--crop-seconds",
        type=float,
        nargs=2,
        metavar=("SHORTEST", "LONGEST"),
        help="limits of a crop's length",
    )
    training.add_argument("--queue", type=int, metavar="N", help="keys in the queue")
    training.add_argument(
        "--width", type=int, metavar="N", help="channels of the ResNet's first layer"
    )
    training.add_argument("--embedding-dim", type=int, metavar="N", help="numbers in an embedding")
    training.add_argument("--workers", type=int, metavar="N", help="processes that read crops")
    training.add_argument(
        "--device", metavar="DEVICE", help="cpu, cuda, cuda:1, ... (default: a GPU, if any)"
    )
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    parser.add_argument(
        "--list",
        type=Path,
        metavar="FILE",
        help="write the names of all faulty files, as 'kind<tab>name'",
    )


def run(options: Namespace) -> int:
    """Check everything that was asked for, and say what was found."""
    folders = [options.voxceleb1, options.voxceleb2, options.audio_folder]
    if options.utterances is not None and not any((*folders, options.manifest)):
        raise ValueError(
            f"--utterances {options.utterances} says what should be there, but not where: give "
            f"--voxceleb1, --voxceleb2, --manifest or --audio-folder"
        )
    findings = check_installation([folder for folder in folders if folder is not None])
    depth = Depth.SAMPLES if options.deep else Depth.ENDS
    inspection = InspectionOptions(
        Depth.NAMES if options.names_only else depth, options.shortest, options.processes
    )
    data_findings, usable = _check_data(options, inspection)
    findings += data_findings
    findings += _check_trials(options, usable, inspection)
    if options.training or options.hparams is not None:
        findings += _check_training(options)
    if options.list is not None:
        write_names(options.list, findings)
    print(as_json(findings) if options.json else as_text(findings))
    return 0 if is_well(findings) else 1


def _check_data(
    options: Namespace, inspection: InspectionOptions
) -> tuple[list[Finding], set[str]]:
    """Findings about the copies, and the names of usable recordings in any of them."""
    expected = None if options.utterances is None else read_utterance_list(options.utterances)
    findings: list[Finding] = []
    usable: set[str] = set()
    for corpus, folder in (("VoxCeleb1", options.voxceleb1), ("VoxCeleb2", options.voxceleb2)):
        if folder is not None:
            found, names = check_voxceleb(corpus, folder, expected, inspection)
            findings += found
            usable |= names.keys()
    if options.manifest is not None:
        files = files_of_manifest(options.manifest)
        found, names = check_files(f"manifest {options.manifest}", files, expected, inspection)
        findings += found
        usable |= names.keys()
    if options.audio_folder is not None and (expected is not None or not options.trials):
        files = files_of_folder(options.audio_folder)
        found, _ = check_files(f"folder {options.audio_folder}", files, expected, inspection)
        findings += found
    return findings, usable


def _check_trials(
    options: Namespace, usable: set[str], inspection: InspectionOptions
) -> list[Finding]:
    """Findings about trial lists: a recording is at hand if any of the given places has it."""
    lists = [read_trials(path) for path in options.trials]
    in_folder: set[str] = set()
    if options.audio_folder is not None:  # of which only what the lists name is opened
        named = sorted({name for trials in lists for name in trials.ids})
        in_folder = usable_in_folder(options.audio_folder, named, inspection)

    def is_at_hand(name: str) -> bool:
        return name in in_folder or without_suffix(name) in usable

    has_place = any((options.voxceleb1, options.manifest, options.audio_folder))
    tell: Callable[[str], bool] | None = is_at_hand if has_place else None
    return [finding for trials in lists for finding in check_trials(trials, tell)]


def _check_training(options: Namespace) -> list[Finding]:
    """Findings about training, which alone need torch and its networks."""
    import torch

    from simple_spk.doctor.training import check_training
    from simple_spk.doctor.training_needs import TrainingSetting, read_setting

    setting = TrainingSetting() if options.hparams is None else read_setting(options.hparams)
    if options.batch is not None:
        if options.batch % setting.recordings_per_speaker:
            raise ValueError(
                f"--batch {options.batch} must be a multiple of the "
                f"{setting.recordings_per_speaker} recordings of each speaker"
            )
        speakers = options.batch // setting.recordings_per_speaker
        setting = replace(setting, speakers_per_batch=speakers)
    changes = {
        "crop_seconds": options.crop_seconds and tuple(options.crop_seconds),
        "queue_size": options.queue,
        "width": options.width,
        "embedding_dim": options.embedding_dim,
        "workers": options.workers,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {device} cannot be used: {error}") from error
    return check_training(replace(setting, **given), device, options.manifest)
