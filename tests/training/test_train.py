"""train.py from outside: every YAML runs, killed runs end like others, mistakes are explained."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file

from tests.training_runs import run_train
from tools.make_toy_corpus import make_toy_corpus

ROOT = Path(__file__).parents[2]
YAML_FILES = sorted(
    path
    for path in [*ROOT.glob("hparams/*.yaml"), *ROOT.glob("recipes/*/hparams/*.yaml")]
    if "simple_spk.data.dataset." in path.read_text()  # those with images have tests of their own
)

# A model and batches that take seconds on one core.
SMALL = [
    "--speakers_per_batch=4",
    "--recordings_per_speaker=2",
    "--crop_seconds=[0.5, 0.8]",
    "--batches_per_epoch=4",
    "--number_of_epochs=2",
    "--workers=0",
    "--width=4",
    "--encoder={stem_stride: 2}",
    "--queue_size=20",
    "--log_interval=1",
    "--device=cpu",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder laid out as the YAML files expect: a few speakers of synthetic speech."""
    folder = tmp_path_factory.mktemp("data") / "corpus"
    make_toy_corpus(
        folder, train_speakers=6, valid_speakers=2, test_speakers=3, recordings_per_speaker=4
    )
    write_extras(folder)
    return folder


def write_extras(folder):
    """What recipes name beyond the five tables: noises and a room, crops, lists of corpora."""
    from simple_spk.data.manifest import write_manifest

    for part in ("valid", "test"):
        for condition in ("2s", "noise"):
            shutil.copy(folder / f"{part}.csv", folder / f"{part}_{condition}.csv")
        for corpus in ("speechocean762", "audiomnist"):
            shutil.copy(folder / f"{part}_trials.txt", folder / f"{part}_trials_{corpus}.txt")
    for kind in ("noise", "music", "speech", "babble", "room"):
        samples = np.random.default_rng(len(kind)).normal(0, 0.1, 8000)
        soundfile.write(folder / f"{kind}.wav", samples * np.exp(-np.arange(8000) / 2000), 16000)
    for table, kinds in {
        "musan.csv": ["noise", "music", "speech"],
        "noises.csv": ["noise", "babble"],
    }.items():
        wavs, seconds = [f"{kind}.wav" for kind in kinds], [0.5] * len(kinds)
        write_manifest(folder / table, kinds, wavs, seconds, kinds)
    write_manifest(folder / "rooms.csv", ["room"], ["room.wav"], [0.5], ["room"])


def command(corpus, output, *options, yaml=ROOT / "hparams/mini.yaml"):
    """The command line of a small run; later options win over earlier ones."""
    chosen = {text.partition("=")[0]: text for text in [*SMALL, *options]}
    return [
        sys.executable,
        "train.py",
        str(yaml),
        f"--data_folder={corpus}",
        f"--output_folder={output}",
        "--prepare=null",
        *chosen.values(),
    ]


