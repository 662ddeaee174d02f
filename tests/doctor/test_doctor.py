"""Laws of simple-spk doctor: a whole copy is called whole, and what is wrong is named exactly."""

import argparse
import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simple_spk.cli.commands import doctor
from simple_spk.data.manifest import write_manifest
from simple_spk.data.trials import read_trials
from simple_spk.data.voxceleb_lists import TOTALS, part_of
from simple_spk.doctor.corpus import compare_names, voxceleb_extent
from simple_spk.doctor.corpus_files import read_utterance_list
from simple_spk.doctor.finding import Finding, Status, as_text
from simple_spk.doctor.trials import check_trials

Capture = pytest.CaptureFixture[str]
SAMPLE_RATE = 16000
# Three speakers of VoxCeleb2 dev, two videos each, two utterances each.
NAMES = [
    f"{speaker}/{video}/{number:05d}"
    for speaker in ("id00012", "id00015", "id00016")
    for video in ("21Uxsk56VDQ", "_raOc3-IRsw")
    for number in (1, 70)
]


class Toy:
    """A small copy of VoxCeleb2, its list, and what doctor says of it."""

    def __init__(self, folder: Path, noisy_tone: Callable[..., NDArray[np.float32]]) -> None:
        self.tree = folder / "dev" / "flac"
        self.list = folder / "list.txt"
        self.waveforms = {
            name: noisy_tone(1.1 + 0.07 * number, 90.0 + 9 * number, number)
            for number, name in enumerate(NAMES)
        }
        for name in NAMES:
            self.write(name, self.waveforms[name])
        self.write_list(NAMES)

    def path(self, name: str) -> Path:
        return self.tree / f"{name}.flac"

    def write(self, name: str, waveform: NDArray[np.float32]) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(self.path(name), waveform, SAMPLE_RATE)

    def write_list(self, names: list[str]) -> None:
        seconds = {name: len(waveform) / SAMPLE_RATE for name, waveform in self.waveforms.items()}
        self.list.write_text("".join(f"{name} {seconds[name]:.3f}\n" for name in names))


@pytest.fixture
def toy(tmp_path: Path, noisy_tone: Callable[..., NDArray[np.float32]]) -> Toy:
    return Toy(tmp_path, noisy_tone)


def run(*arguments: object) -> int:
    """The exit code of the command with these arguments."""
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    words = [str(argument) for argument in ("--processes", 1, *arguments)]
    return doctor.run(parser.parse_args(words))


def named(capsys: Capture, *arguments: object) -> dict[str, list[str]]:
    """The names that doctor gives to each kind of problem, without explanations behind them."""
    capsys.readouterr()
    code = run(*arguments, "--json")
    answer = json.loads(capsys.readouterr().out)
    problems = [finding for finding in answer["findings"] if finding["status"] == "PROBLEM"]
    assert code == int(bool(problems))
    assert answer["well"] == (not problems)
    return {
        finding["kind"]: [name.split(" (")[0] for name in finding["names"]] for finding in problems
    }


