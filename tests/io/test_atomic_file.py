"""A file that exists is whole; one process changes it at a time."""

from pathlib import Path

import pytest

from simple_spk.io.atomic_file import atomic_write, lock_file, write_json


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
