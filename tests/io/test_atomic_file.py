"""A file that exists is whole; one process changes it at a time."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simple_spk.io import atomic_file
from simple_spk.io.atomic_file import LOCK, atomic_write, lock_file, lock_folder, write_json

ROOT = Path(__file__).parents[2]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as partial:
        partial.write_text("new, in part")
        raise KeyboardInterrupt
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("file", "old")]


def test_plain_data_become_json(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "file.json", {"a": [1, 2.5, None]})
    assert (tmp_path / "new" / "file.json").read_bytes().startswith(b'{\n  "a": [')


@pytest.mark.parametrize(
    "shared, refused", [((False, False), True), ((True, False), True), ((True, True), False)]
)
def test_only_shared_locks_are_shared(
    tmp_path: Path, shared: tuple[bool, bool], refused: bool
) -> None:
    with (tmp_path / "lock").open("a") as first, (tmp_path / "lock").open("a") as second:
        lock_file(first, shared=shared[0])
        if refused:
            with pytest.raises(BlockingIOError, match="somebody is at work"):
                lock_file(second, "somebody is at work", shared[1])
            first.close()
        lock_file(second, "somebody is at work", shared[1])


def test_the_holder_of_a_folder_is_named_and_may_remove_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with lock_folder(folder, "at work"):
        holder = f"process {os.getpid()} on {socket.gethostname()} is at work in {folder}"
        with (
            pytest.raises(BlockingIOError, match=re.escape(holder)),
            lock_folder(folder, "at work"),
        ):
            pass
        shutil.rmtree(folder)
        with lock_folder(folder, "at work"):  # a new folder, which nobody holds
            assert (folder / LOCK).is_file()


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder removes the folder between this process's open and its lock."""
    removed: list[str] = []

    def lock_late(*arguments: Any) -> None:
        if not removed:
            removed.append("once")
            shutil.rmtree(tmp_path / "folder")
        lock_file(*arguments)

    monkeypatch.setattr(atomic_file, "lock_file", lock_late)
    with lock_folder(tmp_path / "folder", "at work"):
        monkeypatch.undo()
        with pytest.raises(BlockingIOError), lock_folder(tmp_path / "folder", "at work"):
            pass


def test_a_killed_process_holds_a_folder_no_longer_than_its_children_live(tmp_path: Path) -> None:
    """A data worker inherits the lock, and ends some seconds after its process was killed."""
    script = (
        "import os, sys, time\n"
        "from simple_spk.io.atomic_file import lock_folder\n"
        "with lock_folder(sys.argv[1], 'at work'):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(1.0)\n"
        "    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
    with (
        pytest.raises(BlockingIOError),
        (tmp_path / LOCK).open("rb") as file,
    ):
        lock_file(file, "held by the child")
    with lock_folder(tmp_path, "at work"):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()


def test_a_file_that_another_writer_took_for_a_dead_ones_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finds it between its creation and its lock."""
    removed: list[str] = []

    def lock_late(file: Any) -> None:
        if not removed:
            removed.append(file.name)
            os.unlink(file.name)
        lock_file(file)

    monkeypatch.setattr(atomic_file, "lock_file", lock_late)
    write_json(tmp_path / "file.json", [1])
    assert len(removed) == 1 and [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=rf"^\[Errno 28\] full: '{tmp_path}/file'$"):  # noqa: SIM117
        with atomic_write(tmp_path / "file"):
            raise OSError(28, "full")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match=rf": '{tmp_path}/folder'$"):
        write_json(tmp_path / "folder", [1])  # cannot be replaced


def test_a_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(atomic_file, "fcntl", None)  # as on Windows
    with lock_folder(tmp_path, "at work"), lock_folder(tmp_path, "at work"):
        write_json(tmp_path / "file.json", [1])
    assert "cannot be locked on this system" in caplog.text


WRITER = """
import sys
from simple_spk.io.atomic_file import atomic_write
letter, path = sys.argv[1:]
for number in range(200):
    with atomic_write(path, durable=False) as partial, partial.open("wb") as file:
        for _ in range(50):  # a pause between pieces lets the others in
            file.write(letter.encode() * 10_000)
            file.flush()
"""


def test_two_writers_of_one_file_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"c" * 500_000)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, letter, path], cwd=ROOT)
        for letter in ("a", "b")
    ]
    read, torn = set(), 0
    while any(writer.poll() is None for writer in writers):
        content = path.read_bytes()
        read.add(content[:1])
        torn += content != content[:1] * 500_000
    assert torn == 0
    assert [writer.returncode for writer in writers] == [0, 0]
    assert {b"a", b"b"} <= read
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
