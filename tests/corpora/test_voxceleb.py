"""Laws of preparing VoxCeleb: manifests name what is there, lists what is usable."""

import csv
import gzip
import itertools
import os
import random
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from simple_spk.cli.commands import prepare
from simple_spk.corpora.trial_lists import choose_recordings, write_validation_trials
from simple_spk.corpora.voxceleb import prepare_voxceleb1, prepare_voxceleb2
from simple_spk.data.audio import duration_seconds, read_recording
from simple_spk.data.manifest import read_manifest
from simple_spk.data.trials import read_trials
from tools.write_m4a import write_m4a

VOX1_O_SPEAKERS = {f"id{number}" for number in range(10270, 10310)}
Tone = Callable[..., NDArray[np.float32]]
Capture = pytest.CaptureFixture[str]

IDS = [f"id{s:05d}/video{v}/{n:05d}" for s in (12, 15) for v in range(2) for n in range(1, 3)]
VOX1_IDS = [
    f"id{speaker}/video{video}/{number:05d}.wav"
    for speaker in (10001, 10002, 10270, 10309)
    for video in range(2)
    for number in range(1, 3)
]


@pytest.fixture
def aac(noisy_tone: Tone, tmp_path: Path) -> Path:
    """The tree of VoxCeleb2 dev in small: two speakers with four recordings each."""
    root = tmp_path / "vox2/dev/aac"
    for seed, name in enumerate(IDS):
        write_m4a(root / f"{name}.m4a", noisy_tone(1.0 + 0.1 * seed, seed=seed))
    return root


@pytest.fixture
def wav(noisy_tone: Tone, tmp_path: Path) -> Path:
    """VoxCeleb1 in small: two speakers of dev, two of Vox1-O."""
    root = tmp_path / "vox1/wav"
    for seed, name in enumerate(VOX1_IDS):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(root / name, noisy_tone(1.1 + 0.1 * seed, seed=seed), 16000)
    return root


def run_command(*arguments: object) -> int:
    """The command prepare, from its arguments to its exit code."""
    parser = ArgumentParser()
    prepare.add_arguments(parser)
    return prepare.run(parser.parse_args([str(argument) for argument in arguments]))


def quarantined(path: Path) -> dict[str, str]:
    """The kinds of fault by source."""
    with path.open(newline="") as file:
        return {row["source"]: row["kind"] for row in csv.DictReader(file)}


# ---- VoxCeleb2 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("audio_format", ["flac", "wav"])
def test_the_manifest_names_every_recording(audio_format: str, aac: Path, tmp_path: Path) -> None:
    (aac / IDS[0]).with_suffix(".txt").write_text("notes")
    target = tmp_path / "data"
    prepared = prepare_voxceleb2(aac.parents[1], target, audio_format)  # type: ignore[arg-type]
    manifest = read_manifest(target / "train.csv")
    assert list(manifest.row_of_id) == [f"{name}.wav" for name in IDS]
    assert manifest.speakers == ("id00012", "id00015")
    for row, name in enumerate(IDS):
        assert manifest.wav(row) == target / audio_format / f"{name}.{audio_format}"
        recording = read_recording(manifest.wav(row))
        assert manifest.durations_seconds[row] == pytest.approx(len(recording) / 16000, abs=0.0005)
        original = read_recording(aac / f"{name}.m4a")
        np.testing.assert_allclose(recording, original, rtol=0.0, atol=1 / 32768)
    assert (prepared.speakers, prepared.recordings, prepared.quarantined) == (2, len(IDS), [])
    assert prepared.hours == pytest.approx(manifest.durations_seconds.sum() / 3600, abs=1e-6)
    assert prepared.ignored == {".txt": 1}
    assert quarantined(prepared.quarantine) == {}


def test_any_of_the_outer_folders_may_be_named(aac: Path, tmp_path: Path) -> None:
    written = set()
    for number, source in enumerate((aac, *aac.parents[:2])):
        prepare_voxceleb2(source, tmp_path / str(number))
        written.add((tmp_path / str(number) / "train.csv").read_bytes())
    assert len(written) == 1


