"""Only regular files are read, and never more than is expected of them."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from simple_spk.cli.main import main
from simple_spk.data.audio import read_recording
from simple_spk.data.manifest import read_manifest
from simple_spk.data.recording_lists import find_recordings
from simple_spk.data.trials import read_trials
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.score_files import read_scores
from simple_spk.inference.model_folder import load_model
from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.io import input_file
from simple_spk.io.input_file import read_file, unpacked
from simple_spk.io.safe_yaml import read_tagged_yaml
from simple_spk.io.tensor_file import read_tensors
from simple_spk.report.metadata import read_metadata
from simple_spk.vision.image_files import read_image

READERS: dict[str, Callable[[Path], object]] = {
    "a.wav": read_recording,
    "b.csv": read_manifest,
    "c.txt": read_trials,
    "d.txt": read_scores,
    "e.lst": lambda path: find_recordings([path]),
    "f.json": Calibration.load,
    "g.npz": read_embeddings,
    "h.safetensors": read_embeddings,
    "i.ark": read_embeddings,
    "j.scp": read_embeddings,
    "k.yaml": read_tagged_yaml,
    "l.pt": read_tensors,
    "m.csv": read_metadata,
    "n.png": read_image,
    "o": lambda path: open_voices(path, "model"),
}


@pytest.mark.parametrize("name", READERS)
def test_pipes_devices_and_missing_files_are_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises((ValueError, OSError), match=name):
        READERS[name](path)
    os.mkfifo(path)  # which nobody writes to: opening it would wait forever
    with pytest.raises(OSError, match="is a pipe or a device"):
        READERS[name](path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="is a pipe or a device"):
        READERS[name](path)


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="needs Linux")
@pytest.mark.parametrize("name", READERS)
def test_endless_files_of_the_kernel_count_as_empty(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.symlink_to("/proc/kmsg")  # of which reading waits for messages
    with pytest.raises((ValueError, OSError), match=name):
        READERS[name](path)


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="needs Linux")
def test_no_command_waits_for_the_kernel(
    spoken: list[Path], model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", str(model_folder)]
    assert main(["verify", str(spoken[0]), "/proc/kmsg", *model]) == 1
    assert "/proc/kmsg has 0 bytes" in capsys.readouterr().err
    folder = tmp_path / "linked"
    shutil.copytree(model_folder, folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/proc/kmsg")
    with pytest.raises(ValueError, match="is empty"):
        load_model(folder)


def test_large_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ValueError, match="no such file needs over 1000"):
        read_file(path, "file", 1000)


def test_packed_files_are_unpacked_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_file, "MOST_UNPACKED_BYTES", 3000)
    path = tmp_path / "list.gz"
    for size, is_read in ((3000, True), (3001, False)):
        path.write_bytes(gzip.compress(bytes(size - 1000)) + gzip.compress(bytes(1000)))
        if is_read:
            assert unpacked(path.open("rb"), path).read() == bytes(size)
        else:
            with pytest.raises(ValueError, match=r"list\.gz unpacks to more than"):
                unpacked(path.open("rb"), path)