def run(arguments, **environment):
    """The finished process of a command; a single training runs in this process."""
    if arguments[1] == "train.py" and not environment:
        return run_train(arguments[2:])
    return subprocess.run(
        arguments,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def weights(output):
    """The final model's weights."""
    return load_file(output / "model/model.safetensors")


def assert_equal_weights(first, second):
    first, second = weights(first), weights(second)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.fixture(scope="module")
def unbroken(corpus, tmp_path_factory):
    """The output folder of a run that nothing interrupted."""
    output = tmp_path_factory.mktemp("runs") / "unbroken"
    finished = run(command(corpus, output))
    assert finished.returncode == 0, finished.stderr
    return output


def test_a_run_leaves_everything_it_promises(unbroken):
    metrics = json.loads((unbroken / "metrics.json").read_text())
    assert 0.0 <= metrics["eer"] <= 100.0 and 0.0 <= metrics["min_dcf"]["0.01"] <= 1.0
    assert metrics["lists"]["toy"]["eer"] == metrics["eer"]
    trials = metrics["trials"]
    assert len((unbroken / "scores_toy.txt").read_text().splitlines()) == trials
    assert list((unbroken / "tensorboard").glob("events*"))
    assert (unbroken / "hyperparams.yaml").is_file() and (unbroken / "log.txt").is_file()
    written = [path.stat().st_mtime_ns for path in (unbroken / "model").iterdir()]
    assert written and max(written) <= (unbroken / "metrics.json").stat().st_mtime_ns


def test_the_model_folder_scores_as_the_run_did(unbroken, corpus, tmp_path):
    arguments = {
        "model": unbroken / "model",
        "trials": corpus / "test_trials.txt",
        "manifest": corpus / "test.csv",
        "json": tmp_path / "metrics.json",
    }
    options = [f"--{name}={value}" for name, value in arguments.items()]
    finished = run([sys.executable, "-m", "simple_spk.cli.main", "evaluate", *options])
    assert finished.returncode == 0, finished.stderr
    again = json.loads((tmp_path / "metrics.json").read_text())
    assert again["eer"] == json.loads((unbroken / "metrics.json").read_text())["eer"]


def test_test_only_repeats_the_result_and_wants_a_checkpoint(corpus, unbroken, tmp_path):
    before = (unbroken / "metrics.json").read_text()
    (unbroken / "metrics.json").unlink()
    assert run(command(corpus, unbroken, "--test_only")).returncode == 0
    assert (unbroken / "metrics.json").read_text() == before
    finished = run(command(corpus, tmp_path / "nothing", "--test_only"))
    assert finished.returncode != 0 and "no checkpoint" in finished.stderr


def test_debug_runs_through(corpus, tmp_path):
    finished = run(command(corpus, tmp_path / "debug", "--debug"))
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("workers", [0, 1])
def test_a_killed_run_ends_bit_equal_to_an_unbroken_one(corpus, unbroken, tmp_path, workers):
    """kill -9 in mid-epoch, as soon as a new checkpoint is there, three times; then finish."""
    output = tmp_path / "killed"
    arguments = command(corpus, output, f"--workers={workers}", "--ckpt_interval_steps=1")

    def checkpoints():
        return {path.name for path in (output / "checkpoints").glob("CKPT*")}

    for _ in range(3):
        before = checkpoints()
        process = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.time() + 120
        while checkpoints() <= before and process.poll() is None:
            assert time.time() < deadline, "no checkpoint appeared"
            time.sleep(0.002)
        assert process.poll() is None, "the run ended before it was killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (output / "metrics.json").exists(), "the run ended before it was killed"
    finished = run(arguments)
    assert finished.returncode == 0, finished.stderr
    assert_equal_weights(output, unbroken)
    metrics = [json.loads((o / "metrics.json").read_text()) for o in (output, unbroken)]
    assert metrics[0] == metrics[1]


@pytest.fixture(scope="module")
def modern_yaml(tmp_path_factory):
    """The modern recipe with its stage of large crops from epoch 3 on, and a mean of two epochs."""
    text = (ROOT / "hparams/simple_resnet34_modern.yaml").read_text()
    for old, new in (
        ("1: [2.0, 4.0]", "1: [0.4, 0.6]"),
        ("141: [6.0, 8.0]", "3: [0.9, 1.0]"),
        ("141: [1.0]", "3: [1.0]"),
        ("epochs_to_average: 10", "epochs_to_average: 2"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = tmp_path_factory.mktemp("yaml") / "modern.yaml"
    path.write_text(text)
    return path


def test_the_mean_of_the_last_epochs_is_what_is_tested_and_kept(corpus, modern_yaml, tmp_path):
    """Stages, augmentation and averaging together, and the same again when taken up half way."""

    def arguments(output, *options):
        given = command(corpus, output, "--batches_per_epoch=2", *options, yaml=modern_yaml)
        return [option for option in given if not option.startswith("--crop_seconds")]

    whole = tmp_path / "whole"
    finished = run(arguments(whole, "--number_of_epochs=4"))
    assert finished.returncode == 0, finished.stderr
    assert "mean of those of the last 2 epochs" in finished.stderr + finished.stdout
    encoders = [
        torch.load(path / "encoder.ckpt", weights_only=True)
        for path in (whole / "checkpoints").glob("CKPT*")
    ]
    assert len(encoders) == 2, "as many checkpoints as are averaged, and no more"
    for name, value in weights(whole).items():
        if name.startswith("encoder.") and value.is_floating_point():
            mean = sum(encoder[name.removeprefix("encoder.")] for encoder in encoders) / 2
            torch.testing.assert_close(value, mean)

    stopped = tmp_path / "stopped"
    assert run(arguments(stopped, "--number_of_epochs=2", "--workers=1")).returncode == 0
    finished = run(arguments(stopped, "--number_of_epochs=4"))
    assert finished.returncode == 0, finished.stderr
    assert_equal_weights(whole, stopped)


def test_other_settings_do_not_go_on_with_an_old_run(corpus, unbroken):
    finished = run(command(corpus, unbroken, "--learning_rate=0.05"))
    assert finished.returncode != 0
    assert "learning_rate" in finished.stderr and "output_folder" in finished.stderr
    assert run(command(corpus, unbroken, "--workers=1")).returncode == 0  # speed may change


def test_a_half_written_checkpoint_is_not_mistaken_for_a_whole_one(corpus, unbroken, tmp_path):
    output = tmp_path / "half"
    finished = run(command(corpus, output, "--number_of_epochs=1"))
    assert finished.returncode == 0, finished.stderr
    whole = next((output / "checkpoints").glob("CKPT*"))
    partial = whole.with_name("PARTIAL-CKPT+2999-01-01+00-00-00+00")
    partial.mkdir()
    (partial / "CKPT.yaml").write_text((whole / "CKPT.yaml").read_text())
    finished = run(command(corpus, output))  # now with two epochs
    assert finished.returncode == 0, finished.stderr
    assert_equal_weights(output, unbroken)


def test_another_seed_gives_another_model(corpus, unbroken, tmp_path):
    assert run(command(corpus, tmp_path / "other", "--seed=2")).returncode == 0
    other, first = weights(tmp_path / "other"), weights(unbroken)
    assert any(not torch.equal(other[name], first[name]) for name in first)


def test_gradient_accumulation_counts_steps_not_batches(corpus, tmp_path):
    output = tmp_path / "accumulated"
    options = "--grad_accumulation_factor=2", "--ckpt_interval_steps=1"
    finished = run(command(corpus, output, *options))
    assert finished.returncode == 0, finished.stderr
    assert "step 4" in finished.stderr + finished.stdout  # 2 epochs x 4 batches / 2
    finished = run(command(corpus, tmp_path / "odd", options[0], "--batches_per_epoch=3"))
    assert finished.returncode != 0 and "3 batches" in finished.stderr


def test_mixed_precision_trains(corpus, tmp_path):
    finished = run(command(corpus, tmp_path / "bf16", "--precision=bf16", "--number_of_epochs=1"))
    assert finished.returncode == 0, finished.stderr


def test_two_processes_train_and_keep_one_queue(corpus, tmp_path):
    output = tmp_path / "two"
    arguments = command(corpus, output)[1:]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    finished = run([*launcher, "--master_port=0", "--standalone", *arguments])
    assert finished.returncode == 0, finished.stderr
    assert (output / "metrics.json").is_file()
    assert "state is equal on all 2 processes" in finished.stderr + finished.stdout


STAGES = {  # softmax for three of four steps; the first epoch ends before the change
    "yaml": ROOT / "recipes/OpenSpeech/hparams/simple_resnet34_small.yaml",
    "options": ("--steps=4", "--first_steps=3", "--batches_per_epoch=2"),
}


def test_a_run_resumes_across_the_change_from_softmax_to_simple(corpus, tmp_path):
    options, yaml = STAGES["options"], STAGES["yaml"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(command(corpus, whole, *options, yaml=yaml)).returncode == 0
    first = command(corpus, parts, *options, "--number_of_epochs=1", yaml=yaml)
    assert run(first).returncode == 0
    rest = command(corpus, parts, *options, "--may_change=number_of_epochs", yaml=yaml)
    finished = run(rest)
    assert finished.returncode == 0, finished.stderr
    assert_equal_weights(whole, parts)


def test_two_processes_change_from_softmax_to_simple(corpus, tmp_path):
    arguments = command(corpus, tmp_path / "two", *STAGES["options"], yaml=STAGES["yaml"])[1:]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    finished = run([*launcher, "--master_port=0", "--standalone", *arguments])
    assert finished.returncode == 0, finished.stderr
    assert "state is equal on all 2 processes" in finished.stderr + finished.stdout


def test_a_batch_can_be_embedded_in_chunks_by_one_process_and_by_two(corpus, tmp_path):
    options = "--crops_per_chunk=4", "--number_of_epochs=1"
    finished = run(command(corpus, tmp_path / "chunks", *options))
    assert finished.returncode == 0, finished.stderr
    again = run(command(corpus, tmp_path / "again", *options))
    assert again.returncode == 0
    assert_equal_weights(tmp_path / "chunks", tmp_path / "again")
    arguments = command(corpus, tmp_path / "two", *options)[1:]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    finished = run([*launcher, "--master_port=0", "--standalone", *arguments])
    assert finished.returncode == 0, finished.stderr
    assert "state is equal on all 2 processes" in finished.stderr + finished.stdout


def test_a_collapsing_run_is_stopped(corpus, tmp_path):
    plain = "--embedding_head={form: cartesian, centered: False, initial_length: null}"
    options = plain, "--parameter_groups=null", "--learning_rate=0.0", "--collapse_check_steps=0"
    options = *options, "--log_interval=1", "--batches_per_epoch=6"
    finished = run(command(corpus, tmp_path / "collapse", *options))
    assert finished.returncode == 1 and "--keep_going" in finished.stderr
    finished = run(command(corpus, tmp_path / "collapse", *options, "--keep_going"))
    assert finished.returncode == 0, finished.stderr
    assert "collapsing" in finished.stderr + finished.stdout


def broken_manifest(corpus, tmp_path, change):
    """A copy of the corpus's tables whose train.csv was changed, with the same audio."""
    folder = tmp_path / "broken"
    folder.mkdir()
    for table in ("valid.csv", "test.csv", "valid_trials.txt", "test_trials.txt"):
        (folder / table).write_text((corpus / table).read_text())
    os.symlink(corpus / "wav", folder / "wav")
    (folder / "train.csv").write_text(change((corpus / "train.csv").read_text()))
    return folder


@pytest.mark.parametrize(
    "option, words",
    [
        ("--learning_rat=0.1", "learning_rat"),
        ("--speakers_per_batch=1000", "speakers_per_batch is 1000"),
        ("--queue_size=3", "the queue holds 3 keys"),
        ("--data_folder=/nowhere", "/nowhere"),
        ("--sharpness=-1.0", "sharpness"),
        ("--parameter_groups={los.bias: {lr: 0.1}}", "los.bias"),
        ("--learning_rate=abc", "--learning_rate=abc: expected a number"),
        ("--optimizer={lr: abc}", "mini.yaml: "),
        ("--crop_seconds=[1e9, 1e9]", "crop_seconds are at most 3600"),
        ("--device=meta", "the device 'meta' cannot be used"),
        ("--schedule=!name:tests.training_runs.out_of_memory", "--crops_per_chunk=4,"),
    ],
)
def test_wrong_options_are_explained(corpus, tmp_path, option, words):
    arguments = [*command(corpus, tmp_path / "wrong", option)]
    if option.startswith("--data_folder"):
        arguments = [text for text in arguments if not text.startswith(f"--data_folder={corpus}")]
    finished = run(arguments)
    assert finished.returncode != 0
    assert words in finished.stderr and "Traceback" not in finished.stderr


def test_without_test_lists_nothing_is_tested(corpus, tmp_path):
    finished = run(command(corpus, tmp_path / "x", "--test_lists=null", "--number_of_epochs=1"))
    assert finished.returncode == 0, finished.stderr
    assert json.loads((tmp_path / "x" / "metrics.json").read_text()) == {"lists": {}}


def test_help_says_that_a_yaml_file_is_a_program():
    finished = run_train(["--help"])
    assert finished.returncode == 0
    assert "Run only those that you trust" in finished.stdout and "--device" in finished.stdout


def test_missing_yaml_and_missing_key_are_explained(corpus, tmp_path):
    finished = run(command(corpus, tmp_path / "x", yaml=tmp_path / "none.yaml"))
    assert finished.returncode != 0 and "none.yaml" in finished.stderr
    text = (ROOT / "hparams/mini.yaml").read_text()
    lacking = tmp_path / "lacking.yaml"
    lacking.write_text(text.replace("\nschedule: ", "\nschedule_misspelled: "))
    finished = run(command(corpus, tmp_path / "y", yaml=lacking))
    assert finished.returncode != 0 and "schedule" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("fault", ["gone", "empty", "corrupt"])
def test_bad_recordings_are_named(corpus, tmp_path, fault):
    bad = tmp_path / f"{fault}.wav"
    if fault == "empty":
        soundfile.write(bad, np.zeros(0, dtype=np.float32), 16000)
    elif fault == "corrupt":
        bad.write_text("this is no audio")

    def point_all_rows_at_the_bad_file(table):
        header, *rows = table.splitlines()
        return "\n".join(
            [header, *(f"{r.split(',')[0]},{bad},1.0,{r.split(',')[3]}" for r in rows)]
        )

    folder = broken_manifest(corpus, tmp_path, point_all_rows_at_the_bad_file)
    finished = run(command(folder, tmp_path / "bad"))
    assert finished.returncode != 0
    assert bad.name in finished.stderr and "Traceback" not in finished.stderr


@pytest.mark.parametrize("yaml", YAML_FILES, ids=lambda path: path.stem)
def test_every_yaml_runs(corpus, unbroken, tmp_path, yaml):
    options = ["--number_of_epochs=1", "--batches_per_epoch=2"]
    arguments = command(corpus, tmp_path / yaml.stem, *options, yaml=yaml)
    if "\npretrained:" in yaml.read_text():  # sizes are those of the model that it starts from
        arguments = [text for text in arguments if not text.startswith(("--width", "--encoder"))]
        arguments.append(f"--pretrained={unbroken / 'model'}")
    if "\nqueue:" not in yaml.read_text():
        arguments = [text for text in arguments if not text.startswith("--queue_size")]
    finished = run(arguments)
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / yaml.stem / "metrics.json").is_file()


def test_a_log_that_cannot_be_opened_is_named(corpus, tmp_path):
    output = tmp_path / "run"
    (output / "log.txt").mkdir(parents=True)
    finished = run(command(corpus, output))
    assert finished.returncode == 1
    assert "log.txt" in finished.stderr and "Unable to configure" not in finished.stderr
