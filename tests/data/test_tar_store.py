"""Recordings in tar files are read as loose files are, and wrong places are named."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from simple_spk.data.audio import read_crop, read_header, read_recording
from simple_spk.data.dataset import speaker_crop_loader
from simple_spk.data.manifest import read_manifest, write_manifest
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.training.data_check import check_recordings
from tests.command_line import Capture, fails_naming, run
from tools.write_m4a import write_m4a

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".m4a")


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """Four speakers with recordings of several formats, in folders that are sessions."""
    wavs, durations = [], []
    for number in range(20):
        seconds = 1.0 + 0.1 * (number % 7)
        tone = np.sin(np.arange(round(16000 * seconds)) * (0.05 + 0.01 * number))
        noise = np.random.default_rng(number).normal(0, 0.05, len(tone))
        wave = (0.3 * tone + noise).astype(np.float32)
        path = tmp_path / "loose" / f"s{number % 4}" / f"v{number % 8}" / f"{number}"
        path = path.with_suffix(SUFFIXES[number % 5])
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".m4a":
            write_m4a(path, wave, 16000)
        else:
            soundfile.write(path, wave, 16000)
        wavs.append(path.relative_to(tmp_path / "loose").as_posix())
        durations.append(seconds)
    ids = [wav.rsplit(".", 1)[0] for wav in wavs]
    manifest = tmp_path / "loose" / "train.csv"
    write_manifest(manifest, ids, wavs, durations, [f"s{number % 4}" for number in range(20)])
    return manifest


@pytest.fixture
def stored(loose: Path, tmp_path: Path) -> Path:
    """The same recordings in tar files."""
    target = tmp_path / "stored"
    assert run("prepare", "shards", loose, target, "--shard-megabytes", 0.1) == 0
    assert len(list(target.glob("shard-*.tar"))) > 2
    return target / "train.csv"


def test_stored_recordings_are_those_of_loose_files(loose: Path, stored: Path) -> None:
    first, second = read_manifest(loose), read_manifest(stored)
    assert list(first.row_of_id) == list(second.row_of_id)
    assert np.array_equal(first.speaker_of_row, second.speaker_of_row)
    for row in range(len(first)):
        paths = first.wav(row), second.wav(row)
        assert ".tar#" in str(paths[1])
        assert read_header(paths[0]) == read_header(paths[1])
        assert np.array_equal(*map(read_recording, paths))
        for position in (0.0, 0.4, 0.999):
            assert np.array_equal(*(read_crop(path, 8000, position) for path in paths))


def test_a_loader_draws_the_same_batches(loose: Path, stored: Path) -> None:
    """Also if folders are sessions, which tar files do not have."""
    loaders = [
        speaker_crop_loader(
            path,
            speakers_per_batch=4,
            recordings_per_speaker=2,
            crop_seconds=(0.3, 0.9),
            batches_per_epoch=3,
            folders_are_sessions=True,
            workers=workers,
        )
        for path, workers in ((loose, 0), (stored, 0), (stored, 1))
    ]
    for batches in zip(*loaders, strict=True):
        for other in batches[1:]:
            assert torch.equal(batches[0].inputs, other.inputs)
            assert torch.equal(batches[0].labels, other.labels)
    check_recordings(loaders[1].dataset, [])


def test_tar_unpacks_the_shards_and_a_second_run_keeps_them(
    loose: Path, stored: Path, tmp_path: Path
) -> None:
    tars = sorted(stored.parent.glob("shard-*.tar"))
    for tar in tars:
        subprocess.run(["tar", "-xf", tar, "-C", tmp_path], check=True)
    original = read_manifest(loose)
    for name, row in original.row_of_id.items():
        path = original.wav(row)
        assert (tmp_path / name).with_suffix(path.suffix).read_bytes() == path.read_bytes()
    before, text = [tar.stat().st_ino for tar in tars], stored.read_text()
    tars[1].write_bytes(tars[1].read_bytes()[:700])  # as if it were interrupted
    assert run("prepare", "shards", loose, stored.parent, "--shard-megabytes", 0.1) == 0
    after = [tar.stat().st_ino for tar in tars]
    assert stored.read_text() == text
    assert after[0] == before[0] and after[2:] == before[2:] and after[1] != before[1]


def test_commands_read_stored_recordings(
    loose: Path, stored: Path, model_folder: Path, tmp_path: Path
) -> None:
    found = []
    for number, manifest in enumerate((loose, stored)):
        output = tmp_path / f"{number}.parquet"
        assert run("embed", manifest, "--model", model_folder, "-o", output) == 0
        found.append(read_embeddings(output))
    assert found[0].ids == found[1].ids and np.array_equal(found[0].matrix, found[1].matrix)
    ids = found[0].ids
    (tmp_path / "t.txt").write_text(f"1 {ids[0]} {ids[4]}\n0 {ids[0]} {ids[1]}\n")
    evaluate = ("evaluate", "--model", model_folder, "--trials", tmp_path / "t.txt")
    for number, manifest in enumerate((loose, stored)):
        scores = ("--manifest", manifest, "-o", tmp_path / f"{number}.txt", "--replicates", 0)
        assert run(*evaluate, *scores) == 0
    assert (tmp_path / "0.txt").read_text() == (tmp_path / "1.txt").read_text()
    assert run("doctor", "--manifest", stored, "--deep") == run(
        "doctor", "--manifest", loose, "--deep"
    )


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("shard-0000.tar#512+99999999999", "has .* bytes, and no bytes up to 100000000511"),
        ("shard-0000.tar#x+10", "expected NAME.tar#offset"),
        ("shard-0000.tar#512", "expected NAME.tar#offset"),
        ("shard-0000.tar#-5+10", "expected NAME.tar#offset"),
        ("shard-0000.tar#5+1" + "0" * 30, "expected NAME.tar#offset"),
        ("shard-0099.tar#512+10", "shard-0099.tar cannot be read"),
    ],
)
def test_a_wrong_place_is_named_with_its_manifest(
    cell: str, reason: str, stored: Path, model_folder: Path, capsys: Capture
) -> None:
    header, first, *rest = stored.read_text().splitlines()
    fields = first.split(",")
    fields[1] = cell
    stored.write_text("\n".join([header, ",".join(fields), *rest]))
    with pytest.raises(ValueError, match=rf"(?s)train\.csv, recording 1: wav is 'shard.*{reason}"):
        read_manifest(stored).wav(0)
    output = stored.parent / "e.npz"
    fails_naming(
        capsys, "recording 1: wav is", "embed", stored, "--model", model_folder, "-o", output
    )


def test_bytes_that_are_no_recording_are_an_error_of_that_place(stored: Path) -> None:
    tar = stored.parent / "shard-0000.tar"
    with pytest.raises(ValueError, match=r"shard-0000\.tar#0\+512"):
        read_recording(f"{tar}#0+512")
    with pytest.raises(ValueError, match="has 0 bytes"):
        read_recording(f"{tar}#512+0")


def test_a_manifest_is_not_overwritten_by_its_own_store(loose: Path, capsys: Capture) -> None:
    fails_naming(capsys, "would be overwritten", "prepare", "shards", loose, loose.parent)
    (loose.parent / read_manifest(loose).files[3]).unlink()
    other = loose.parent / "other"
    fails_naming(capsys, "complete the data of", "prepare", "shards", loose, other)
