"""Check the installation and the data, and measure what training needs.

Without options, only the installation is checked. The exit code is 1 if there is a problem.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from simple_spk.cli.messages import say
from simple_spk.cli.options import add_value
from simple_spk.corpora.inspection import Depth
from simple_spk.data.trials import read_trials
from simple_spk.distributed import require_usable_device, usable_cores
from simple_spk.doctor.corpus import (
    InspectionOptions,
    check_files,
    check_voxceleb,
    usable_in_folder,
)
from simple_spk.doctor.corpus_files import (
    files_of_folder,
    files_of_manifest,
    read_utterance_list,
    without_suffix,
)
from simple_spk.doctor.finding import Finding, as_json, as_text, is_well, write_names
from simple_spk.doctor.installation import check_installation
from simple_spk.doctor.trials import check_trials, corpora_of

GPU_NAMES = ("A100-40GB", "A100-80GB", "H100", "4090", "3090", "V100")  # those of gpu_forecast


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of doctor."""
    data = parser.add_argument_group("data")
    add_value(data, "--voxceleb1 FOLDER", "copy of VoxCeleb1")
    add_value(data, "--voxceleb2 FOLDER", "copy of VoxCeleb2, original or converted")
    add_value(data, "--manifest CSV", "manifest of recordings")
    add_value(data, "--audio-folder FOLDER", "folder of recordings")
    what = "expected recordings: 'utterance [seconds]' per line, may be .gz"
    add_value(data, "--utterances LIST", what)
    what = "trial lists: check that their recordings are available"
    add_value(data, "--trials LIST", what, nargs="+", default=[])
    depth = data.add_mutually_exclusive_group()
    depth.add_argument("--names-only", action="store_true", help="do not open the audio files")
    what = "decode all audio: find silence, clipping and duplicates"
    depth.add_argument("--deep", action="store_true", help=what)
    what = "minimum duration for training (default 1)"
    add_value(data, "--shortest SECONDS", what, float, default=InspectionOptions.shortest_seconds)
    what = "processes that inspect audio (default: the number of cores, at most 16)"
    add_value(data, "--processes N", what, int, default=min(16, usable_cores()))
    training = parser.add_argument_group("training (default sizes: those of the experiment)")
    what = "measure the needs of training in a few steps"
    training.add_argument("--training", action="store_true", help=what)
    add_value(training, "--hparams YAML", "experiment (default: the setting of the paper)")
    add_value(training, "--batch N", "crops per batch", int)
    what = "range of crop durations"
    training.add_argument(
        "--crop-seconds", type=float, nargs=2, metavar=("SHORTEST", "LONGEST"), help=what
    )
    add_value(training, "--queue N", "keys in the queue", int)
    add_value(training, "--width N", "channels of the first layer of the ResNet", int)
    add_value(training, "--embedding-dim N", "embedding dimension", int)
    add_value(training, "--workers N", "processes that read crops", int)
    what = "cpu, cuda, cuda:1, ... (default: a GPU if there is one)"
    add_value(training, "--device DEVICE", what, str)
    what = f"forecast for a GPU that is not here: {', '.join(GPU_NAMES)}"
    add_value(training, "--gpu NAME", what, str, choices=GPU_NAMES)
    add_value(training, "--gpus N", "number of these GPUs (default 1)", int)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_value(parser, "--list FILE", "write the names of all faulty files as 'kind<tab>name'")


def run(options: Namespace) -> int:
    """Run the checks that the options select, and print the findings."""
    folders = [options.voxceleb1, options.voxceleb2, options.audio_folder]
    if options.utterances is not None and not any((*folders, options.manifest)):
        places = "--voxceleb1, --voxceleb2, --manifest or --audio-folder"
        raise ValueError(f"--utterances is compared with a copy of the data: give {places}, too")
    if options.gpus is not None and options.gpu is None:
        raise ValueError("--gpus is the number of GPUs of a kind: give --gpu, too")
    findings = check_installation([folder for folder in folders if folder is not None])
    depth = Depth.SAMPLES if options.deep else Depth.NAMES if options.names_only else Depth.ENDS
    inspection = InspectionOptions(depth, options.shortest, options.processes)
    findings += _check_data(options, inspection)
    if options.training or options.hparams is not None or options.gpu is not None:
        findings += _check_training(options)
    if options.list is not None:
        write_names(options.list, findings)
    if options.json:
        print(as_json(findings))
    else:
        say(as_text(findings))
    return 0 if is_well(findings) else 1


def _check_data(options: Namespace, inspection: InspectionOptions) -> list[Finding]:
    """Findings about the data, and whether any of the given places has the trials' recordings."""
    expected = None if options.utterances is None else read_utterance_list(options.utterances)
    checks = [
        check_voxceleb(corpus, folder, expected, inspection)
        for corpus, folder in (("VoxCeleb1", options.voxceleb1), ("VoxCeleb2", options.voxceleb2))
        if folder is not None
    ]
    if options.manifest is not None:
        files = files_of_manifest(options.manifest)
        checks.append(check_files(f"manifest {options.manifest}", files, expected, inspection))
    usable = {name for _, names in checks for name in names}
    if options.audio_folder is not None and (expected is not None or not options.trials):
        files = files_of_folder(options.audio_folder)
        checks.append(check_files(f"folder {options.audio_folder}", files, expected, inspection))
    findings = [finding for found, _ in checks for finding in found]
    lists = [read_trials(path) for path in options.trials]
    in_folder: set[str] = set()
    if options.audio_folder is not None:  # only the files that the lists name are opened
        named = sorted({name for trials in lists for name in trials.ids})
        in_folder = usable_in_folder(options.audio_folder, named, inspection)

    def is_available(name: str) -> bool:
        return name in in_folder or without_suffix(name) in usable

    has_place = any((options.voxceleb1, options.manifest, options.audio_folder))
    for trials in lists:
        corpora = set() if options.audio_folder is not None else corpora_of(usable)
        findings += check_trials(trials, is_available if has_place else None, corpora)
    return findings


def _check_training(options: Namespace) -> list[Finding]:
    """Findings about training; only these need the networks."""
    import torch

    from simple_spk.doctor.training import check_training
    from simple_spk.doctor.training_needs import TrainingSetting, read_setting

    setting = TrainingSetting() if options.hparams is None else read_setting(options.hparams)
    changes = {
        "crop_seconds": options.crop_seconds and tuple(options.crop_seconds),
        "queue_size": options.queue,
        "width": options.width,
        "embedding_dim": options.embedding_dim,
        "workers": options.workers,
    }
    if options.batch is not None:
        per_speaker = setting.recordings_per_speaker
        changes["speakers_per_batch"], rest = divmod(options.batch, per_speaker)
        if rest:
            what = f"a multiple of the {per_speaker} crops per speaker"
            raise ValueError(f"--batch must be {what}, not {options.batch}")
    given = {name: value for name, value in changes.items() if value is not None}
    setting = replace(setting, **given)
    if options.gpu is not None:
        from simple_spk.doctor.gpu_forecast import forecast_finding

        return [forecast_finding(setting, options.gpu, 1 if options.gpus is None else options.gpus)]
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    require_usable_device(device)
    return check_training(setting, device, options.manifest)
