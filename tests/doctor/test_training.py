"""Laws of what doctor foretells of training, and of how it looks at the installation."""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simple_spk.cli.commands import doctor
from simple_spk.data.manifest import write_manifest
from simple_spk.doctor.finding import Status, is_well
from simple_spk.doctor.gpu_forecast import GPUS, crop_cost, forecast, forecast_finding
from simple_spk.doctor.installation import check_installation
from simple_spk.doctor.training import _amount, _in_words, loader_finding, memory_finding
from simple_spk.doctor.training_needs import (
    TYPES,
    TrainingNeeds,
    TrainingSetting,
    loader_crops_per_second,
    measure_needs,
    read_setting,
)
from simple_spk.models.resnet import ResNet
from tests.command_line import run

Capture = pytest.CaptureFixture[str]
HPARAMS = Path(__file__).parents[2] / "hparams"
SMALL = TrainingSetting(
    speakers_per_batch=1,
    recordings_per_speaker=4,
    width=4,
    blocks=(1, 1, 1, 1),
    stem_stride=2,
    embedding_dim=16,
    queue_size=512,
    precision="fp32",
)
POSITIVE = st.floats(1e-3, 1e6)

# ---- settings -----------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_paper_s_file() -> None:
    assert read_setting(HPARAMS / "simple_resnet34.yaml") == TrainingSetting()


def test_a_setting_is_read_through_references_and_within_the_encoder() -> None:
    setting = read_setting(HPARAMS / "mini.yaml")
    assert (setting.blocks, setting.stem_stride) == ((1, 1, 1, 1), 2)
    assert (setting.width, setting.embedding_dim, setting.queue_size) == (8, 128, 4096)
    assert setting.batch == 64


def test_crops_that_grow_with_the_epochs() -> None:
    """Memory is needed for the longest, time for the mean over all epochs."""
    setting = read_setting(HPARAMS / "simple_resnet34_modern.yaml")
    assert setting.longest_crop_seconds == 8.0
    assert setting.mean_crop_seconds == pytest.approx((140 * 3.0 + 10 * 7.0) / 150)


@pytest.mark.parametrize(
    "change",
    [
        {"speakers_per_batch": 0},
        {"width": 0},
        {"queue_size": -1},
        {"workers": -1},
        {"crop_seconds": (3.0, 2.0)},
        {"crop_seconds": {1: (1.0, 2.0), 5: (0.0, 1.0)}},
    ],
    ids=str,
)
def test_a_setting_without_sense_is_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(SMALL, **change)


def test_nothing_in_a_yaml_file_is_executed(tmp_path: Path) -> None:
    path, trace = tmp_path / "evil.yaml", tmp_path / "trace"
    path.write_text(
        f"bad: !apply:pathlib.Path.touch [!new:pathlib.Path ['{trace}']]\n"
        f"worse: !!python/object/apply:os.system ['touch {trace}']\n"
    )
    with pytest.raises(ValueError, match=r"evil\.yaml"):
        read_setting(path)
    path.write_text(path.read_text().splitlines()[0] + "\nqueue: {}\nencoder: !new:os.system {}\n")
    with pytest.raises(ValueError, match="ResNet"):
        read_setting(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("encoder: !new:simple_spk.models.resnet.ResNet {}\nqueue: {}\nwidth: wide\n", "'wide'"),
        ("encoder: !new:simple_spk.models.resnet.ResNet {}\n", "queue"),
        ("encoder: [\n", "YAML"),
        ("just words", "no settings"),
    ],
)
def test_a_file_that_says_too_little_is_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "hparams.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=word) as error:
        read_setting(path)
    assert str(path) in str(error.value)


# ---- needs --------------------------------------------------------------------------------------


def test_what_is_measured_has_the_right_proportions() -> None:
    """Activations grow with the crop, the queue with its size; the parameters are the network's."""
    needs = measure_needs(replace(SMALL, crop_seconds=(1.0, 1.0)))
    longer = measure_needs(replace(SMALL, crop_seconds=(2.0, 2.0), queue_size=1024))
    network = ResNet(width=4, blocks=(1, 1, 1, 1), stem_stride=2, embedding_dim=16)
    assert needs.parameters == sum(parameter.numel() for parameter in network.parameters())
    ratio = longer.activation_bytes_per_crop / needs.activation_bytes_per_crop
    assert ratio == pytest.approx(2.0, rel=0.1)
    foretold = measure_needs(replace(SMALL, crop_seconds=(1.0, 2.0)))  # measured at 1.5 s
    assert foretold.activation_bytes_per_crop == pytest.approx(
        longer.activation_bytes_per_crop, rel=0.1
    )
    assert longer.queue_bytes == 2 * needs.queue_bytes
    assert longer.batch_bytes == 2 * needs.batch_bytes == 2 * 4 * 16000 * 4
    assert needs.step_seconds > 0.0


