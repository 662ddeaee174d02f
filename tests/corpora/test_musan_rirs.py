"""Archives of noises and rooms become manifests that augmentation takes as they are."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk.cli.main import main
from simple_spk.corpora.musan_rirs import prepare_musan, prepare_rooms
from simple_spk.data.augmentation import Augmentation
from simple_spk.data.manifest import read_manifest
from simple_spk.io.atomic_file import lock_folder


def write(path: Path, seconds: float = 0.5, level: float = 0.1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(len(str(path))).normal(0, level, round(16000 * seconds))
    soundfile.write(path, samples, 16000)


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """Both archives as they unpack, with their other files."""
    for kind, source in (("noise", "free-sound"), ("music", "fma"), ("speech", "librivox")):
        for number in range(2):
            write(tmp_path / "musan" / kind / source / f"{kind}-{source}-{number:04d}.wav")
        (tmp_path / "musan" / kind / source / "LICENSE").write_text("free")
    rooms = tmp_path / "RIRS_NOISES" / "simulated_rirs"
    for size in ("smallroom", "mediumroom", "largeroom"):
        for number in range(2):
            write(rooms / size / "Room001" / f"Room001-{number:05d}.wav", 0.05)
    write(tmp_path / "RIRS_NOISES" / "pointsource_noises" / "noise-0.wav")
    return tmp_path


def test_manifests_feed_augmentation(archives: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert prepare_musan(archives / "musan", data).quarantined == []
    assert prepare_rooms(archives / "RIRS_NOISES", data).recordings == 4
    musan, rooms = read_manifest(data / "musan.csv"), read_manifest(data / "rooms.csv")
    assert musan.speakers == ("music", "noise", "speech") and len(musan) == 6
    assert rooms.speakers == ("mediumroom", "smallroom") and len(rooms) == 4
    assert all(manifest.wav(row).is_file() for manifest in (musan, rooms) for row in range(4))
    augmentation = Augmentation(data / "musan.csv", data / "rooms.csv", probability=1.0)
    speech = np.random.default_rng(0).normal(0, 0.1, 8000).astype(np.float32)
    assert all(not np.array_equal(augmentation(speech, seed), speech) for seed in range(8))


def test_bad_recordings_are_named(archives: Path, tmp_path: Path) -> None:
    bad = archives / "musan" / "noise" / "free-sound" / "noise-free-sound-0000.wav"
    bad.write_bytes(b"")
    (fault,) = prepare_musan(archives / "musan", tmp_path / "data").quarantined
    assert fault.source == "noise/free-sound/noise-free-sound-0000.wav"
    assert fault.source in (tmp_path / "data" / "musan_quarantine.csv").read_text()
    assert len(read_manifest(tmp_path / "data" / "musan.csv")) == 5


def test_another_folder_is_refused(archives: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lacks the folders noise, music, speech: .*unpacked"):
        prepare_musan(archives, tmp_path)
    with pytest.raises(ValueError, match="lacks the folders smallroom, mediumroom"):
        prepare_rooms(archives / "musan", tmp_path)


def test_as_commands(archives: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for corpus, folder in (("musan", "musan"), ("rooms", "RIRS_NOISES")):
        source, target = str(archives / folder), str(tmp_path / "data")
        assert main(["prepare", corpus, source, target]) == 0
        assert f"{corpus}.csv" in capsys.readouterr().out


def test_one_run_prepares_a_corpus_at_a_time(
    archives: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with lock_folder(data / ".musan", "preparing"):
        assert main(["prepare", "musan", str(archives / "musan"), str(data)]) == 1
        assert f"process {os.getpid()} on " in capsys.readouterr().err
        assert main(["prepare", "rooms", str(archives / "RIRS_NOISES"), str(data)]) == 0
    assert main(["prepare", "musan", str(archives / "musan"), str(data)]) == 0