def test_the_command_tells_what_it_left_out(aac: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = ("voxceleb2", aac, tmp_path / "data", "--workers", 1)
    assert run_command(*arguments) == 0
    output = capsys.readouterr()
    assert "8 recordings of 2 speakers" in output.out
    assert "found 8 recordings; VoxCeleb2 dev has 1092009" in output.err
    (aac / f"{IDS[0]}.m4a").write_bytes(b"")
    (aac / f"{IDS[1]}.m4a").unlink()
    (aac / f"{IDS[1]}.m4a").symlink_to("nowhere")
    assert run_command(*arguments) == 1
    output = capsys.readouterr()
    assert "6 recordings of 2 speakers" in output.out
    assert "2 recordings cannot be used (1 empty, 1 vanished)" in output.err
    found = quarantined(tmp_path / "data/voxceleb2_quarantine.csv")
    assert found == {f"{IDS[0]}.m4a": "empty", f"{IDS[1]}.m4a": "vanished"}
    assert len(read_manifest(tmp_path / "data/train.csv")) == 6


@pytest.mark.parametrize("name", [b"\xff", b"line\nbreak", b"mark\x1e"])
def test_names_that_no_table_can_hold(name: bytes, aac: Path, wav: Path, tmp_path: Path) -> None:
    for path in (aac / f"{IDS[0]}.m4a", wav / VOX1_IDS[0]):
        path.rename(path.with_name(os.fsdecode(name) + path.suffix))
    assert run_command("voxceleb2", aac, tmp_path / "data", "--workers", 1) == 1
    assert run_command("voxceleb1", wav, tmp_path / "data") == 1
    assert len(read_manifest(tmp_path / "data/train.csv")) == len(IDS) - 1
    assert len(read_manifest(tmp_path / "data/test.csv")) == len(VOX1_IDS) - 1
    for number in (1, 2):
        quarantine = (tmp_path / f"data/voxceleb{number}_quarantine.csv").read_text()
        shown = os.fsdecode(name).encode(errors="backslashreplace").decode()
        assert shown in quarantine and "unfit name" in quarantine


def test_no_usable_recording_at_all(tmp_path: Path) -> None:
    (tmp_path / "aac/id00001/video").mkdir(parents=True)
    (tmp_path / "aac/id00001/video/00001.m4a").write_text("404 not found")
    with pytest.raises(ValueError, match=r"none .* \(1 not audio\): see .*quarantine\.csv"):
        prepare_voxceleb2(tmp_path, tmp_path / "data")
    assert not (tmp_path / "data/train.csv").exists()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["dev/mp4/id00012/v/00001.mp4"], "archive of videos"),
        (["dev/aac/id00012/v/00001.mp4"], r"1 \.mp4.*archive of videos"),
        (["vox2_dev_aac_partaa", "vox2_dev_aac_partab"], "join and unpack"),
        (["wav/s1/1.wav"], r"but wav: expected dev/aac/id00012"),
        (["aac/id00012/00001.m4a"], r"no \.m4a files, but 1 \.m4a: expected speaker/video"),
        ([], "but nothing"),
    ],
)
def test_an_unexpected_tree_is_described(files: list[str], expected: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=expected):
        prepare_voxceleb2(source, tmp_path / "data")


def test_a_source_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing.*dev/aac"):
        prepare_voxceleb2(tmp_path / "missing", tmp_path / "data")