def test_activations_are_at_least_the_maps_of_the_network() -> None:
    """Each convolution's output is needed for its gradient, so the sum of these is a floor."""
    frames, mels, width = 100, 40, 4  # of a crop of 2 s behind a stem of stride 2
    maps = 0
    for stage in range(4):
        maps += width * 2**stage * math.ceil(mels / 2**stage) * math.ceil(frames / 2**stage) * 2
    needs = measure_needs(replace(SMALL, crop_seconds=(2.0, 2.0)))
    assert 4 * maps < needs.activation_bytes_per_crop < 10 * 4 * maps


def test_activations_have_the_precision_of_the_experiment() -> None:
    setting = replace(SMALL, crop_seconds=(2.0, 2.0))
    halved = measure_needs(replace(setting, precision="bf16")).activation_bytes_per_crop
    assert halved < 0.7 * measure_needs(setting).activation_bytes_per_crop
    needs = TrainingNeeds(1000, 16000, 10**6, 1e6, 0, 1.0)
    cures = [memory_finding("", replace(setting, precision=p), needs, 4e6).cure for p in TYPES]
    assert ["--precision=bf16" in cure for cure in cures] == [True, False, False]


@settings(deadline=None)
@given(
    st.integers(1, 256),
    st.integers(1, 8),
    st.floats(1e5, 1e9),
    st.floats(1e8, 1e11),
)
def test_the_cure_for_want_of_memory_fits(
    speakers: int, recordings: int, bytes_per_crop: float, available: float
) -> None:
    setting = TrainingSetting(speakers_per_batch=speakers, recordings_per_speaker=recordings)
    needs = TrainingNeeds(1000, 16000, 10**6, bytes_per_crop, 0, 1.0)
    finding = memory_finding("", setting, needs, available)
    room = 0.9 * available
    assert (finding.status is Status.OK) == (needs.memory_bytes(setting.crops_at_once) <= room)
    if finding.status is Status.PROBLEM and "crops_per_chunk" in finding.cure:
        chunk = int(finding.cure.partition("--crops_per_chunk=")[2].partition(",")[0])
        assert needs.memory_bytes(chunk) <= room < needs.memory_bytes(2 * chunk)


@settings(deadline=None)
@given(POSITIVE, POSITIVE, st.integers(1, 64))
def test_as_few_workers_as_keep_up(consumed: float, delivered: float, workers: int) -> None:
    finding = loader_finding("", consumed, delivered, workers)
    wanted, each = finding.metrics["workers"], delivered / workers
    assert wanted * each >= consumed
    assert wanted == 1 or (wanted - 1) * each < 1.25 * consumed * (1 + 1e-9)
    assert (finding.status is Status.OK) == (delivered >= consumed)
    assert ("not the bottleneck" in finding.text) == (delivered >= consumed)


def test_amounts_and_durations_have_suitable_units() -> None:
    assert (_amount(2.5e6), _amount(2.5e9)) == ("2.5 MB", "2.5 GB")
    durations = [_in_words(seconds) for seconds in (0.25, 7200.0, 864000.0)]
    assert durations == ["0.25 s", "2 h", "10 days"]


@pytest.fixture
def manifest(tmp_path: Path, noisy_tone: Callable[..., NDArray[np.float32]]) -> Path:
    """Four speakers with three recordings of two seconds each."""
    path = tmp_path / "train.csv"
    names = [f"{speaker}-{take}" for speaker in range(4) for take in range(3)]
    for number, name in enumerate(names):
        soundfile.write(tmp_path / f"{name}.flac", noisy_tone(2.0, seed=number), 16000)
    wavs = [f"{name}.flac" for name in names]
    write_manifest(path, names, wavs, [2.0] * 12, [name[0] for name in names])
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_is_measured(manifest: Path, workers: int) -> None:
    setting = replace(SMALL, crop_seconds=(0.5, 1.0))
    assert 1.0 < loader_crops_per_second(manifest, setting, workers) < 1e6