# ---- copies of a corpus -------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [("--names-only",), (), ("--deep",), ("--processes", 2)])
def test_a_complete_copy_is_called_complete(
    toy: Toy, depth: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    """From whichever folder above the tree."""
    for folder in (tmp_path, tmp_path / "dev", toy.tree):
        assert named(capsys, "--voxceleb2", folder, "--utterances", toy.list, *depth) == {}
    assert run("--voxceleb2", tmp_path, "--utterances", toy.list, *depth) == 0
    words = capsys.readouterr().out
    assert "missing: 0 files: all 12 are there, complete" in words
    assert words.endswith("no problems\n")


@pytest.mark.parametrize("depth", [(), ("--deep",)])
def test_exactly_what_is_wrong_is_named(
    toy: Toy, depth: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    """Three files removed and one truncated: these four, with their kind, and no other."""
    removed, truncated = [NAMES[1], NAMES[5], NAMES[11]], NAMES[6]
    for name in removed:
        toy.path(name).unlink()
    content = toy.path(truncated).read_bytes()
    toy.path(truncated).write_bytes(content[: len(content) * 2 // 3])
    expected = {"missing": removed, "unreadable": [truncated]}
    arguments = ("--voxceleb2", tmp_path, "--utterances", toy.list, *depth)
    assert named(capsys, *arguments) == expected
    assert run(*arguments, "--list", tmp_path / "wrong.txt") == 1
    words = capsys.readouterr().out
    assert all(name in words for name in (*removed, truncated))
    assert words.endswith("2 problems\n")
    lines = (tmp_path / "wrong.txt").read_text().splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        *(f"missing\t{name}" for name in removed),
        f"unreadable\t{truncated}",
    ]


def test_every_kind_of_bad_file_has_its_name(
    toy: Toy,
    tmp_path: Path,
    noisy_tone: Callable[..., NDArray[np.float32]],
    capsys: Capture,
) -> None:
    listed = [name for name in NAMES if name != NAMES[0]]
    toy.write_list(listed)  # the first is surplus
    toy.path(NAMES[1]).write_text("not audio")
    toy.path(NAMES[2]).write_bytes(b"")
    toy.write(NAMES[3], toy.waveforms[NAMES[3]][:16000])  # by half a second
    toy.write(NAMES[4], np.zeros_like(toy.waveforms[NAMES[4]]))
    toy.write(NAMES[5], np.clip(20.0 * toy.waveforms[NAMES[5]], -1.0, 1.0))
    toy.path(NAMES[7]).write_bytes(toy.path(NAMES[6]).read_bytes())  # one speaker
    toy.path(NAMES[9]).write_bytes(toy.path(NAMES[3]).read_bytes())  # two speakers, and too short
    toy.path(NAMES[10]).unlink()
    arguments = ("--voxceleb2", tmp_path, "--utterances", toy.list, "--shortest", 1.01)
    quick = {
        "missing": [NAMES[10]],
        "surplus": [NAMES[0]],
        "unreadable": [NAMES[1], NAMES[2]],
        "short": [NAMES[3], NAMES[9]],
        "too short": [NAMES[3], NAMES[9]],
    }
    assert named(capsys, *arguments) == quick
    deep = {
        "silent": [NAMES[4]],
        "equal, two speakers": [f"{NAMES[3]} = {NAMES[9]}"],
    }
    assert named(capsys, *arguments, "--deep") == quick | deep
    run(*arguments, "--deep", "--json")
    notes = {
        finding["kind"]: finding["names"]
        for finding in json.loads(capsys.readouterr().out)["findings"]
        if finding["status"] == "NOTE" and finding["names"]
    }
    assert notes == {
        "clipped": [NAMES[5]],
        "equal, one speaker": [f"{NAMES[6]} = {NAMES[7]}"],
    }


def test_the_original_m4a_tree_is_checked_too(toy: Toy, tmp_path: Path, capsys: Capture) -> None:
    for name, waveform in toy.waveforms.items():
        path = tmp_path / "original" / "aac" / f"{name}.m4a"
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w", format="mp4") as container:
            stream = container.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
            frame = av.AudioFrame.from_ndarray(waveform[np.newaxis], format="fltp", layout="mono")
            frame.sample_rate = SAMPLE_RATE
            for packet in [*stream.encode(frame), *stream.encode(None)]:
                container.mux(packet)
    arguments = ("--voxceleb2", tmp_path / "original", "--utterances", toy.list)
    assert named(capsys, *arguments) == {}
    path.write_bytes(path.read_bytes()[:-3000])
    assert named(capsys, *arguments) == {"unreadable": [NAMES[-1]]}
    # Together with the converted tree, which form is meant is not clear.
    assert "several forms" in named(capsys, "--voxceleb2", tmp_path, "--utterances", toy.list)


def test_without_a_list_the_known_totals_decide(toy: Toy, tmp_path: Path, capsys: Capture) -> None:
    assert named(capsys, "--voxceleb2", tmp_path) == {"VoxCeleb2 dev": []}
    run("--voxceleb2", tmp_path)
    words = capsys.readouterr().out
    assert "3 of 5,994 speakers, 12 of 1,092,009 utterances" in words


def test_parts_of_the_corpus_that_the_list_leaves_out_are_not_surplus(
    toy: Toy, tmp_path: Path, capsys: Capture
) -> None:
    toy.write("id00017/video/00001", toy.waveforms[NAMES[0]])  # of VoxCeleb2 test
    toy.write("id10001/video/00001", toy.waveforms[NAMES[0]])  # of VoxCeleb1
    assert named(capsys, "--voxceleb2", tmp_path, "--utterances", toy.list) == {}
    toy.write("id00018/video/00001", toy.waveforms[NAMES[0]])
    expected = {"surplus": ["id00018/video/00001"]}
    assert named(capsys, "--voxceleb2", tmp_path, "--utterances", toy.list) == expected


def test_a_link_that_leads_in_a_circle(toy: Toy, tmp_path: Path, capsys: Capture) -> None:
    (toy.tree / "id00012/loop").symlink_to(toy.tree)
    assert named(capsys, "--voxceleb2", tmp_path, "--utterances", toy.list) == {}


def test_a_list_of_one_corpus_serves_a_check_of_both(
    toy: Toy, tmp_path: Path, capsys: Capture
) -> None:
    """The other corpus is held to its totals, as without a list."""
    first = tmp_path / "first/wav/id10001/video/00001.wav"
    first.parent.mkdir(parents=True)
    soundfile.write(first, toy.waveforms[NAMES[0]], SAMPLE_RATE)
    places = ("--voxceleb1", tmp_path / "first", "--voxceleb2", toy.tree)
    assert named(capsys, *places, "--utterances", toy.list) == {"VoxCeleb1 dev": []}


def test_a_list_alone_is_nothing_to_check(toy: Toy) -> None:
    with pytest.raises(ValueError, match="--voxceleb2"):
        run("--utterances", toy.list)


@pytest.mark.parametrize("option", [("--shortest", "nan"), ("--processes", 0)])
def test_options_without_sense_are_refused(toy: Toy, option: tuple[str, object]) -> None:
    with pytest.raises(ValueError, match=option[0]):
        run("--voxceleb2", toy.tree, *option)


def test_a_manifest_is_held_to_its_word(toy: Toy, tmp_path: Path, capsys: Capture) -> None:
    manifest = tmp_path / "dev" / "train.csv"
    seconds = [len(toy.waveforms[name]) / SAMPLE_RATE for name in NAMES]
    seconds[2] += 0.5
    ids = [f"{name}.wav" for name in NAMES]
    wavs = [f"flac/{name}.flac" for name in NAMES]
    write_manifest(manifest, ids, wavs, seconds, [name[:7] for name in NAMES])
    toy.path(NAMES[4]).unlink()
    expected = {"missing": [NAMES[4]], "short": [NAMES[2]]}
    assert named(capsys, "--manifest", manifest) == expected
    toy.write_list(NAMES[1:])
    expected["surplus"] = [NAMES[0]]
    assert named(capsys, "--manifest", manifest, "--utterances", toy.list) == expected


def test_speakers_of_equal_files_are_those_of_the_manifest(
    recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    """Whatever the files are called."""
    manifest, content = tmp_path / "m.csv", recordings[0].read_bytes()
    names = ["x", "y", "z"]
    for name in names:
        (tmp_path / f"{name}.wav").write_bytes(content)
    wavs = [f"{name}.wav" for name in names]
    arguments = ("--manifest", manifest, "--deep", "--shortest", 0.1)
    write_manifest(manifest, names, wavs, [0.5] * 3, ["ann"] * 3)
    assert named(capsys, *arguments) == {}
    write_manifest(manifest, names, wavs, [0.5] * 3, ["ann", "ann", "bob"])
    assert named(capsys, *arguments) == {"equal, two speakers": ["x = y = z"]}


def test_a_folder_of_any_shape_is_compared_with_a_list(
    audio_folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("a0.wav\na1\nb0\nb1\nc0\nc1\n")
    arguments = ("--audio-folder", audio_folder, "--utterances", listed, "--shortest", 0.1)
    assert named(capsys, *arguments) == {}
    listed.write_text("a0.wav\na1\nb0\nb1\nc0\nc1\nd0\n")
    assert named(capsys, *arguments) == {"missing": ["d0"]}


@pytest.mark.parametrize(
    ("content", "word"), [(None, "no folder"), ("x.txt", "no audio file"), ("a/b.wav", "a/b.wav")]
)
def test_a_folder_without_the_corpus_is_named(
    tmp_path: Path, content: str | None, word: str
) -> None:
    folder = tmp_path / "corpus"
    if content is not None:
        (folder / content).parent.mkdir(parents=True)
        (folder / content).write_text("")
    with pytest.raises((ValueError, OSError), match=word) as error:
        run("--voxceleb1", folder)
    assert str(folder) in str(error.value)


# ---- lists --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.randoms(use_true_random=False))
def test_comparing_is_the_difference_of_sets(
    there: set[int], listed: set[int], order: random.Random
) -> None:
    names, expected = [f"s/{n}" for n in there], [f"s/{n}" for n in listed]
    order.shuffle(names)
    missing, surplus = compare_names("", names, set(expected))
    assert set(missing.names) == {f"s/{n}" for n in listed - there}
    assert set(surplus.names) == {f"s/{n}" for n in there - listed}
    for finding in (missing, surplus):
        assert (finding.status is Status.OK) == (not finding.names)


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_a_list_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"list{suffix}"
    text = b"a/b/1.m4a 2.5\na/b/2 0.25\n"
    path.write_bytes(gzip.compress(text) if suffix == ".txt.gz" else text)
    assert list(read_utterance_list(path).items()) == [("a/b/1", 2.5), ("a/b/2", 0.25)]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a 1.0\nb\n", "line 2"),
        ("a 1.0\nb one\n", "line 2"),
        ("a 1.0\nb -1\n", "line 2"),
        ("a 1 2\n", "line 1"),
        ("a 1.0\nb 1.0\na.wav 2.0\n", "a 2 times"),
        ("", "empty"),
    ],
)
def test_a_malformed_list_is_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "list.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=word) as error:
        read_utterance_list(path)
    assert str(path) in str(error.value)


@pytest.mark.skipif(
    "SIMPLE_SPK_DATA" not in os.environ, reason="SIMPLE_SPK_DATA names no folder of real data"
)
def test_the_whole_of_voxceleb2_is_compared() -> None:
    """The real list has the totals that we know; of a million names the missing are found."""
    path = Path(os.environ["SIMPLE_SPK_DATA"]) / "voxceleb" / "vox2_dev_duration.txt.gz"
    usable = read_utterance_list(path)
    names = list(usable)
    totals = TOTALS["VoxCeleb2 dev"]
    assert len(names) == totals.utterances
    assert sum(usable.values()) / 3600 == pytest.approx(totals.hours, abs=0.1)
    assert {part_of(speaker) for speaker in {name[:7] for name in names}} == {"VoxCeleb2 dev"}
    extent, _ = voxceleb_extent("", "VoxCeleb2", names, usable, has_list=False)
    assert extent.status is Status.OK
    missing, surplus = compare_names("", [*names[7:], "id00012/new/1"], set(names))
    assert missing.names == tuple(sorted(names[:7]))
    assert surplus.names == ("id00012/new/1",)


def test_parts_of_voxceleb_have_their_speakers() -> None:
    """All numbers of VoxCeleb1 are speakers; two test speakers of VoxCeleb2 have no recordings."""
    first = [part_of(f"id{number}") for number in range(10001, 11252)]
    for part in ("VoxCeleb1 dev", "VoxCeleb1 test"):
        assert first.count(part) == TOTALS[part].speakers
    second = [part_of(f"id{number:05d}") for number in range(1, 9300)]
    assert second.count("VoxCeleb2 test") == TOTALS["VoxCeleb2 test"].speakers + 2


# ---- trials -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, unique=True), st.data()
)
def test_trials_are_lost_if_a_recording_is(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The slow way, trial by trial, names the same lines."""
    path = tmp_path_factory.mktemp("trials") / "trials.txt"
    path.write_text("".join(f"r{x}.wav r{y}.wav\n" for x, y in pairs))
    missing = data.draw(st.sets(st.integers(0, 9)))
    findings = check_trials(read_trials(path), lambda name: int(name[1]) not in missing)
    lost = [
        f"line {line}: r{x}.wav r{y}.wav"
        for line, (x, y) in enumerate(pairs, start=1)
        if x in missing or y in missing
    ]
    by_kind = {finding.kind: finding for finding in findings}
    assert list(by_kind["trials"].names) == lost
    assert (by_kind["trials"].status is Status.PROBLEM) == bool(lost)


def test_trials_find_their_recordings_wherever_they_are(
    toy: Toy, tmp_path: Path, audio_folder: Path, capsys: Capture
) -> None:
    manifest, trials = tmp_path / "m.csv", tmp_path / "trials.txt"
    ids = [f"{name}.wav" for name in NAMES]
    seconds = [1.0] * len(NAMES)
    wavs = [str(toy.path(name)) for name in NAMES]
    write_manifest(manifest, ids, wavs, seconds, [name[:7] for name in NAMES])
    trials.write_text(f"1 {ids[0]} {ids[1]}\n0 {ids[2]} {ids[3]}\n0 {ids[0]} a0.wav\n")
    found = named(capsys, "--manifest", manifest, "--trials", trials)
    assert found == {"recordings": ["a0.wav"], "trials": [f"line 3: {ids[0]} a0.wav"]}
    places = ("--manifest", manifest, "--audio-folder", audio_folder)
    assert named(capsys, *places, "--trials", trials) == {}
    toy.path(NAMES[2]).write_text("not audio")
    found = named(capsys, *places, "--trials", trials)
    assert found["trials"] == [f"line 2: {ids[2]} {ids[3]}"]


def test_recordings_of_a_folder_must_be_readable_to_be_scored(
    audio_folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A file that is there but cut off, or empty, cannot be scored either."""
    folder, trials = tmp_path / "audio", tmp_path / "trials.txt"
    shutil.copytree(audio_folder, folder)
    trials.write_text("1 a0.wav a1.wav\n0 a0.wav b0.wav\n")
    places = ("--audio-folder", folder, "--trials", trials)
    assert named(capsys, *places) == {}
    content = (folder / "a1.wav").read_bytes()
    for cut in (b"", content[: len(content) // 2]):
        (folder / "a1.wav").write_bytes(cut)
        found = named(capsys, *places)
        assert found == {"recordings": ["a1.wav"], "trials": ["line 1: a0.wav a1.wav"]}
    assert named(capsys, *places, "--names-only") == {}


def test_names_that_are_not_utf_8_are_named_too(tmp_path: Path, capsys: Capture) -> None:
    folder, listed = tmp_path / "audio", tmp_path / "names.txt"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff.wav")).write_bytes(b"")
    assert run("--audio-folder", folder, "--list", listed) == 1
    assert "\\xff" in capsys.readouterr().out
    assert listed.read_bytes().startswith(b"unreadable\t\xff ")


def test_findings_keep_their_order_and_their_kind() -> None:
    """The words for people show the first few names, and how many more there are."""
    finding = Finding("data", "missing", Status.PROBLEM, "5 files", "fetch them", tuple("abcde"))
    lines = as_text([finding]).splitlines()
    assert lines[0] == "data"
    assert "PROBLEM" in lines[1]
    assert lines[2].strip() == "a, b, c, and 2 more"
    assert lines[3].strip() == "-> fetch them"
    assert lines[-1] == "1 problem"
