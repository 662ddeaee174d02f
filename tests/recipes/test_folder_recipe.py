"""recipes/Folder: any folder of speakers becomes tables; nothing is lost silently or done twice."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from recipes.Folder.prepare import main, prepare_folder
from simple_spk.data.manifest import read_manifest
from simple_spk.data.trials import read_trials
from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import load_model, save_model
from simple_spk.inference.trial_evaluation import VerificationEvaluation
from simple_spk.losses.margin import SoftmaxLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.training.pretrained import load_pretrained
from tests.training_runs import run_train
from tools.write_m4a import write_m4a

ROOT = Path(__file__).parents[2]
SPEAKERS = ("Jane Doe", "李明", "100% me", "s3", "s4", "s5", "s6", "s7")
NAMES = ("take 1.wav", "deep/er/b.flac", "c.ogg", "D.WAV", "e.mp3", "f.opus", "g.m4a")
FILES = len(SPEAKERS) * len(NAMES)


@pytest.fixture(scope="module")
def original(noisy_tone, tmp_path_factory):
    """Eight speakers with recordings in all formats, some with awkward names."""
    folder = tmp_path_factory.mktemp("speakers")
    for number, speaker in enumerate(SPEAKERS):
        for take, name in enumerate(NAMES):
            path = folder / speaker / name
            path.parent.mkdir(parents=True, exist_ok=True)
            waveform = noisy_tone(1.1 + 0.1 * take, 90.0 + 20.0 * number, seed=take)
            if path.suffix == ".m4a":
                write_m4a(path, waveform)
            elif path.suffix == ".opus":
                soundfile.write(path, waveform, 16000, format="OGG", subtype="OPUS")
            else:
                soundfile.write(path, waveform, 16000)
    (folder / "notes.txt").write_text("not audio")
    return folder


@pytest.fixture
def folder(original, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(original, tmp_path / "speakers"))


def rows_of(path):
    """The rows of a CSV file as dictionaries."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def contents(data):
    """All files of a folder, by name."""
    return {path.name: path.read_bytes() for path in data.iterdir()}


def test_every_recording_is_listed_once_and_no_speaker_is_in_two_parts(original, tmp_path):
    prepared = prepare_folder(original, tmp_path)
    parts = {part: rows_of(tmp_path / f"{part}.csv") for part in ("train", "valid", "test")}
    listed = [Path(row["wav"]) for rows in parts.values() for row in rows]
    assert sorted(listed) == sorted(original / s / name for s in SPEAKERS for name in NAMES)
    speakers = [{row["spk_id"] for row in rows} for rows in parts.values()]
    assert sum(map(len, speakers)) == len(set.union(*speakers)) == len(SPEAKERS)
    for row in (row for rows in parts.values() for row in rows):
        name = Path(row["wav"]).relative_to(original).parts[1:]
        seconds = 1.1 + 0.1 * NAMES.index("/".join(name))
        assert float(row["duration"]) == pytest.approx(seconds, abs=0.15)  # codecs pad
    assert prepared.quarantined == [] and prepared.other_files == 1
    for part in parts:
        assert len(read_manifest(tmp_path / f"{part}.csv")) == len(parts[part])
        assert prepared.parts[part].recordings == len(parts[part])


def test_trial_lists_are_read_by_the_evaluation_and_their_labels_are_true(original, tmp_path):
    prepare_folder(original, tmp_path)
    for part in ("valid", "test"):
        manifest, trial_list = tmp_path / f"{part}.csv", tmp_path / f"{part}_trials.txt"
        evaluation = VerificationEvaluation(trial_list, manifest=manifest)
        speaker = {row["ID"]: row["spk_id"] for row in rows_of(manifest)}
        trials = evaluation.trials
        owner = np.array([speaker[name] for name in trials.ids])
        assert (trials.is_target == (owner[trials.enroll] == owner[trials.test])).all()
        assert 2 * trials.is_target.sum() == len(trials) > 0