def test_the_command_tells_what_training_needs(manifest: Path, capsys: Capture) -> None:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    words = ["--training", "--device", "cpu", "--manifest", str(manifest), "--width", "4"]
    words += ["--embedding-dim", "16", "--queue", "512", "--batch", "8", "--workers", "1"]
    doctor.run(parser.parse_args([*words, "--crop-seconds", "0.5", "1", "--processes", "1"]))
    said = capsys.readouterr().out
    for word in ("training with batch 8", "per step", "M parameters", "bottleneck", "queue"):
        assert word in said
    with pytest.raises(ValueError, match="warp"):
        doctor.run(parser.parse_args([*words, "--device", "warp"]))
    with pytest.raises(ValueError, match="multiple"):
        doctor.run(parser.parse_args([*words, "--batch", "7"]))


# ---- installation -------------------------------------------------------------------------------


def test_an_installation_that_passes_the_tests_is_sound(tmp_path: Path) -> None:
    findings = check_installation([tmp_path, tmp_path / "not" / "yet" / "there"])
    assert is_well(findings), [finding for finding in findings if finding.status != "OK"]
    kinds = [finding.kind for finding in findings]
    for kind in ("Python", "torch", "SpeechBrain", "soundfile", "AAC", "CPU cores"):
        assert kind in kinds
    assert kinds.count("disk") == 2


def test_versions_that_do_not_match_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the metadata alone: importing such a pair may fail."""
    folder = tmp_path / "torchaudio-2.8.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torchaudio\nVersion: 2.8.1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (finding,) = (found for found in check_installation() if found.kind == "torch")
    assert finding.status is Status.PROBLEM
    assert "torchaudio 2.8.1" in finding.text


# ---- GPUs that are not here ---------------------------------------------------------------------


def test_a_crop_costs_the_operations_of_its_convolutions() -> None:
    """Counted by hand: the stem of a ResNet, whose other layers are in proportion."""
    setting = replace(SMALL, stem_stride=1)
    cost, double = crop_cost(setting, 2.0), crop_cost(setting, 4.0)
    stem = 2 * 9 * 4 * 200 * 80  # multiply and add, 3 x 3, 4 channels, frames x mels
    assert stem < cost.forward_operations < 40 * stem
    assert cost.backward_operations == pytest.approx(2 * cost.forward_operations, rel=0.15)
    assert double.forward_operations == pytest.approx(2 * cost.forward_operations, rel=0.05)


def test_what_is_counted_of_memory_is_what_is_measured() -> None:
    setting = replace(SMALL, crop_seconds=(2.0, 2.0))
    measured = measure_needs(setting).activation_bytes_per_crop  # in 32 bits, with working memory
    assert 2 * 1.5 * crop_cost(setting, 2.0).kept_bytes == pytest.approx(measured, rel=0.3)


def test_more_gpus_take_less_time_and_need_no_chunks() -> None:
    setting = TrainingSetting()
    one, eight = (forecast(setting, GPUS["A100-40GB"], count) for count in (1, 8))
    assert one.crops_per_chunk < one.crops_per_gpu == 512
    assert eight.crops_per_chunk == eight.crops_per_gpu == 64
    assert eight.total_hours < one.total_hours / 8
    for name, gpu in GPUS.items():
        assert forecast(setting, gpu).memory_bytes <= 0.9 * gpu.memory_bytes, name
    assert set(GPUS) == set(doctor.GPU_NAMES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpu", "4090", "--gpus", "0"), "divided among 0 GPUs"),
        (("--gpu", "4090", "--gpus", "3"), "divided among 3 GPUs"),  # training refuses it, too
        (("--gpus", "2"), "give --gpu, too"),
    ],
)
def test_a_number_of_gpus_that_cannot_train_is_refused(
    options: tuple[str, ...], message: str, capsys: Capture
) -> None:
    assert run("doctor", *options) == 1
    assert message in capsys.readouterr().err


def test_a_gpu_that_is_too_small_is_a_problem() -> None:
    setting = replace(TrainingSetting(), queue_size=30_000_000)
    assert forecast_finding(setting, "3090").status is Status.PROBLEM
