"""Laws of conversion: killed anywhere and started again, it makes the same bytes."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from simple_spk.corpora import conversion
from simple_spk.corpora.conversion import ConversionStoppedError, Settings, convert, run_lock
from simple_spk.corpora.inspection import AudioFile
from simple_spk.corpora.journal import Journal, Outcome
from simple_spk.data.decoding import decode
from tools.write_m4a import write_m4a

FAULTS = {
    "b/empty.m4a": "empty",
    "b/header.m4a": "header only",
    "b/cut.m4a": "truncated",
    "b/text.m4a": "not audio",
    "b/silent.m4a": "silent",
    "b/short.m4a": "too short",
    "b/folder.m4a": "unreadable",
}
GOOD_FILES = 54

# A run of its own, to be killed: python run.py SOURCE TARGET WORKERS [LARGEST_FILE_BYTES]
SCRIPT = """
import os, resource, sys
from pathlib import Path
from simple_spk.corpora.conversion import Settings, convert
from simple_spk.corpora.inspection import AudioFile

def main():
    source, target, workers, *limit = sys.argv[1:]
    for most in map(int, limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    names = sorted(str(p.relative_to(source)) for p in Path(source).rglob("*.m4a"))
    statuses = [(name, os.stat(Path(source, name))) for name in names]
    sources = [AudioFile(name, s.st_size, s.st_mtime_ns) for name, s in statuses]
    target = Path(target)
    convert(Path(source), sources, target / "flac", target / "journal", Settings(), int(workers))

if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except OSError as error:
        sys.exit(f"error: {error}")
"""


def listed(folder: Path) -> list[AudioFile]:
    """The sources in a folder, as a caller of convert lists them."""
    paths = sorted(folder.rglob("*.m4a"))
    statuses = ((str(path.relative_to(folder)), path.stat()) for path in paths)
    return [AudioFile(name, status.st_size, status.st_mtime_ns) for name, status in statuses]


def run(source: Path, target: Path, workers: int = 1, **options: bool) -> dict[str, Outcome]:
    """Convert in this process; outcomes by name."""
    folders = (target / "flac", target / "journal")
    outcomes = convert(source, listed(source), *folders, Settings(), workers, **options)
    assert [outcome.name for outcome in outcomes] == [each.name for each in listed(source)]
    return {outcome.name: outcome for outcome in outcomes}


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def sources(
    noisy_tone: Callable[..., NDArray[np.float32]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of good recordings of some seconds, and of one of each bad kind."""
    folder = tmp_path_factory.mktemp("sources")
    for number in range(6):
        path = folder / "a" / f"{number}.m4a"
        write_m4a(path, noisy_tone(6.0 + number, 100.0 + 20.0 * number, number), index_first=True)
        for copy in range(1, GOOD_FILES // 6):
            (folder / "a" / f"{number}-{copy}.m4a").write_bytes(path.read_bytes())
    content = (folder / "a" / "0.m4a").read_bytes()
    (folder / "b").mkdir()
    (folder / "b/empty.m4a").write_bytes(b"")
    (folder / "b/header.m4a").write_bytes(content[: content.index(b"mdat") + 4])
    (folder / "b/cut.m4a").write_bytes(content[: 2 * len(content) // 3])
    (folder / "b/text.m4a").write_text("404 not found\n" * 99)
    (folder / "b/folder.m4a").mkdir()
    write_m4a(folder / "b/silent.m4a", np.zeros(32000, np.float32))
    write_m4a(folder / "b/short.m4a", noisy_tone(0.2))
    return folder


@pytest.fixture(scope="module")
def undisturbed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an uninterrupted run with one worker makes of the sources."""
    target = tmp_path_factory.mktemp("undisturbed")
    run(sources, target)
    return target


@pytest.fixture
def few(sources: Path, tmp_path: Path) -> Path:
    """A folder of three good sources and a bad one, to be changed."""
    (tmp_path / "few").mkdir()
    for name in ("a/0.m4a", "a/1.m4a", "a/2.m4a", "b/cut.m4a"):
        (tmp_path / "few" / Path(name).name).write_bytes((sources / name).read_bytes())
    return tmp_path / "few"


class Run:
    """A conversion in processes of its own, which can be stopped by signals."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        script = folder / "run.py"
        script.write_text(SCRIPT)
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": root},
            start_new_session=True,
            # where the tests run in the background, Ctrl-C is ignored, which would be passed on
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.journal = Path(str(arguments[1])) / "journal" / "journal.jsonl"

    def lines(self) -> int:
        """How far the journal is."""
        return self.journal.read_bytes().count(b"\n") if self.journal.exists() else 0

    def wait_for_lines(self, count: int) -> None:
        """Wait until the journal has so many lines, or the run is over."""
        while self.lines() < count and self.process.poll() is None:
            time.sleep(0.002)

    def end(self) -> tuple[int, str]:
        """The exit code and the last line on stderr, once the run is over."""
        _, errors = self.process.communicate()
        assert "Traceback" not in errors, errors
        return self.process.returncode, (errors.splitlines() or [""])[-1]


# ---- what is made -------------------------------------------------------------------------------


def test_a_target_holds_what_its_source_decodes_to(sources: Path, undisturbed: Path) -> None:
    found = {path.stem for path in (undisturbed / "flac/a").iterdir()}
    assert found == {path.stem for path in (sources / "a").iterdir()}
    for number in range(6):
        samples, rate = soundfile.read(undisturbed / f"flac/a/{number}.flac", dtype="int16")
        expected = np.rint(decode(sources / f"a/{number}.m4a") * 32768.0)
        assert rate == 16000
        assert np.array_equal(samples, np.clip(expected, -32768, 32767))


def test_bad_sources_are_named_by_their_faults(sources: Path, undisturbed: Path) -> None:
    before = contents(undisturbed)
    outcomes = run(sources, undisturbed, workers=2)
    assert {name: each.fault for name, each in outcomes.items() if each.fault} == FAULTS
    assert not (undisturbed / "flac/b").exists()
    assert contents(undisturbed) == before


def test_killed_and_started_again(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    """All files, the journal among them, are those of a run that was never disturbed.

    Either all processes are killed, or the workers are left behind by their parent.
    """
    target = tmp_path / "target"
    interrupted = 0
    for lines, kill in ((4, os.killpg), (15, os.kill), (30, os.killpg)):
        victim = Run(tmp_path, sources, target, 2)
        victim.wait_for_lines(lines)
        if victim.process.poll() is None:
            kill(victim.process.pid, signal.SIGKILL)
        interrupted += victim.end()[0] == -signal.SIGKILL and victim.lines() < GOOD_FILES
    assert interrupted > 0, "no kill came in time: the sources are too short to test anything"
    assert Run(tmp_path, sources, target, 2).end()[0] == 0
    assert contents(target) == contents(undisturbed)


def test_interrupted_and_started_again(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of a terminal, and one of them answers."""
    target = tmp_path / "target"
    victim = Run(tmp_path, sources, target, 2)
    victim.wait_for_lines(5)
    os.killpg(victim.process.pid, signal.SIGINT)
    assert victim.end() == (1, "stopped")
    assert Run(tmp_path, sources, target, 1).end()[0] == 0
    assert contents(target) == contents(undisturbed)


def test_a_worker_that_dies_is_noticed(few: Path, tmp_path: Path) -> None:
    def kill_a_worker() -> None:
        while not multiprocessing.active_children():
            time.sleep(0.001)
        multiprocessing.active_children()[0].kill()

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    with pytest.raises(ConversionStoppedError, match="a worker process died"):
        run(few, tmp_path / "target", workers=2)
    killer.join()
    outcomes = run(few, tmp_path / "target")
    assert [each.fault for each in outcomes.values()] == ["", "", "", "truncated"]


def test_a_disk_that_takes_no_more_stops_the_run(
    sources: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """A limit on the size of files stands for a full disk: no source is to blame."""
    target = tmp_path / "target"
    sizes = sorted(path.stat().st_size for path in (undisturbed / "flac").rglob("*.flac"))
    code, message = Run(tmp_path, sources, target, 2, sizes[-1] - 1).end()
    assert code == 1
    assert message.startswith(f"error: cannot write {target}/flac/a/5")
    assert "File too large" in message
    assert not list(target.rglob("*.partial"))
    assert Run(tmp_path, sources, target, 2).end()[0] == 0
    assert contents(target) == contents(undisturbed)


def test_a_target_that_cannot_be_written(few: Path, tmp_path: Path) -> None:
    (tmp_path / "target/flac/2.flac").mkdir(parents=True)
    with pytest.raises(ConversionStoppedError, match=r"cannot write .*2\.flac \(Is a directory\)"):
        run(few, tmp_path / "target")
    (tmp_path / "target/flac/2.flac").rmdir()
    assert run(few, tmp_path / "target")["2.m4a"].fault == ""


def test_a_target_that_cannot_be_removed(few: Path, tmp_path: Path) -> None:
    """A bad source must not leave an old target behind."""
    (few / "2.m4a").write_bytes(b"")
    (tmp_path / "target/flac/2.flac").mkdir(parents=True)
    with pytest.raises(ConversionStoppedError, match=r"cannot remove .*2\.flac \(Is a directory\)"):
        run(few, tmp_path / "target")


# ---- what is done again -------------------------------------------------------------------------


def test_only_what_changed_is_done_again(few: Path, sources: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    first = run(few, target)
    flac = {number: target / f"flac/{number}.flac" for number in range(3)}
    before = contents(target / "flac")
    for path in flac.values():
        os.utime(path, ns=(1, 1))
    (few / "0.m4a").write_bytes((sources / "a/3.m4a").read_bytes())  # another recording
    flac[1].write_bytes(flac[1].read_bytes()[:-1])  # a shorter target
    second = run(few, target)
    assert second["1.m4a"] == first["1.m4a"]
    assert second["0.m4a"].samples != first["0.m4a"].samples
    assert [flac[number].stat().st_mtime_ns == 1 for number in range(3)] == [False, False, True]
    after = contents(target / "flac")
    assert after["0.flac"] != before.pop("0.flac")
    assert before.items() <= after.items()
    flac[2].unlink()
    run(few, target)
    assert contents(target / "flac") == after


def test_a_source_that_turns_bad_leaves_no_target(few: Path, tmp_path: Path) -> None:
    run(few, tmp_path / "target")
    (few / "1.m4a").write_bytes(b"")
    assert run(few, tmp_path / "target")["1.m4a"].fault == "empty"
    assert sorted(contents(tmp_path / "target/flac")) == ["0.flac", "2.flac"]


def test_bad_sources_are_tried_again_when_they_change_or_on_demand(
    few: Path, tmp_path: Path
) -> None:
    """A good recording with the size and the time of the bad one is only found on demand."""
    bad, good = few / "cut.m4a", (few / "0.m4a").read_bytes()
    bad.write_bytes(bytes(len(good)))
    status = bad.stat()
    assert run(few, tmp_path / "target")["cut.m4a"].fault == "not audio"
    bad.write_bytes(good)
    os.utime(bad, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run(few, tmp_path / "target")["cut.m4a"].fault == "not audio"
    assert run(few, tmp_path / "target", retry_faulty=True)["cut.m4a"].fault == ""
    bad.write_bytes(bytes(len(good)))
    assert run(few, tmp_path / "target")["cut.m4a"].fault == "not audio"


def test_sources_out_of_reach_are_always_tried_again(few: Path, tmp_path: Path) -> None:
    content = (few / "0.m4a").read_bytes()
    expected = listed(few)
    (few / "0.m4a").unlink()
    folders = (tmp_path / "target/flac", tmp_path / "target/journal")
    outcomes = convert(few, expected, *folders, Settings())
    assert outcomes[0].fault == "vanished"
    (few / "0.m4a").write_bytes(content)
    assert run(few, tmp_path / "target")["0.m4a"].fault == ""


# ---- one run at a time --------------------------------------------------------------------------


def test_a_second_run_is_refused(few: Path, tmp_path: Path) -> None:
    journal = tmp_path / "target/journal"
    journal.mkdir(parents=True)
    with (
        run_lock(journal),
        pytest.raises(BlockingIOError, match=r"process \d+ on .* is converting in "),
    ):
        run(few, tmp_path / "target")
    run(few, tmp_path / "target")


def test_a_run_waits_for_the_workers_of_a_killed_one(tmp_path: Path) -> None:
    code = (
        "import sys; from simple_spk.io.atomic_file import lock_file\n"
        "lock = open(sys.argv[1] + '/workers.lock', 'r+'); lock_file(lock, shared=True)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    (tmp_path / "workers.lock").touch()
    orphan = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert orphan.stdout is not None
    assert orphan.stdout.readline() == b"held\n"
    entered = threading.Event()

    def enter() -> None:
        with run_lock(tmp_path):
            entered.set()

    waiting = threading.Thread(target=enter)
    waiting.start()
    assert not entered.wait(0.2)
    orphan.communicate()
    waiting.join()
    assert entered.is_set()


# ---- the journal --------------------------------------------------------------------------------

OUTCOMES = [
    Outcome("a/1.m4a", 10, 11, 12, 13),
    Outcome("ü/\n2.m4a", 0, 5, fault="empty", details='has "0" bytes'),
    Outcome("a/3.m4a", 10**12, 2 * 10**18, 14, 15),
]


def test_a_journal_cut_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path, {"rate": 16000}, Outcome)
    for outcome in OUTCOMES:
        journal.append(outcome)
    journal.close()
    content = path.read_bytes()
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        whole_lines = content[:size].count(b"\n")
        taken_up = Journal(path, {"rate": 16000}, Outcome)
        assert list(taken_up.rows.values()) == OUTCOMES[: max(0, whole_lines - 1)]
        for outcome in OUTCOMES[max(0, whole_lines - 1) :]:
            taken_up.append(outcome)
        taken_up.close()
        assert path.read_bytes() == content


def test_a_damaged_line_costs_one_source(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path, {}, Outcome)
    for outcome in OUTCOMES:
        journal.append(outcome)
    journal.close()
    lines = path.read_bytes().split(b"\n")
    for damaged in (b"\0" * 40, b"", b"[1, 2]", b'{"a": 1}', b"\xff\xfe"):
        path.write_bytes(b"\n".join([*lines[:2], damaged, *lines[3:]]))
        taken_up = Journal(path, {}, Outcome)
        assert list(taken_up.rows.values()) == [OUTCOMES[0], OUTCOMES[2]]
        assert taken_up.unreadable_lines == 1
        taken_up.close()


def test_a_journal_of_other_settings_is_refused(few: Path, tmp_path: Path) -> None:
    run(few, tmp_path / "target")
    folders = (tmp_path / "target/flac", tmp_path / "target/journal")
    with pytest.raises(ValueError, match=r"journal\.jsonl .*another target"):
        convert(few, listed(few), *folders, Settings(sample_rate=8000))
    first = (tmp_path / "target/journal/journal.jsonl").read_text().splitlines()[0]
    assert json.loads(first) == {"audio_format": "flac", "sample_rate": 16000}


def test_a_journal_may_hold_more_settings(few: Path, tmp_path: Path) -> None:
    """As those of older versions do: their outcomes are taken up."""
    before = run(few, tmp_path / "target")
    path = tmp_path / "target/journal/journal.jsonl"
    first, *lines = path.read_text().splitlines(keepends=True)
    path.write_text(first.replace("}", ', "minimum_seconds": 0.5}') + "".join(lines))
    for flac in (tmp_path / "target/flac").iterdir():
        os.utime(flac, ns=(1, 1))
    assert run(few, tmp_path / "target") == before
    assert all(flac.stat().st_mtime_ns == 1 for flac in (tmp_path / "target/flac").iterdir())


def test_another_shortest_length_is_honored(few: Path, tmp_path: Path) -> None:
    """What an earlier run took or refused is judged by the limit of this one."""
    run(few, tmp_path / "target")
    folders = (tmp_path / "target/flac", tmp_path / "target/journal")
    outcomes = convert(few, listed(few), *folders, Settings(shortest_seconds=7.5))
    assert [each.fault for each in outcomes] == ["too short", "too short", "", "truncated"]
    assert sorted(contents(tmp_path / "target/flac")) == ["2.flac"]
    assert [each.fault for each in run(few, tmp_path / "target").values()][:3] == ["", "", ""]


def test_a_worker_that_cannot_open_its_lock_says_so(tmp_path):
    ours, theirs = multiprocessing.Pipe()
    conversion._work(theirs, conversion._Task(tmp_path, tmp_path, tmp_path / "gone", Settings()))
    answer = ours.recv()
    assert isinstance(answer, ConversionStoppedError)
    assert "workers.lock (No such file or directory)" in str(answer)