def test_bad_files_are_named_with_their_reason(folder, tmp_path, noisy_tone):
    speaker = folder / "s3"
    bad = {
        "silent.wav": "silent",
        "short.wav": "lasts 0.500 s",
        "empty.wav": "holds no samples",
        "no_audio.mp3": "holds text, not audio",
        "broken_off.flac": "breaks off",
        ".hidden.wav": "hidden",
        "line\nbreak.wav": "rename",
        "dangling.wav": "cannot be reached",
    }
    soundfile.write(speaker / "silent.wav", np.zeros(32000), 16000)
    soundfile.write(speaker / "short.wav", noisy_tone(0.5), 16000)
    soundfile.write(speaker / "empty.wav", np.zeros(0), 16000)
    (speaker / "no_audio.mp3").write_text("this is no audio")
    whole = (folder / "s4/deep/er/b.flac").read_bytes()
    (speaker / "broken_off.flac").write_bytes(whole[: len(whole) // 2])
    shutil.copy(folder / "s3/D.WAV", speaker / ".hidden.wav")
    shutil.copy(folder / "s3/D.WAV", speaker / "line\nbreak.wav")
    (speaker / "dangling.wav").symlink_to("nowhere.wav")
    expected = {f"s3/{name}": reason for name, reason in bad.items()}
    shutil.copy(folder / "s3/D.WAV", folder / "loose.wav")
    (folder / "lonely").mkdir()
    shutil.copy(folder / "s3/D.WAV", folder / "lonely/one.wav")
    (folder / ".trash").mkdir()
    shutil.copy(folder / "s3/D.WAV", folder / ".trash/x.wav")
    (folder / "nobody/deeper").mkdir(parents=True)
    expected |= {
        "nobody": "holds no recordings",
        "loose.wav": "no speaker's folder",
        "lonely/one.wav": "only usable recording",
        ".trash": "hidden folder",
    }
    data = tmp_path / "data"
    prepared = prepare_folder(folder, data)
    rows = [tuple(row.values()) for row in rows_of(data / "quarantine.csv")]
    assert rows == prepared.quarantined
    reasons = {source: details for source, _, details in rows}
    assert reasons.keys() == expected.keys()
    assert all(word in reasons[path] for path, word in expected.items())
    listed = [
        row["wav"] for part in ("train", "valid", "test") for row in rows_of(data / f"{part}.csv")
    ]
    assert len(listed) == FILES


def test_names_that_are_not_utf8_are_named(folder, tmp_path):
    try:
        shutil.copy(folder / "s3/D.WAV", os.fsencode(folder) + b"/s3/\xff.wav")
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    prepare_folder(folder, tmp_path / "data")
    (row,) = rows_of(tmp_path / "data/quarantine.csv")
    assert "rename" in row["details"] and "udcff" in row["source"]


def test_links_are_followed_but_nothing_is_listed_twice(folder, tmp_path):
    (folder / "s8").symlink_to(folder / "s3")
    (folder / "s4" / "circle").symlink_to(folder)
    (folder / "s5").rename(tmp_path / "s5")
    (folder / "s5").symlink_to(tmp_path / "s5")
    prepared = prepare_folder(folder, tmp_path / "data")
    assert [fault.source for fault in prepared.quarantined] == ["s4/circle", "s8"]
    assert sum(part.recordings for part in prepared.parts.values()) == FILES


def test_a_second_run_opens_nothing_and_changes_nothing(folder, tmp_path):
    data = tmp_path / "data"
    assert prepare_folder(folder, data).opened == FILES
    first = contents(data)
    assert prepare_folder(folder, data).opened == 0
    assert contents(data) == first
    shutil.rmtree(data)
    prepare_folder(folder, data, workers=1)
    assert contents(data) == first


def test_a_changed_folder_is_noticed(folder, tmp_path, noisy_tone):
    data = tmp_path / "data"
    prepare_folder(folder, data)
    soundfile.write(folder / "s3/new.wav", noisy_tone(2.0), 16000)
    soundfile.write(folder / "s4/c.ogg", noisy_tone(3.0), 16000)
    (folder / "s5/c.ogg").unlink()
    assert prepare_folder(folder, data).opened == 2
    rows = [row for part in ("train", "valid", "test") for row in rows_of(data / f"{part}.csv")]
    seconds = {row["ID"]: float(row["duration"]) for row in rows}
    assert seconds["s3/new.wav"] == 2.0 and seconds["s4/c.ogg"] == pytest.approx(3.0, abs=0.01)
    assert "s5/c.ogg" not in seconds and len(seconds) == FILES


def test_faulty_files_are_looked_at_again_and_others_when_all_is_to_be_decoded(folder, tmp_path):
    (folder / "s3/bad.wav").write_text("no audio")
    data = tmp_path / "data"
    assert prepare_folder(folder, data).opened == FILES + 1
    assert prepare_folder(folder, data).opened == 1
    assert prepare_folder(folder, data, decode=True).opened == FILES + 1
    assert prepare_folder(folder, data, decode=True).opened == 1


def test_decoding_finds_damage_in_the_middle(folder, tmp_path, noisy_tone):
    path = folder / "s3/long.flac"
    soundfile.write(path, noisy_tone(8.0), 16000)
    damaged = bytearray(path.read_bytes())
    middle = len(damaged) // 2
    damaged[middle : middle + 20000] = bytes(20000)
    path.write_bytes(damaged)
    (fault,) = prepare_folder(folder, tmp_path / "data", decode=True).quarantined
    assert fault.source == "s3/long.flac"


def test_a_damaged_memory_is_not_believed(folder, tmp_path):
    prepare_folder(folder, tmp_path / "data")
    (tmp_path / "data/probes.jsonl").write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"probes\.jsonl.*delete this file"):
        prepare_folder(folder, tmp_path / "data")


def test_with_genders_only_like_is_compared_with_like(original, tmp_path):
    gender = {speaker: "fm"[number % 2] for number, speaker in enumerate(SPEAKERS)}
    table = tmp_path / "genders.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("spk_id", "gender"), *gender.items()])
    data = tmp_path / "data"
    prepare_folder(original, data, 0.0, 1.0, genders=table)
    of_folder = {
        Path(row["wav"]).relative_to(original).parts[0]: row for row in rows_of(data / "test.csv")
    }
    gender_of_id = {row["spk_id"]: gender[name] for name, row in of_folder.items()}
    speaker = {row["ID"]: row["spk_id"] for row in rows_of(data / "test.csv")}
    met = defaultdict(set)
    trials = read_trials(data / "test_trials.txt")
    for left, right in zip(trials.enroll, trials.test, strict=True):
        sides = [gender_of_id[speaker[trials.ids[side]]] for side in (left, right)]
        met[sides[0]].add(sides[1])
    assert met == {"f": {"f"}, "m": {"m"}}
    table.write_text("spk_id,gender\ns3,f\n")
    with pytest.raises(ValueError, match="no gender for 7 speakers"):
        prepare_folder(original, data, genders=table)
    table.write_text("name,sex\ns3,f\n")
    with pytest.raises(ValueError, match="name, sex"):
        prepare_folder(original, data, genders=table)
    for content in (b"\xff\xfe\n", b"x" * 200000):
        table.write_bytes(content)
        with pytest.raises(ValueError, match=r"genders\.csv is not a CSV file"):
            prepare_folder(original, data, genders=table)


def test_all_speakers_may_test_and_tables_of_other_parts_go(original, tmp_path):
    prepare_folder(original, tmp_path)
    prepare_folder(original, tmp_path, valid_fraction=0.0, test_fraction=1.0)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("test.csv", "test_trials.txt", "quarantine.csv", "probes.jsonl", ".lock")
    }
    assert len(rows_of(tmp_path / "test.csv")) == FILES


