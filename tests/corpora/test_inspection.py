"""Laws of inspection: one answer about a file, whoever asks, however many work."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from simple_spk.corpora.inspection import Depth, inspect_file, inspect_files
from tools.write_m4a import write_m4a

Tone = Callable[..., NDArray[np.float32]]
OPENED = (Depth.ENDS, Depth.SILENCE, Depth.SAMPLES)


@pytest.fixture
def files(noisy_tone: Tone, tmp_path: Path) -> dict[str, Path]:
    """Good recordings, and one of each bad kind."""
    tone = noisy_tone(1.5)
    quiet_end = np.concatenate([tone, np.zeros(8000, np.float32)])
    made = {
        "good.wav": tone,
        "good.flac": tone,
        "loud.wav": np.clip(20.0 * tone, -1.0, 1.0),
        "quiet_end.wav": quiet_end,
        "silent.wav": np.zeros(20000, np.float32),
    }
    for name, waveform in made.items():
        soundfile.write(tmp_path / name, waveform, 16000)
    write_m4a(tmp_path / "good.m4a", tone)
    (tmp_path / "cut.wav").write_bytes((tmp_path / "good.wav").read_bytes()[:-1000])
    (tmp_path / "cut.m4a").write_bytes((tmp_path / "good.m4a").read_bytes()[:-2000])
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "link.wav").symlink_to("nowhere.wav")
    return {path.name: path for path in sorted(tmp_path.iterdir())}


@pytest.mark.parametrize("depth", OPENED)
def test_faults_are_found_at_every_depth(files: dict[str, Path], depth: Depth) -> None:
    facts = {name: inspect_file(path, depth) for name, path in files.items()}
    kinds = {name: fact.fault[0] for name, fact in facts.items() if fact.fault is not None}
    expected = {"cut.m4a": "truncated", "cut.wav": "truncated"}
    assert kinds == expected | {"empty.wav": "empty", "link.wav": "vanished"}
    for name, fact in facts.items():
        assert np.isnan(fact.seconds) == (name in kinds)
        assert (fact.sample_rate, fact.channels) == ((0, 0) if name in kinds else (16000, 1))


def test_silence_is_known_as_far_as_the_depth_says(files: dict[str, Path]) -> None:
    """A heard end says enough; a silent end does not, nor does the index of an m4a."""
    names = ("good.wav", "quiet_end.wav", "silent.wav", "good.m4a")
    silent = {
        depth: [inspect_file(files[name], depth).is_silent for name in names] for depth in OPENED
    }
    assert silent[Depth.ENDS] == [False, None, None, None]
    assert silent[Depth.SILENCE] == silent[Depth.SAMPLES] == [False, False, True, False]


def test_all_samples_show_clipping(files: dict[str, Path]) -> None:
    shares = {
        name: inspect_file(files[name], Depth.SAMPLES).full_scale_share
        for name in ("good.wav", "loud.wav")
    }
    assert shares["good.wav"] == 0.0 and shares["loud.wav"] > 0.1


@pytest.mark.parametrize("depth", OPENED)
def test_threads_and_processes_say_the_same(files: dict[str, Path], depth: Depth) -> None:
    paths = [str(path) for path in files.values()] * 3
    wanted = [number % 2 == 0 for number in range(len(paths))]
    expected = [
        inspect_file(*each) for each in zip(paths, [depth] * len(paths), wanted, strict=True)
    ]
    for workers, in_processes in ((1, False), (3, False), (2, True)):
        found = inspect_files(paths, depth, workers, in_processes, wanted)
        assert list(map(repr, found)) == list(map(repr, expected))  # nan is not equal to itself
    digests = [fact.digest != 0 for fact in expected]
    is_good = [fact.fault is None for fact in expected]
    assert digests == [good and want for good, want in zip(is_good, wanted, strict=True)]


@pytest.mark.parametrize("depth", OPENED)
def test_another_format_under_the_name_of_m4a(files: dict[str, Path], depth: Depth) -> None:
    renamed = files["good.wav"].rename(files["good.wav"].with_name("wav.m4a"))
    assert inspect_file(renamed, depth)[:4] == (1.5, 16000, 1, False)


AFTER_TWO_THREADS = """
import sys
import torch
from simple_spk.corpora.inspection import Depth, inspect_files
if __name__ == "__main__":
    torch.set_num_threads(2)
    torch.randn(4_000_000).exp().sum()
    print(*(facts.seconds for facts in inspect_files(sys.argv[1:], Depth.SAMPLES, 2, True)))
"""


def test_processes_do_not_hang_after_torch_used_threads(tmp_path: Path) -> None:
    """Forked ones did, where a recording has to be resampled."""
    script = tmp_path / "script.py"
    script.write_text(AFTER_TWO_THREADS)
    paths = [tmp_path / f"{number}.wav" for number in range(2)]
    for path in paths:
        soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 2 * 44100), 44100)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, script, *paths], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["2.0", "2.0"], done.stderr
