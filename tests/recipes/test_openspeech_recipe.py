"""recipes/OpenSpeech: downloads and prepared folders become tables; joined words lose nothing."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recipes.OpenSpeech.average_models import average_models
from recipes.OpenSpeech.conditions import CONDITIONS
from recipes.OpenSpeech.conditions import run as write_all_conditions
from recipes.OpenSpeech.corpora import (
    ARABIC_COMMANDS,
    AUDIOMNIST,
    DSPSPEECH20,
    SPEECH_COMMANDS,
    find_librispeech,
    find_speechocean762,
    find_words,
)
from recipes.OpenSpeech.evaluation_lists import evaluation_lists
from recipes.OpenSpeech.prepare import (
    main,
    prepare_open_speech,
    split_open_speech,
    write_lists_of_corpora,
)
from recipes.OpenSpeech.sounds import make_room, make_sounds
from recipes.OpenSpeech.sources import read_common_voice, read_prepared
from recipes.OpenSpeech.words import FADE_SAMPLES, join_words, make_recordings
from simple_spk.corpora.tables import Utterance
from simple_spk.data.augmentation import Augmentation
from simple_spk.data.manifest import read_manifest
from simple_spk.evaluation.enrollment import read_enrollments
from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import load_model, save_model
from simple_spk.inference.speech_quality import quality_of_file
from simple_spk.inference.trial_evaluation import EvaluationOptions, VerificationEvaluation
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet

ROOT = Path(__file__).parents[2]
WORD_SECONDS = 0.9
WORDS = 14  # 12.6 s, which make two recordings


def write_word(path, noisy_tone, hertz, seed, sample_rate=16000, seconds=WORD_SECONDS):
    """A word of a voice, with digital silence around it, as isolated words often have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    waveform = noisy_tone(seconds * sample_rate / 16000, hertz * 16000 / sample_rate, seed)
    waveform[: len(waveform) // 10] = 0.0
    soundfile.write(path, waveform, sample_rate)


@pytest.fixture(scope="module")
def downloads(noisy_tone, tmp_path_factory):
    """Small corpora laid out as the real ones are, by name of the argument that takes them."""
    root = tmp_path_factory.mktemp("downloads")
    takes = range(WORDS)
    for number, speaker in enumerate(("01", "02", "03", "41", "42")):
        for take in takes:
            path = root / f"AudioMNIST/data/{speaker}/{take % 10}_{speaker}_{take}.wav"
            write_word(path, noisy_tone, 100.0 + 15 * number, take, 48000)
    for number, speaker in enumerate(("16307110258", "16307130194")):
        for take in takes:
            name = f"{speaker}/{speaker}-{take % 20:02}-{take + 1:02}.wav"
            path = root / "DSPSpeech-20/speech_data" / name
            write_word(path, noisy_tone, 180.0 + 15 * number, take)
    for number, speaker in enumerate(("00000001", "00000030")):
        for take in takes:
            word = ("zoom in", "backward")[take % 2]
            path = root / f"arabic/dataset/{word}/{speaker}_NO_{take + 1:02}.wav"
            write_word(path, noisy_tone, 220.0 + 15 * number, take)
    ocean = root / "ocean/speechocean762"
    for part, speakers in (("train", ("0001", "0005", "0006")), ("test", ("0003", "0024"))):
        (ocean / part).mkdir(parents=True)
        utterances = [f"0{speaker}00{take}" for speaker in speakers for take in range(3)]
        places = {name: f"WAVE/SPEAKER{name[1:5]}/{name}.WAV" for name in utterances}
        lines = "".join(f"{name}\t{place}\n" for name, place in places.items())
        (ocean / part / "wav.scp").write_text(lines)
        lines = "".join(f"{name}\t{name[1:5]}\n" for name in utterances)
        (ocean / part / "utt2spk").write_text(lines)
        for name, place in places.items():
            hertz = 90.0 + int(name[1:5])
            write_word(ocean / place, noisy_tone, hertz, int(name[-1]), seconds=2.5)
    return {
        "speechocean762": root / "ocean",
        "audiomnist": root / "AudioMNIST",
        "dspspeech20": root / "DSPSpeech-20",
        "arabic_commands": root / "arabic",
    }


@pytest.fixture(scope="module")
def data(downloads, tmp_path_factory):
    """All corpora, prepared."""
    folder = tmp_path_factory.mktemp("data")
    prepare_open_speech(folder, **downloads, valid_fraction=0.5)
    return folder


def rows_of(path):
    """The rows of a CSV file as dictionaries."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_tests_are_the_corpora_s_own_and_no_speaker_is_in_two_parts(data):
    parts = {
        part: {row["spk_id"] for row in rows_of(data / f"{part}.csv")}
        for part in ("train", "valid", "test")
    }
    assert parts["test"] == {"so0003", "so0024", "am41", "am42"}
    assert not parts["train"] & parts["valid"] and len(parts["train"] | parts["valid"]) == 10
    assert not any("1630711" in speaker for speaker in parts["train"] | parts["valid"])


def test_speakers_are_compared_within_their_corpus(data):
    for name, corpora in {
        "test_trials.txt": {"speechocean762", "audiomnist"},
        "test_trials_audiomnist.txt": {"audiomnist"},
        "test_trials_speechocean762.txt": {"speechocean762"},
    }.items():
        for manifest in ("test.csv", "test_2s.csv"):
            trials = VerificationEvaluation(data / name, manifest=data / manifest).trials
            corpus = np.array([identifier.split("/")[0] for identifier in trials.ids])
            assert (corpus[trials.enroll] == corpus[trials.test]).all()
            assert set(corpus) == corpora
            assert 0 < trials.is_target.sum() < len(trials)


def test_lists_of_a_corpus_hold_all_pairs(data):
    trials = VerificationEvaluation(
        data / "test_trials_speechocean762.txt", manifest=data / "test.csv"
    ).trials
    count = len(trials.ids)
    assert len(trials) == count * (count - 1) // 2


def test_each_corpus_has_a_list_of_its_validation_speakers(data, tmp_path, caplog):
    rows = rows_of(data / "valid.csv")
    corpora = {row["ID"].split("/")[0] for row in rows}
    listed = {path.stem.removeprefix("valid_trials_") for path in data.glob("valid_trials_*.txt")}
    assert listed and listed <= corpora
    for corpus in corpora:
        here = [row for row in rows if row["ID"].startswith(f"{corpus}/")]
        assert (corpus in listed) == (len({row["spk_id"] for row in here}) > 1)
        if corpus in listed:
            for manifest in ("valid.csv", "valid_2s.csv"):
                trials = VerificationEvaluation(
                    data / f"valid_trials_{corpus}.txt", manifest=data / manifest
                ).trials
                assert set(trials.ids) == {row["ID"] for row in here}
                assert len(trials) == len(here) * (len(here) - 1) // 2
    alone = [Utterance(f"c/{take}", f"{take}.wav", 1.0, "Ann", "c") for take in range(3)]
    write_lists_of_corpora(tmp_path, "valid", alone)
    assert "valid_trials_c.txt: pairs of one speaker and of two are needed" in caplog.text
    assert not list(tmp_path.iterdir())


def test_made_sounds_are_what_augmentation_takes(data):
    make_sounds(data, count=3)
    written = {path: path.stat().st_mtime_ns for path in (data / "sounds").rglob("*.wav")}
    make_sounds(data, count=3)
    assert len(written) == 9
    assert all(path.stat().st_mtime_ns == time for path, time in written.items())
    augmentation = Augmentation(
        data / "noises.csv",
        data / "rooms.csv",
        probability=1.0,
        kinds={"noise": [(0.0, 20.0)], "babble": [(5.0, 20.0)]},
        channel_probability=0.5,
    )
    speech = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
    for seed in range(20):
        heard = augmentation(speech, seed)
        assert heard.dtype == np.float32 and heard.shape == speech.shape
        assert np.isfinite(heard).all() and not np.array_equal(heard, speech)


def test_the_calibration_set_is_of_validation_speakers_under_all_conditions(data):
    write_all_conditions(data, "speechocean762")
    rows = rows_of(data / "calibration.csv")
    valid = rows_of(data / "valid.csv")
    assert {row["spk_id"] for row in rows} == {row["spk_id"] for row in valid}
    assert {row["ID"].split("/")[0] for row in rows} == {"whole", *CONDITIONS}
    assert len(rows) % (1 + len(CONDITIONS)) == 0
    enrolled = read_enrollments(data / "calibration_enrollments.txt")
    trials = VerificationEvaluation(
        data / "calibration_trials.txt",
        manifest=data / "calibration.csv",
        options=EvaluationOptions(enrolled),
    ).trials
    assert trials.is_target is not None and trials.is_target.any() and not trials.is_target.all()
    sizes = {len(recordings) for recordings in enrolled.recordings_of_model.values()}
    assert 1 in sizes and max(sizes) > 1
    for model, test in zip(trials.enroll[:500], trials.test[:500], strict=True):
        recordings = enrolled.recordings_of_model[trials.ids[model]]
        tested = trials.ids[test].partition("/")[2]
        assert tested not in {name.partition("/")[2] for name in recordings}
    for row in rows_of(data / "test_conditions.csv"):
        if row["ID"].startswith("telephone/"):
            heard = quality_of_file(data / row["wav"], 16000)
            assert heard.is_narrow and heard.seconds == pytest.approx(float(row["duration"]))


def test_rooms_begin_with_the_direct_sound():
    for seed in range(20):
        response = make_room(np.random.default_rng(seed))
        assert np.abs(response).argmax() == 0


def test_every_word_is_in_just_one_recording(data):
    rows = [row for part in ("train", "valid", "test") for row in rows_of(data / f"{part}.csv")]
    joined = [row for row in rows if not row["spk_id"].startswith("so")]
    for speaker in {row["spk_id"] for row in joined}:
        seconds = [float(row["duration"]) for row in joined if row["spk_id"] == speaker]
        assert all(5.0 < value < 7.0 for value in seconds)
        joints = WORDS - len(seconds)
        expected = WORDS * WORD_SECONDS - joints * FADE_SAMPLES / 16000
        assert sum(seconds) == pytest.approx(expected, abs=0.01)
    wav = read_manifest(data / "train.csv").wav(0)
    assert soundfile.info(wav).samplerate == 16000


def test_crops_are_the_middle_of_their_recordings(data):
    whole, crops = (read_manifest(data / name) for name in ("test.csv", "test_2s.csv"))
    for row in range(len(crops)):
        crop, _ = soundfile.read(crops.wav(row), dtype="float32")
        recording, _ = soundfile.read(whole.wav(row), dtype="float32")
        start = (len(recording) - len(crop) + 1) // 2
        assert len(crop) == 32000
        assert np.abs(crop - recording[start : start + 32000]).max() < 1e-4


def test_noise_is_10_db_below_the_speech(data):
    whole, noisy = (read_manifest(data / name) for name in ("test.csv", "test_noise.csv"))
    for row in range(len(noisy)):
        mixed, _ = soundfile.read(noisy.wav(row))
        speech, _ = soundfile.read(whole.wav(row))
        gain = np.dot(mixed, speech) / np.dot(speech, speech)  # below 1 if the sum would clip
        noise = mixed / gain - speech
        level = 10 * np.log10(np.sum(speech**2) / np.sum(noise**2))
        assert level == pytest.approx(10.0, abs=0.5)


def test_experiments_are_evaluated_on_every_corpus_and_condition(data, tmp_path):
    lists = evaluation_lists(data, "test")
    corpora = {path.stem.removeprefix("test_trials_") for path in data.glob("test_trials_*.txt")}
    assert set(lists) == {f"{one}{end}" for one in corpora for end in ("", "_2s", "_noise")}
    noisy = lists["audiomnist_noise"]()
    assert all("audio_noise" in str(path) for path in noisy.recordings.paths)
    with pytest.raises(FileNotFoundError, match=r"prepare\.py"):
        evaluation_lists(tmp_path, "test")


def test_a_second_run_makes_nothing_again_but_new_words_do(downloads, data, noisy_tone, tmp_path):
    def times(folder):
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*.flac")}

    before, tables = times(data), {p.name: p.read_bytes() for p in data.glob("*.*")}
    prepare_open_speech(data, **downloads, valid_fraction=0.5)
    assert times(data) == before
    assert {path.name: path.read_bytes() for path in data.glob("*.*")} == tables
    words = sorted((downloads["dspspeech20"] / "speech_data/16307110258").iterdir())
    make_recordings(words[:-1], tmp_path / "speaker")
    before = times(tmp_path)
    make_recordings(words, tmp_path / "speaker")
    assert not set(times(tmp_path).values()) & set(before.values())
    assert [path.name for path in tmp_path.iterdir()] == ["speaker"]


def test_unusable_words_are_named_and_stay_named(noisy_tone, tmp_path):
    names = [f"0_01_{take}.wav" for take in range(4)]
    for take, name in enumerate(names):
        write_word(tmp_path / "01" / name, noisy_tone, 120.0, take)
    (tmp_path / "01" / names[0]).write_text("no audio")
    soundfile.write(tmp_path / "01" / names[1], np.zeros(8000), 16000)
    soundfile.write(tmp_path / "01" / names[2], noisy_tone(0.02), 16000)
    soundfile.write(tmp_path / "01" / "stranger.wav", noisy_tone(0.5), 16000)
    corpus = find_words(tmp_path, AUDIOMNIST)
    assert [path.name for path in corpus.unmatched] == ["stranger.wav"]
    faults = make_recordings(corpus.speakers[0].files, tmp_path / "made/am01")
    kinds = {fault.source: fault.kind for fault in faults}
    reasons = [kinds[str(tmp_path / "01" / name)] for name in names[:3]]
    for reason, word in zip(reasons, ("not audio", "silent", "too short"), strict=True):
        assert word in reason
    assert make_recordings(corpus.speakers[0].files, tmp_path / "made/am01") == faults
    assert len(list((tmp_path / "made/am01").glob("*.flac"))) == 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(40, 90), min_size=1, max_size=5), st.integers(1, 20))
def test_equal_levels_stay_level_across_joints(lengths, fade):
    joined = join_words([np.ones(length, dtype=np.float32) for length in lengths], fade)
    assert len(joined) == sum(lengths) - fade * (len(lengths) - 1)
    np.testing.assert_allclose(joined, 1.0, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(arrays(np.float32, 50, elements=st.floats(-1, 1, width=32)), min_size=2, max_size=4)
)
def test_words_are_untouched_between_their_joints(words):
    joined = join_words(words, 10)
    for number, word in enumerate(words):
        np.testing.assert_array_equal(joined[40 * number + 10 : 40 * number + 40], word[10:40])
    np.testing.assert_array_equal(joined[:10], words[0][:10])
    np.testing.assert_array_equal(joined[-10:], words[-1][-10:])


@pytest.mark.parametrize(
    "corpus", [AUDIOMNIST, DSPSPEECH20, ARABIC_COMMANDS, SPEECH_COMMANDS], ids=lambda c: c.name
)
def test_folders_of_something_else_are_refused(corpus, audio_folder, tmp_path):
    with pytest.raises(ValueError, match="6 wav files were found, none of which") as caught:
        find_words(audio_folder, corpus)
    assert corpus.origin in str(caught.value)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_words(tmp_path / "nowhere", corpus)


def test_an_incomplete_or_executable_speechocean762_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"utt2spk is missing.*openslr"):
        find_speechocean762(tmp_path)
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "utt2spk").write_text("u1 0001\n")
        (tmp_path / part / "wav.scp").write_text("u1 touch hacked |\n")
    with pytest.raises(ValueError, match="expected the path of a recording"):
        find_speechocean762(tmp_path)
    (tmp_path / "train/wav.scp").write_text("u1\n")
    with pytest.raises(ValueError, match=r"wav\.scp, line 1"):
        find_speechocean762(tmp_path)


@pytest.fixture
def prepared(noisy_tone, tmp_path):
    """A folder with a manifest.csv: eight speakers to train with, two to test with."""
    folder = tmp_path / "prepared"
    lines = ["wav,duration,spk_id,corpus,split,session"]
    for number in range(10):
        for take in range(2):
            name = f"c/s{number}/{take}.wav"
            write_word(folder / name, noisy_tone, 90.0 + 10 * number, take)
            split = "test" if number >= 8 else "train"
            lines.append(f"{name},{WORD_SECONDS},s{number},c,{split},")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_prepared_folder_keeps_its_test_speakers(prepared, tmp_path, monkeypatch):
    data = tmp_path / "data"
    summary = prepare_open_speech(data, prepared=prepared)
    assert {row["spk_id"] for row in rows_of(data / "test.csv")} == {"s8", "s9"}
    assert summary["train"].speakers + summary["valid"].speakers == 8
    assert prepare_open_speech(data) is None  # nothing to do
    monkeypatch.delenv("SIMPLE_SPK_DATA", raising=False)
    with pytest.raises(ValueError, match="no corpus was given"):
        prepare_open_speech(tmp_path / "empty")
    prepared.rename(tmp_path / "speech")
    monkeypatch.setenv("SIMPLE_SPK_DATA", str(tmp_path))
    assert prepare_open_speech(tmp_path / "from_environment") == summary


@pytest.mark.parametrize(
    "change, words",
    [
        (("spk_id", "speaker"), "lacks the columns spk_id"),
        (("c,test", "c,dev"), "line 18: the split is 'dev'"),
        (("s0,c,train", "s0,c,test"), "in train and test, such as s0"),
        (("c/s3/1.wav", "c/s3/7.wav"), r"1 files that are not there.*7\.wav"),
        (("0.9,s0", "long,s0"), "line 2: the duration is 'long'"),
        (("0.9,s0,c", "0.9,,c"), "line 2: there is no spk_id"),
        (("c/s0/0.wav,0.9,s0,c,train,", "c/s0/0.wav,0.9"), "line 2: there is no spk_id"),
    ],
)
def test_mistakes_in_a_prepared_folder_are_named(prepared, change, words):
    manifest = prepared / "manifest.csv"
    manifest.write_text(manifest.read_text().replace(*change, 1))
    with pytest.raises((ValueError, OSError), match=words):
        read_prepared(prepared)


def test_prepared_folders_are_joined_unless_names_collide(prepared, noisy_tone, tmp_path):
    other = tmp_path / "other"
    lines = ["wav,duration,spk_id,corpus,split,session,language"]
    for number in range(10):
        for take in range(4):
            name = f"d/t{number}/{take}.wav"
            write_word(other / name, noisy_tone, 90.0 + 10 * number, take)
            split = "test" if number >= 7 else "train"
            lines.append(f"{name},{WORD_SECONDS},t{number},d,{split},day{take % 2},cy")
    (other / "manifest.csv").write_text("\n".join(lines) + "\n")
    data = tmp_path / "data"
    summary = prepare_open_speech(data, prepared=[prepared, other])
    assert summary["train"].speakers + summary["valid"].speakers == 15
    assert {row["spk_id"] for row in rows_of(data / "test.csv")} == {"s8", "s9", "t7", "t8", "t9"}
    for name, known in {"test_trials.txt": False, "test_trials_d.txt": True}.items():
        trials = VerificationEvaluation(data / name, manifest=data / "test.csv").trials
        ids = [trials.ids[row] for row in range(len(trials.ids))]
        for enroll, test, same in zip(trials.enroll, trials.test, trials.is_target, strict=True):
            take, other_take = (int(Path(ids[row]).stem) for row in (enroll, test))
            if same and (known or ids[enroll].startswith("d/")):
                assert take % 2 != other_take % 2, "targets are across sessions"
    targets = 3 * 2 * 2  # of 3 speakers, 2 recordings on each of 2 days
    assert int(trials.is_target.sum()) == targets and len(trials) == targets + 3 * 16
    summary = prepare_open_speech(data, prepared=[prepared, other], without=["d"])
    assert summary["test"].speakers == 2 and not (data / "test_trials_d.txt").exists()
    with pytest.raises(ValueError, match="no corpus 'iban' to leave out: c, d are read"):
        prepare_open_speech(data, prepared=[prepared, other], without=["iban"])
    with pytest.raises(ValueError, match="in two of the given folders, such as the corpus 'c'"):
        prepare_open_speech(data, prepared=[prepared, prepared])
    table = (other / "manifest.csv").read_text()
    (other / "manifest.csv").write_text(table.replace(",t1,", ",s1,"))
    with pytest.raises(ValueError, match="such as the speaker 's1'"):
        prepare_open_speech(data, prepared=[prepared, other])


def test_clean_labels_change_training_speakers_only(prepared, tmp_path):
    data, fixes = tmp_path / "data", tmp_path / "fixes.csv"
    head = "action,name,speaker\n"
    fixes.write_text(head + "drop,c/s0/0.wav,s0\nmerge,s2,s1\n")
    prepare_open_speech(data, prepared=prepared, clean_labels=fixes)
    rows = [row for part in ("train", "valid", "test") for row in rows_of(data / f"{part}.csv")]
    assert len(rows) == 19 and len({row["spk_id"] for row in rows}) == 9
    assert {row["kind"] for row in rows_of(data / "quarantine.csv")} == {"wrong label"}
    for line in ("drop,c/s8/0.wav,s8", "merge,s8,s1"):
        fixes.write_text(f"{head}{line}\n")
        with pytest.raises(ValueError, match="recordings of test speakers: make it of training"):
            prepare_open_speech(data, prepared=prepared, clean_labels=fixes)


@pytest.fixture
def librispeech(noisy_tone, tmp_path):
    """LibriSpeech as its archives unpack: parts, speakers, chapters."""
    root = tmp_path / "download/LibriSpeech"
    for part, speakers in {
        "train-clean-100": range(19, 27),
        "dev-clean": range(84, 86),
        "test-clean": range(61, 63),
    }.items():
        for speaker in speakers:
            for chapter in (7, 8):
                for take in range(2):
                    name = f"{speaker}/{chapter}/{speaker}-{chapter}-{take:04}.flac"
                    write_word(root / part / name, noisy_tone, 80.0 + speaker, take, seconds=1.5)
                (root / part / f"{speaker}/{chapter}/{speaker}-{chapter}.trans.txt").write_text("A")
    (root / "SPEAKERS.TXT").write_text("")
    return tmp_path / "download"


def test_librispeech_keeps_its_test_part_and_chapters_are_sessions(librispeech, tmp_path):
    part = librispeech / "LibriSpeech/train-clean-100"
    (part / "19/7/19-7-0001.flac").write_text("no audio")
    (part / "20/7/20-7-0001.flac").write_bytes(b"")
    (part / "21/7/21-7-0000.flac").rename(part / "21/7/22-7-0000.flac")  # of another speaker
    data = tmp_path / "data"
    summary = prepare_open_speech(data, librispeech=librispeech, valid_fraction=0.3)
    assert {row["spk_id"] for row in rows_of(data / "test.csv")} == {"lb61", "lb62"}
    assert summary["train"].speakers + summary["valid"].speakers == 10
    faults = {Path(row["source"]).name: row["kind"] for row in rows_of(data / "quarantine.csv")}
    assert set(faults) == {"19-7-0001.flac", "20-7-0001.flac", "22-7-0000.flac"}
    assert faults["22-7-0000.flac"] == "unknown name"
    trials = VerificationEvaluation(
        data / "test_trials_librispeech.txt", manifest=data / "test.csv"
    ).trials
    chapter = np.array([name.split("-")[-2] for name in trials.ids])
    across = chapter[trials.enroll] != chapter[trials.test]
    assert across[trials.is_target].all() and trials.is_target.sum() == 8
    assert not across[~trials.is_target].all()
    for place in (librispeech / "LibriSpeech", part):
        assert len(find_librispeech(place).speakers) == (8 if place == part else 12)
    with pytest.raises(ValueError, match=r"does not hold librispeech.*openslr\.org/12"):
        find_librispeech(tmp_path)
    other = librispeech / "LibriSpeech/test-other/19/9"
    other.mkdir(parents=True)
    (part / "19/7/19-7-0000.flac").rename(other / "19-9-0000.flac")
    with pytest.raises(ValueError, match=r"1 speakers are in test-\* and elsewhere: 19"):
        find_librispeech(librispeech)


def test_speech_commands_are_joined_by_five_and_noises_are_no_speech(noisy_tone, tmp_path):
    root = tmp_path / "speech_commands_v0.02"
    for number in range(8):
        for take in range(10):
            name = f"{('yes', 'backward')[take % 2]}/{number:08x}_nohash_{take // 2}.wav"
            write_word(root / name, noisy_tone, 100.0 + 15 * number, take, seconds=1.0)
    write_word(root / "_background_noise_/running_tap.wav", noisy_tone, 50.0, 0, seconds=8.0)
    (root / "yes/00000007_nohash_0.wav").write_text("no audio")
    (root / "README.md").write_text("")
    write_word(root / "yes/stranger.wav", noisy_tone, 50.0, 0)
    data = tmp_path / "data"
    prepare_open_speech(data, speech_commands=root, valid_fraction=0.3)
    rows = [row for part in ("train", "valid", "test") for row in rows_of(data / f"{part}.csv")]
    assert {row["spk_id"] for row in rows} == {f"sc{number:08x}" for number in range(8)}
    assert len(rows) == 16, "ten words, two recordings"
    assert all(3.9 < float(row["duration"]) < 5.0 for row in rows)
    faults = {Path(row["source"]).name: row["kind"] for row in rows_of(data / "quarantine.csv")}
    assert faults == {"00000007_nohash_0.wav": "not audio", "stranger.wav": "unknown name"}
    noises = rows_of(data / "background_noises.csv")
    assert [Path(row["wav"]).name for row in noises] == ["running_tap.wav"]
    augmentation = Augmentation(
        data / "background_noises.csv", probability=1.0, kinds={"noise": [(0.0, 20.0)]}
    )
    speech = noisy_tone(1.0).astype(np.float32)
    assert not np.array_equal(augmentation(speech, 0), speech)


def test_what_the_common_voice_recipe_made_is_one_more_source(noisy_tone, tmp_path):
    cv = tmp_path / "cv"
    for part, speakers in {"train": range(8), "valid": range(8, 10), "test": range(10, 13)}.items():
        lines = ["ID,wav,duration,spk_id"]
        for number in speakers:
            speaker = f"{('cy', 'rm-vallader')[number % 2]}-{number:016x}"
            for take in range(4):
                path = cv / f"audio/{speaker}_{take}.wav"
                write_word(path, noisy_tone, 90.0 + 10 * number, take, seconds=1.5)
                clip = f"{speaker}/s{take % 2:03}/clip_{take}"
                lines.append(f"{clip},audio/{path.name},1.5,{speaker}")
        (cv / f"{part}.csv").write_text("\n".join(lines) + "\n")
    data = tmp_path / "data"
    summary = prepare_open_speech(data, common_voice=cv, valid_fraction=0.3)
    assert summary["test"].speakers == 3 and summary["train"].speakers >= 4
    speech = read_common_voice(cv)
    assert {row.group for row in speech.recordings} == {
        "common_voice_cy",
        "common_voice_rm-vallader",
    }
    assert {row.session for row in speech.recordings} == {"s000", "s001"}
    trials = VerificationEvaluation(
        data / "test_trials_common_voice_cy.txt", manifest=data / "test.csv"
    ).trials
    assert trials.is_target.sum() == 8 and len(trials) == 8 + 16
    (cv / "audio" / f"cy-{0:016x}_0.wav").unlink()
    with pytest.raises(FileNotFoundError, match=r"train\.csv names 1 files that are not there"):
        read_common_voice(cv)
    with pytest.raises(FileNotFoundError, match=r"run recipes/CommonVoice/prepare\.py first"):
        read_common_voice(tmp_path)


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"x" * 200000])
def test_a_prepared_folder_with_something_else_for_a_table(prepared, content):
    (prepared / "manifest.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"manifest\.csv is not a CSV file"):
        read_prepared(prepared)


def test_the_command_says_what_it_made_and_what_is_wrong(prepared, tmp_path, monkeypatch, capsys):
    arguments = ["recipes/OpenSpeech/prepare.py", str(tmp_path / "data"), f"--prepared={prepared}"]
    monkeypatch.setattr(sys, "argv", [*arguments, f"--audiomnist={tmp_path}"])
    assert main() == 1 and "does not hold audiomnist" in capsys.readouterr().err
    finished = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    assert "test: 2 speakers, 4 recordings" in finished.stdout


@pytest.mark.skipif("SIMPLE_SPK_DATA" not in os.environ, reason="SIMPLE_SPK_DATA names no data")
def test_the_real_folder_is_split_as_it_says():
    speech = read_prepared(Path(os.environ["SIMPLE_SPK_DATA"]) / "speech")
    split = split_open_speech(speech, valid_fraction=0.1, seed=0)
    assert len(split.test) == 145 and len(split.train) + len(split.valid) == 229
    assert not set(split.test) & {*split.train, *split.valid}


def test_the_mean_of_two_models_keeps_the_length_of_the_first(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"num_mels": 24, "width": 4, "blocks": (1, 1), "embedding_dim": 8}
    head = {"form": "log_polar", "centered": True, "initial_length": 2.0}
    encoders = [ResNet(**sizes, output=head), ResNet(**sizes, output={"centered": True})]
    torch.nn.init.normal_(encoders[0].output.length.weight)
    for name, encoder in zip("ab", encoders, strict=True):
        save_model(tmp_path / name, trained_model(Fbank(num_mels=24), encoder, SimPLELoss()))
    average_models(tmp_path / "a", tmp_path / "b", tmp_path / "mean")
    a, b, mean = (load_model(tmp_path / name).encoder.state_dict() for name in ("a", "b", "mean"))
    assert mean.keys() == a.keys()
    for name, weights in mean.items():
        expected = (a[name] + b[name]) / 2 if name in b and weights.ndim else a[name]
        torch.testing.assert_close(weights, expected)
    with pytest.raises(ValueError, match="exchange the two"):
        average_models(tmp_path / "b", tmp_path / "a", tmp_path / "other")
    with pytest.raises(FileExistsError):
        average_models(tmp_path / "a", tmp_path / "b", tmp_path / "mean")