def test_a_failing_preparation_leaves_the_tables_alone(original, tmp_path):
    prepare_folder(original, tmp_path)
    before = contents(tmp_path)
    for fraction in (0.9, float("nan"), -0.1):
        with pytest.raises(ValueError, match="test_fraction"):
            prepare_folder(original, tmp_path, valid_fraction=fraction, test_fraction=0.9)
    with pytest.raises(ValueError, match="at least 2"):
        prepare_folder(original, tmp_path, maximum_trials=1)
    assert contents(tmp_path) == before


def test_folders_without_speakers_are_explained(original, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        prepare_folder(tmp_path / "nowhere", tmp_path / "data")
    with pytest.raises(ValueError, match="one folder per speaker"):
        prepare_folder(original / "s3" / "deep", tmp_path / "data")
    with pytest.raises(ValueError, match="audio_folder"):
        prepare_folder(None, tmp_path / "empty")
    prepare_folder(original, tmp_path / "data")
    assert prepare_folder(None, tmp_path / "data") is None


def test_the_command_says_what_it_made_and_what_is_wrong(original, tmp_path, monkeypatch, capsys):
    command = [sys.executable, "recipes/Folder/prepare.py", str(original), str(tmp_path)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "train: 4 speakers, 28 recordings" in finished.stdout
    monkeypatch.setattr(sys, "argv", ["prepare.py", str(tmp_path / "nowhere"), str(tmp_path)])
    assert main() == 1 and "nowhere" in capsys.readouterr().err


def test_a_pretrained_model_goes_on_as_it_ended(tmp_path, stir):
    torch.manual_seed(0)
    output = {"form": "log_polar", "initial_length": 2.0}
    encoder = stir(ResNet(width=4, stem_stride=2, embedding_dim=8, output=output)).eval()
    torch.nn.init.normal_(encoder.output.length.weight)
    save_model(tmp_path, trained_model(Fbank(), encoder, SimPLELoss(initial_bias=-0.75)))
    start = load_pretrained(tmp_path)
    assert (start.bias, start.embedding_dim, start.sample_rate) == (-0.75, 8, 16000)
    assert start.encoder.training
    assert all(parameter.requires_grad for parameter in start.encoder.parameters())
    features = torch.randn(3, 60, 80)
    with torch.no_grad():
        assert torch.equal(start.encoder.eval()(features), encoder(features))


def test_a_model_of_another_loss_goes_on_with_a_new_head(tmp_path, stir):
    torch.manual_seed(0)
    encoder = stir(ResNet(width=4, stem_stride=2, embedding_dim=8, output={"centered": True}))
    save_model(tmp_path / "a", trained_model(Fbank(), encoder.eval(), SoftmaxLoss(8, 5)))
    head = {"form": "log_polar", "initial_length": 2.5}
    start = load_pretrained(tmp_path / "a", embedding_head=head)
    assert start.bias is None
    features = torch.randn(3, 60, 80)
    with torch.no_grad():
        found, expected = start.encoder.eval()(features), encoder(features)
    torch.testing.assert_close(found, 2.5 * torch.nn.functional.normalize(expected, dim=1))
    model = trained_model(start.front_end, start.encoder, SimPLELoss())
    save_model(tmp_path / "b", model)  # with the arguments of the new head
    assert torch.equal(load_model(tmp_path / "b").encoder(features), found)


def test_only_a_model_that_simple_trained_is_tuned_further(tmp_path, tiny_model):
    with pytest.raises(ValueError, match="--pretrained"):
        load_pretrained(None)
    front_end, encoder, loss = tiny_model
    del loss.bias
    save_model(tmp_path, trained_model(front_end, encoder, loss))
    with pytest.raises(ValueError, match="no threshold"):
        load_pretrained(tmp_path)


def test_fine_tuning_prepares_trains_and_keeps_the_sizes_of_the_model(
    original, model_folder, tmp_path
):
    options = {
        "pretrained": model_folder,
        "audio_folder": original,
        "data_folder": tmp_path / "data",
        "output_folder": tmp_path / "run",
        "speakers_per_batch": 4,
        "recordings_per_speaker": 2,
        "crop_seconds": "[0.5, 0.8]",
        "batches_per_epoch": 2,
        "number_of_epochs": 1,
        "workers": 0,
        "queue_size": 20,
        "device": "cpu",
    }
    yaml = "recipes/Folder/hparams/finetune.yaml"
    finished = run_train([yaml, *(f"--{key}={value}" for key, value in options.items())])
    assert finished.returncode == 0, finished.stderr
    assert 0.0 <= json.loads((tmp_path / "run/metrics.json").read_text())["eer"] <= 100.0
    before, after = load_model(model_folder), load_model(tmp_path / "run/model")
    assert after.encoder.arguments == before.encoder.arguments
    pairs = zip(before.encoder.parameters(), after.encoder.parameters(), strict=True)
    moved = [(new - old).norm() / (old.norm() + 1e-6) for old, new in pairs]
    assert 0.0 < max(moved) < 0.5  # trained, and not started anew
    assert after.threshold == pytest.approx(before.threshold, abs=0.01)
