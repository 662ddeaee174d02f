"""Laws of simple-spk prepare lhotse: cuts become rows whose audio is that of the cuts."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import soundfile

from simple_spk.data.manifest import read_manifest
from tests.command_line import Capture, fails_naming, run

RATE = 8000


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """Two channels of three seconds in 16 bits."""
    samples = np.random.default_rng(0).integers(-9000, 9000, (3 * RATE, 2)).astype(np.int16)
    soundfile.write(tmp_path / "two.wav", samples, RATE)
    soundfile.write(tmp_path / "one.wav", samples[:, 0], RATE)
    return tmp_path


def cut(name: str, file: str, **changes: Any) -> dict[str, Any]:
    """A cut as lhotse writes it, with other values."""
    channels = [0, 1] if file.startswith("two") else [0]
    recording = {
        "id": file,
        "sources": [{"type": "file", "channels": channels, "source": file}],
        "sampling_rate": RATE,
        "num_samples": 3 * RATE,
        "duration": 3.0,
    }
    found = {"id": name, "start": 0.0, "duration": 3.0, "channel": 0, "recording": recording}
    supervisions = [{"id": name, "recording_id": file, "start": 0, "speaker": "ann"}]
    return {**found, "supervisions": supervisions, "type": "MonoCut", **changes}


def write_cuts(path: Path, cuts: list[Any]) -> Path:
    lines = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in cuts)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_whole_files_stay_and_parts_are_cropped_once(
    suffix: str, audio: Path, capsys: Capture
) -> None:
    cuts = [
        cut("whole", "one.wav"),
        cut("a part", "one.wav", start=0.5, duration=1.25),
        cut("right", "two.wav", start=1.0, duration=2.0, channel=1),
    ]
    source, target = write_cuts(audio / f"train{suffix}", cuts), audio / "data"
    assert run("prepare", "lhotse", source, target) == 0
    assert "3 recordings of 1 speakers" in capsys.readouterr().out
    manifest = read_manifest(target / "train.csv")
    assert list(manifest.row_of_id) == ["whole", "a%20part", "right"]
    assert manifest.durations_seconds.tolist() == [3.0, 1.25, 2.0]
    assert manifest.wav(0) == audio / "one.wav"
    both = soundfile.read(audio / "two.wav", dtype="int16")[0]
    expected = [both[:, 0], both[RATE // 2 : RATE // 2 + 10000, 0], both[RATE:, 1]]
    for row, samples in enumerate(expected):
        found, rate = soundfile.read(manifest.wav(row), dtype="int16")
        assert rate == RATE and np.array_equal(found, samples)
    sessions = pl.read_csv(target / "train.csv")["session"].to_list()
    assert sessions == ["one.wav", "one.wav", "two.wav"]
    times = [manifest.wav(row).stat().st_mtime_ns for row in (1, 2)]
    write_cuts(source, [cuts[0], cuts[1], {**cuts[2], "start": 0.75}])
    assert run("prepare", "lhotse", source, target) == 0
    again = read_manifest(target / "train.csv")
    assert again.wav(1) == manifest.wav(1) and again.wav(1).stat().st_mtime_ns == times[0]
    assert again.wav(2) != manifest.wav(2)


def test_bad_cuts_are_named_and_the_others_kept(audio: Path, capsys: Capture) -> None:
    (audio / "bad.wav").write_bytes(b"RIFF")
    bad: dict[str, Any] = {
        "not JSON": '{"id": ',
        "no MonoCut": {**cut("m", "one.wav"), "type": "MixedCut", "tracks": []},
        "no recording": {"id": "f", "start": 0, "duration": 1, "channel": 0, "type": "MonoCut"},
        "no speaker": cut("s", "one.wav", supervisions=[]),
        "several speakers": cut(
            "t", "one.wav", supervisions=[{"speaker": "ann"}, {"speaker": "bob"}]
        ),
        "bad times": cut("u", "one.wav", start=2.0),
        "unreadable": cut("v", "bad.wav"),
        "too short": cut("w", "one.wav", duration=0.001),
        "unfit name": cut("\ud800", "one.wav"),
        "duplicate": cut("good", "one.wav", start=1.0, duration=1.0),
    }
    command = cut("x", "one.wav")
    command["recording"]["sources"][0] |= {"type": "command", "source": "touch executed |"}
    changed = cut("y", "one.wav")
    changed["recording"]["transforms"] = [{"name": "Speed", "kwargs": {"factor": 1.1}}]
    bad |= {"no file": command, "changed": changed}
    source = write_cuts(audio / "train.jsonl", [cut("good", "one.wav"), *bad.values()])
    assert run("prepare", "lhotse", source, audio / "data") == 1
    assert f"{len(bad)} recordings cannot be used" in capsys.readouterr().err
    assert list(read_manifest(audio / "data/train.csv").row_of_id) == ["good"]
    faults = pl.read_csv(audio / "data/train_quarantine.csv")
    found = {int(line.split()[1]): kind for line, kind in faults.select("source", "kind").rows()}
    assert [found[number] for number in range(2, len(bad) + 2)] == list(bad)
    assert not list(audio.rglob("executed*"))


def test_what_is_no_cut_manifest_is_refused(audio: Path, capsys: Capture) -> None:
    prepare = ("prepare", "lhotse")
    fails_naming(capsys, "expected NAME.jsonl", *prepare, audio / "one.wav", audio / "data")
    fails_naming(capsys, "no cut manifest at", *prepare, audio / "no.jsonl", audio / "data")
    source = write_cuts(audio / "empty.jsonl", [])
    fails_naming(capsys, "it is empty", *prepare, source, audio / "data")
    source = write_cuts(audio / "cuts.jsonl.gz", [cut("good", "one.wav")] * 50)
    source.write_bytes(source.read_bytes()[:-20])
    fails_naming(capsys, "is damaged", *prepare, source, audio / "data")


def test_cuts_of_lhotse_itself_have_the_samples_that_lhotse_loads(audio: Path) -> None:
    lhotse = pytest.importorskip("lhotse", reason="lhotse is not installed")
    cuts = []
    for name in ("one", "two"):
        recording = lhotse.Recording.from_file(audio / f"{name}.wav")
        for channel in recording.channel_ids:
            for start, seconds in ((0.0, 3.0), (0.333, 1.777)):
                one = lhotse.MonoCut(
                    f"{name}-{channel}-{start}", start, seconds, channel, recording=recording
                )
                segment = lhotse.SupervisionSegment(one.id, recording.id, 0, seconds, speaker="ann")
                one.supervisions.append(segment)
                cuts.append(one)
    lhotse.CutSet.from_cuts(cuts).to_file(audio / "cuts.jsonl.gz")
    assert run("prepare", "lhotse", audio / "cuts.jsonl.gz", audio / "data") == 0
    manifest = read_manifest(audio / "data/cuts.csv")
    assert list(manifest.row_of_id) == [one.id for one in cuts] and len(cuts) == 6
    for row, one in enumerate(cuts):
        found = soundfile.read(manifest.wav(row), dtype="float32")[0]
        assert np.array_equal(found, one.load_audio()[0])