def test_at_least_one_has_to_work(aac: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--workers is 0"):
        run_command("voxceleb2", aac, tmp_path / "data", "--workers", 0)


# ---- VoxCeleb1 ----------------------------------------------------------------------------------


def test_voxceleb1_stays_where_it_is(wav: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*.wav"))
    prepared = prepare_voxceleb1(wav.parent, tmp_path / "data")
    assert sorted(tmp_path.rglob("*.wav")) == before
    manifest = read_manifest(tmp_path / "data/test.csv")
    assert list(manifest.row_of_id) == VOX1_IDS
    for row, name in enumerate(VOX1_IDS):
        assert manifest.wav(row) == wav / name
        expected = duration_seconds(wav / name)
        assert manifest.durations_seconds[row] == pytest.approx(expected, abs=0.0005)
    assert (prepared.speakers, prepared.recordings) == (4, len(VOX1_IDS))


def test_dev_and_test_in_folders_of_their_own(wav: Path, tmp_path: Path) -> None:
    prepare_voxceleb1(wav, tmp_path / "one")
    for part, speakers in (("dev", ("id10001", "id10002")), ("test", ("id10270", "id10309"))):
        (tmp_path / "two" / part / "wav").mkdir(parents=True)
        for speaker in speakers:
            (wav / speaker).rename(tmp_path / "two" / part / "wav" / speaker)
    prepare_voxceleb1(tmp_path / "two", tmp_path / "two")
    one, two = (read_manifest(tmp_path / name / "test.csv") for name in ("one", "two"))
    assert list(one.row_of_id) == list(two.row_of_id)
    assert np.array_equal(one.durations_seconds, two.durations_seconds)
    first_row = (tmp_path / "two/test.csv").read_text().splitlines()[1]
    assert f",dev/wav/{VOX1_IDS[0]}," in first_row  # below the target, so both may move
    assert all(two.wav(row).is_file() for row in range(len(two)))


def test_bad_files_of_voxceleb1(wav: Path, tmp_path: Path, capsys: Capture) -> None:
    content = (wav / VOX1_IDS[0]).read_bytes()
    bad = {
        "empty": b"",
        "header only": content[:44],
        "truncated": content[:-1000],
        "not audio": b"404 not found\n" * 99,
    }
    for name, new_content in zip(VOX1_IDS, bad.values(), strict=False):
        (wav / name).write_bytes(new_content)
    soundfile.write(wav / VOX1_IDS[4], np.ones(1600) / 2, 16000)
    assert run_command("voxceleb1", wav, tmp_path / "data") == 1
    assert "5 recordings cannot be used" in capsys.readouterr().err
    found = quarantined(tmp_path / "data/voxceleb1_quarantine.csv")
    assert found == dict(zip(VOX1_IDS, (*bad, "too short"), strict=False))
    assert len(read_manifest(tmp_path / "data/test.csv")) == len(VOX1_IDS) - 5


def test_trial_lists_are_checked_and_copied(wav: Path, tmp_path: Path, capsys: Capture) -> None:
    lists = [tmp_path / "veri_test2.txt", tmp_path / "list_test_all.txt.gz"]
    text = f"1 {VOX1_IDS[8]} {VOX1_IDS[10]}\n0 {VOX1_IDS[8]} {VOX1_IDS[12]}\n"
    lists[0].write_text(text)
    lists[1].write_bytes(gzip.compress(text.encode()))
    data = tmp_path / "data"
    assert run_command("voxceleb1", wav, data, "--trials", *lists) == 0
    assert (data / "test_trials.txt").read_text() == text
    assert (data / "list_test_all.txt").read_text() == text
    assert "in valid.csv" in capsys.readouterr().out
    lists[0].write_text(text + f"0 id10270/x/00001.wav {VOX1_IDS[8]}\n")
    with pytest.raises(ValueError, match=r"veri_test2\.txt names 1 .*id10270/x/00001\.wav"):
        run_command("voxceleb1", wav, data, "--trials", lists[0])
    assert (data / "test_trials.txt").read_text() == text
    with pytest.raises(FileNotFoundError, match=r"no trial list at .*nowhere\.txt"):
        run_command("voxceleb1", wav, tmp_path / "new", "--trials", tmp_path / "nowhere.txt")
    assert not (tmp_path / "new/test.csv").exists(), "found before the recordings are inspected"


@pytest.mark.parametrize("name", ["test_trials.txt", "valid_trials.txt.gz", "test.csv", "a.txt"])
def test_no_copy_of_a_list_overwrites_another(name: str, wav: Path, tmp_path: Path) -> None:
    lists = [tmp_path / "a.txt", tmp_path / "b/a.txt", tmp_path / "c" / name]
    with pytest.raises(ValueError, match=f"{lists[2]} would overwrite"):
        prepare_voxceleb1(wav, tmp_path / "data", lists)
    assert not (tmp_path / "data").exists()


def test_validation_is_ready_for_use(wav: Path, tmp_path: Path) -> None:
    prepared = prepare_voxceleb1(wav, tmp_path / "data")
    manifest = read_manifest(tmp_path / "data/valid.csv")
    trials = read_trials(tmp_path / "data/valid_trials.txt")
    assert prepared.validation_recordings == len(manifest) == 8
    assert manifest.speakers == ("id10001", "id10002")
    assert set(trials.ids) == set(manifest.row_of_id)


@pytest.mark.parametrize("gone", [("id10001", "id10002"), ("id10001",)])
def test_fewer_than_two_dev_speakers_cannot_validate(
    gone: tuple[str, ...], wav: Path, tmp_path: Path, capsys: Capture
) -> None:
    for speaker in gone:
        (wav / speaker).rename(tmp_path / speaker)
    assert run_command("voxceleb1", wav, tmp_path / "data") == 0
    assert "no valid.csv" in capsys.readouterr().err
    assert not (tmp_path / "data/valid.csv").exists()


# ---- the list to validate with ------------------------------------------------------------------


def many_ids() -> list[str]:
    """IDs of sixty speakers, ten of them in Vox1-O, with one to six videos of five recordings."""
    return [
        f"id{speaker}/video{video}/{number:05d}.wav"
        for speaker in range(10220, 10280)
        for video in range(1 + speaker % 6)
        for number in range(5)
    ]


def test_the_choice_of_recordings() -> None:
    ids = many_ids()
    chosen = choose_recordings(ids, speakers=20, recordings_per_speaker=8)
    of_speaker = {
        speaker: list(group)
        for speaker, group in itertools.groupby(chosen, lambda name: name.split("/")[0])
    }
    assert len(of_speaker) == 20
    assert not set(of_speaker) & VOX1_O_SPEAKERS
    assert chosen == sorted(set(chosen) & set(ids))
    for speaker, names in of_speaker.items():
        videos = 1 + int(speaker[2:]) % 6
        assert len(names) == 8
        counts = [sum(f"/video{video}/" in name for name in names) for video in range(videos)]
        assert videos > 1
        assert max(counts) - min(counts) <= 1, "spread over the videos"
    shuffled = random.Random(0).sample(ids, len(ids))
    assert choose_recordings(shuffled, 20, 8) == chosen


def test_the_trials_are_all_pairs_of_different_videos(tmp_path: Path) -> None:
    ids = choose_recordings(many_ids(), speakers=5, recordings_per_speaker=6)
    write_validation_trials(tmp_path / "trials.txt", ids)
    expected = [
        f"{int(x.split('/')[0] == y.split('/')[0])} {x} {y}"
        for x, y in itertools.combinations(ids, 2)
        if x.rpartition("/")[0] != y.rpartition("/")[0]
    ]
    assert (tmp_path / "trials.txt").read_text().splitlines() == expected


def test_vox1_o_has_these_speakers() -> None:
    folder = os.environ.get("SIMPLE_SPK_DATA")
    if folder is None:
        pytest.skip("SIMPLE_SPK_DATA names no folder with the lists of VoxCeleb")
    for name in ("veri_test.txt.gz", "veri_test2.txt.gz"):
        ids = read_trials(Path(folder) / "voxceleb" / name).ids
        assert {identifier.split("/")[0] for identifier in ids} == VOX1_O_SPEAKERS
