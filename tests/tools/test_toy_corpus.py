"""The toy corpus is whole, the same every time, and its trials can be used as they are."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tools import make_toy_corpus as toy

SPEAKERS = {
    "train": ["toy0001", "toy0002", "toy0003"],
    "test": ["toy0004", "toy0005"],
    "valid": ["toy0006", "toy0007"],
}


def make_small(folder: Path, seed: int = 0) -> Path:
    toy.make_toy_corpus(folder, 3, 2, 4, seed, valid_speakers=2)
    return folder


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_trials(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def read_all(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("made") / "toy")


def test_command_line_gives_the_same_bytes_even_after_a_crash(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy.partial" / "wav" / "toy0099").mkdir(parents=True)
    (tmp_path / "toy.partial" / "train.csv").write_text("half a fi")
    counts = "--train-speakers 3 --test-speakers 2 --valid-speakers 2 --recordings-per-speaker 4"
    monkeypatch.setattr(sys, "argv", ["make_toy_corpus.py", str(tmp_path / "toy"), *counts.split()])
    toy.main()
    assert read_all(tmp_path / "toy") == read_all(corpus)
    assert not (tmp_path / "toy.partial").exists()


def test_another_seed_gives_other_voices(corpus: Path, tmp_path: Path) -> None:
    other, first = read_all(make_small(tmp_path / "other", seed=1)), read_all(corpus)
    assert other.keys() == first.keys()
    assert not [name for name in first if name.endswith(".wav") and other[name] == first[name]]


def test_a_speaker_does_not_depend_on_the_others(corpus: Path, tmp_path: Path) -> None:
    rows = list(toy.write_speaker(tmp_path, 2, 4, seed=0))
    assert rows == [list(row.values()) for row in read_rows(corpus / "train.csv")[8:]]
    for _, wave, *_ in rows:
        assert (tmp_path / wave).read_bytes() == (corpus / wave).read_bytes()


@pytest.mark.parametrize("subset", ["train", "test", "valid"])
def test_csv_lists_the_recordings(corpus: Path, subset: str) -> None:
    rows = read_rows(corpus / f"{subset}.csv")
    assert list(rows[0]) == ["ID", "wav", "duration", "spk_id"]
    names = [f"{one}/session{n}-{n:02d}" for one in SPEAKERS[subset] for n in range(1, 5)]
    assert [row["ID"] for row in rows] == names
    for row in rows:
        assert row["wav"] == f"wav/{row['ID']}.wav"
        assert row["spk_id"] == row["ID"].split("/")[0]
        info = soundfile.info(corpus / row["wav"])
        assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
        assert float(row["duration"]) * 16000 == pytest.approx(info.frames, abs=1e-3)
        assert 2.5 < float(row["duration"]) <= 4.5


def test_folder_holds_nothing_else(corpus: Path) -> None:
    lists = {"train.csv", "test.csv", "valid.csv", "test_trials.txt", "valid_trials.txt"}
    waves = {row["wav"] for subset in SPEAKERS for row in read_rows(corpus / f"{subset}.csv")}
    assert read_all(corpus).keys() == lists | waves | {"toy_corpus.json"}
    assert [path.name for path in corpus.parent.iterdir()] == ["toy"]  # Nothing partial is left.


@pytest.mark.parametrize("subset", ["test", "valid"])
def test_trials_are_of_the_recordings_in_the_csv(corpus: Path, subset: str) -> None:
    trials = read_trials(corpus / f"{subset}_trials.txt")
    known = {row["ID"] for row in read_rows(corpus / f"{subset}.csv")}
    assert {name for _, *names in trials for name in names} == known
    # All 6 pairs of each speaker are across sessions, and there are but 16 non-target pairs.
    assert sorted(label for label, *_ in trials) == ["0"] * 16 + ["1"] * 12


def test_default_trials(tmp_path: Path) -> None:
    toy.write_trials(tmp_path / "trials.txt", range(80, 100), 20, seed=0)
    trials = read_trials(tmp_path / "trials.txt")
    assert len({frozenset(names) for _, *names in trials}) == len(trials)
    for label, first, second in trials:
        assert label == str(int(first.split("/")[0] == second.split("/")[0]))
        assert label == "0" or first.split("-")[0] != second.split("-")[0], "the same session"
    labels = [label for label, *_ in trials]
    # Of the 190 pairs of a speaker, 10 lie within each of the 4 sessions.
    assert (labels.count("1"), labels.count("0")) == (20 * 150, 4 * 20 * 150)
    assert 0.1 < labels[:1000].count("1") / 1000 < 0.3, "not shuffled"


def test_sound_is_neither_silent_nor_clipped(corpus: Path) -> None:
    for path in corpus.glob("wav/*/*.wav"):
        samples, _ = soundfile.read(path, dtype="int16")
        assert np.abs(samples.astype(np.int32)).max() < 32000
        assert samples.std() > 300
        # Noise may touch zero, but for no longer than chance allows.
        zero_edges = np.flatnonzero(np.diff(np.concatenate(([0], samples == 0, [0]))))
        assert (np.diff(zero_edges)[::2]).max(initial=0) < 10


def test_pitch_is_that_of_the_speaker() -> None:
    voices = [toy.draw_speaker(toy.generator_for(0, "speaker", index)) for index in range(40)]
    voices.sort(key=lambda voice: voice.pitch_hertz)
    for voice in voices[::13]:
        speech = toy.speak(voice, toy.generator_for(0, "recording", 0))
        frames = speech[: speech.size // 1024 * 1024].reshape(-1, 1024)
        spectra = np.abs(np.fft.rfft(frames * np.hanning(1024), 4096)) ** 2
        correlation = np.fft.irfft(spectra[frames.std(1) > speech.std()])
        # Periods of 40 to 267 samples are 60 to 400 Hz.
        pitch_hertz = 16000 / (40 + np.argmax(correlation[:, 40:267], axis=1))
        assert np.median(pitch_hertz) == pytest.approx(voice.pitch_hertz, rel=0.3)


def test_a_made_corpus_is_left_alone(corpus: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in corpus.rglob("*")}
    make_small(corpus)
    assert {path: path.stat().st_mtime_ns for path in corpus.rglob("*")} == before


def test_another_corpus_is_refused(corpus: Path) -> None:
    with pytest.raises(ValueError, match=r"toy exists .* delete it or choose another"):
        make_small(corpus, seed=1)


@pytest.mark.parametrize("content", [None, "{", json.dumps({"version": 0})])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "toy_corpus.json").write_text(content)
    with pytest.raises(ValueError, match=f"{tmp_path.name} exists"):
        make_small(tmp_path)


@pytest.mark.parametrize("counts", [(0, 2, 4), (3, 1, 4), (3, 2, 1)])
def test_too_few_for_trials(tmp_path: Path, counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="needed"):
        toy.make_toy_corpus(tmp_path / "toy", *counts, valid_speakers=2)
    assert list(tmp_path.iterdir()) == []
