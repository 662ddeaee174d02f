"""Laws of the file of voices: appended records, transactions, keys that are made again."""

import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest

from simple_spk.inference.voice_stores import key_matrix
from simple_spk.inference.voice_stores.voice import Voice
from simple_spk.inference.voice_stores.voice_file import VoiceFile

FORK = multiprocessing.get_context("fork")  # no connection is open between transactions


def voice(seed: int, recordings: int = 1) -> Voice:
    random = np.random.default_rng(seed)
    return Voice(random.normal(size=8).astype(np.float32), recordings, 1.5 * recordings)


def lifted(embeddings: np.ndarray) -> np.ndarray:
    """The lift of the generalized inner product."""
    return np.concatenate([embeddings, np.linalg.norm(embeddings, axis=1, keepdims=True)], 1)


def opened(path: Path) -> VoiceFile:
    """The file of a model."""
    return VoiceFile(path, "this model", lifted, create=True)


def best(store: VoiceFile, seed: int, count: int = 3) -> list[str]:
    """The names of the highest scores for a voice, which are those of a plain loop."""
    query = lifted(voice(seed).embedding[None])
    (hits,) = store.search(query, count)
    scores = {name: float(query[0] @ lifted(one.template[None])[0]) for name, one in store.each()}
    assert hits.names == sorted(scores, key=lambda name: -scores[name])[:count]
    assert hits.total == len(scores)
    return hits.names


def test_several_open_files_see_each_others_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = opened(tmp_path / "new" / "voices"), opened(tmp_path / "new" / "voices")
    assert not (tmp_path / "new").exists() and len(first) == 0 and list(second) == []
    monkeypatch.setattr(key_matrix, "FEWEST_ROWS", 4)
    for number in range(20):
        (first, second)[number % 2].add(f"voice {number}", voice(number))
        assert best(second, number) == best(first, number)
    first.remove("voice 7")
    assert "voice 7" not in second and "voice 7" not in best(second, 7, 19)
    second.rename("voice 3", "Eve")
    assert "Eve" in best(first, 3, 19)
    assert list(first)[:5] == ["voice 0", "voice 1", "voice 2", "Eve", "voice 4"]


def test_a_voice_costs_one_record_whatever_their_number(tmp_path: Path) -> None:
    """What an enrollment writes does not grow with the file."""
    sizes = []
    for count in (10, 3000):
        path = tmp_path / str(count)
        store = opened(path)
        store.extend((f"voice {number}", voice(number)) for number in range(count))
        before = [np.frombuffer(file.read_bytes(), np.uint8) for file in (path, keys_of(path))]
        store.add("Ann", voice(1))
        after = [np.frombuffer(file.read_bytes(), np.uint8) for file in (path, keys_of(path))]
        sizes.append(
            sum(
                int((new[: len(old)] != old[: len(new)]).sum()) + np.count_nonzero(new[len(old) :])
                for old, new in zip(before, after, strict=True)
            )
        )
    assert sizes[1] < 2 * sizes[0] + 4096


def keys_of(path: Path) -> Path:
    return path.with_name(path.name + ".keys")


@pytest.mark.parametrize("damage", ["absent", "cut", "zeros", "noise", "others", "text"])
def test_keys_that_are_missing_or_wrong_are_made_again(damage: str, tmp_path: Path) -> None:
    path, keys = tmp_path / "voices", tmp_path / "voices.keys"
    store = opened(path)
    store.extend((f"voice {number}", voice(number)) for number in range(100))
    store.remove("voice 50")
    expected = {seed: best(store, seed) for seed in range(0, 100, 9)}
    whole = keys.read_bytes()
    match damage:
        case "absent":
            keys.unlink()
        case "cut":
            keys.write_bytes(whole[:6000])
        case "zeros":
            keys.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
        case "noise":
            keys.write_bytes(whole[:4096] + np.random.default_rng(0).bytes(len(whole) - 4096))
        case "others":
            other = opened(tmp_path / "other")
            other.extend((f"voice {number}", voice(-number - 1 + 1000)) for number in range(200))
            keys.write_bytes((tmp_path / "other.keys").read_bytes())
        case "text":
            keys.write_text("no keys")
    for one in (opened(path), store):
        assert {seed: best(one, seed) for seed in expected} == expected
    assert keys.read_bytes()[4096:][: 99 * 16] == whole[4096:][: 99 * 16]


def test_removed_voices_leave_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path / "voices")
    for number in range(5):
        store.add(f"voice {number}", voice(number))
    secret = voice(2).embedding
    key = key_matrix.encoded(lifted(secret[None])).tobytes()
    parts = {"voices": (secret.tobytes(), b"voice 2"), "voices.keys": (key, key[:8])}
    assert {path.name for path in tmp_path.iterdir()} == {*parts}
    assert all(part in (tmp_path / file).read_bytes() for file in parts for part in parts[file])
    store.remove("voice 2")
    for file, hidden in parts.items():
        assert not any(part in (tmp_path / file).read_bytes() for part in hidden)
    size = (tmp_path / "voices.keys").stat().st_size
    for _ in range(5):  # their room is used again
        store.add("Zoe", voice(3))
        store.remove("Zoe")
    assert (tmp_path / "voices.keys").stat().st_size == size


def test_a_damaged_record_is_named_and_can_be_removed(tmp_path: Path) -> None:
    store = opened(tmp_path / "voices")
    for name in ("Ann", "Bob", "Cid"):
        store.add(name, voice(len(name) + ord(name[0])))
    for change in (
        "embedding = zeroblob(32)",
        "embedding = 'text'",
        "measures = x'00'",
        "seconds = 1e300",
        "seconds = NULL",
        "recordings = recordings + 1",
        "checksum = 0",
    ):
        before = (tmp_path / "voices").read_bytes()
        with sqlite3.connect(tmp_path / "voices") as db:
            db.execute(f"UPDATE voices SET {change} WHERE name = 'Bob'")
        db.close()
        with pytest.raises(ValueError, match="record of 'Bob' is damaged: remove that voice"):
            store["Bob"]
        with pytest.raises(ValueError, match="record of 'Bob' is damaged"):
            best(store, 1)
        with pytest.raises(ValueError, match="record of 'Bob' is damaged"):
            list(store)
        (tmp_path / "voices").write_bytes(before)
    with sqlite3.connect(tmp_path / "voices") as db:
        db.execute("UPDATE voices SET checksum = 0 WHERE name = 'Bob'")
    db.close()
    store.remove("Bob")
    assert list(store) == ["Ann", "Cid"] and "Ann" in best(store, 1)


def test_other_databases_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "voices"
    for script in (
        "CREATE TABLE people (name TEXT)",
        "CREATE VIEW voices AS SELECT 1",
        "PRAGMA user_version = 1",
    ):
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as db:
            db.executescript(script)
        db.close()
        with pytest.raises(ValueError, match="is not a file of enrolled voices"):
            VoiceFile(path, "this model")
    path.unlink()
    store = opened(path)
    store.add("Ann", voice(0))
    for change in (
        "UPDATE store SET slots = 1000000000000",
        "UPDATE store SET voices = -1",
        "UPDATE store SET dimension = NULL",
        "UPDATE store SET identity = 'x'",
        "UPDATE store SET format = 'simple_spk voices 3'",
        "DELETE FROM store",
        "CREATE TRIGGER more AFTER INSERT ON voices BEGIN DELETE FROM voices; END",
    ):
        before = path.read_bytes()
        with sqlite3.connect(path) as db:
            db.executescript(change)
        db.close()
        with pytest.raises(ValueError, match="is not a file of enrolled voices"):
            opened(path)
        path.write_bytes(before)


def test_a_place_that_cannot_be_written_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "voices"
    store = opened(path)
    store.extend((f"voice {number}", voice(number)) for number in range(20))
    expected = best(store, 3)
    keys_of(path).unlink()
    tmp_path.chmod(0o500)
    path.chmod(0o400)
    try:
        if os.access(path, os.W_OK):
            pytest.skip("this user may write everything")
        reader = opened(path)
        assert best(reader, 3) == expected
        with pytest.raises(PermissionError):
            reader.add("Ann", voice(0))
    finally:
        tmp_path.chmod(0o700)


def enroll_in_process(number: int, path: str) -> None:
    """One of several processes that enroll voices of their own, and of a common name."""
    for step in range(5):
        opened(Path(path)).add(f"voice {number} {step}", voice(10 * number + step))
        opened(Path(path)).add("everybody", voice(step))


def test_processes_that_enroll_at_once_lose_no_voice(tmp_path: Path) -> None:
    path = tmp_path / "new" / "voices"
    processes = [FORK.Process(target=enroll_in_process, args=(n, str(path))) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    store = opened(path)
    expected = {f"voice {n} {step}" for n in range(3) for step in range(5)} | {"everybody"}
    assert set(store) == expected and len(store) == 16
    assert store["everybody"].recordings == 15
    best(store, 12, 16)


def enroll_for_ever(path: str, done: str) -> None:
    """A process that enrolls until it is killed, and notes what it has enrolled."""
    with open(done, "w", encoding="utf-8") as file:
        for step in range(10**6):
            opened(Path(path)).add(f"voice {step}", voice(step))
            file.write(f"{step}\n")
            file.flush()


def test_a_killed_process_loses_at_most_the_voice_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "voices"
    for attempt in range(4):
        path.unlink(missing_ok=True)
        done = tmp_path / "done"
        done.write_text("")
        process = FORK.Process(target=enroll_for_ever, args=(str(path), str(done)))
        process.start()
        while done.read_text().count("\n") < 5 + attempt:
            time.sleep(0.01)
        time.sleep(0.003 * attempt)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        noted = done.read_text().count("\n")
        store = opened(path)
        assert len(store) in (noted, noted + 1)
        assert list(store) == [f"voice {step}" for step in range(len(store))]
        for step in range(noted):
            assert np.array_equal(store[f"voice {step}"].embedding, voice(step).embedding)
        store.add("Ann", voice(1234))
        assert "Ann" in best(store, 1234, len(store))


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path / "voices")
    for number, name in enumerate(("Ann", "Bob")):
        store.add(name, voice(number))
    before = (tmp_path / "voices").read_bytes()
    with pytest.raises(ValueError, match="nobody is enrolled as 'Zoe'; known: Ann, Bob"):
        store.remove("Ann", "Zoe")
    with pytest.raises(ValueError, match="'Bob' is enrolled, too"):
        store.rename("Ann", "Bob")
    with pytest.raises(ValueError, match="of 3 numbers, the voices enrolled so far of 8"):
        store.extend([("Dan", voice(3)), ("Eve", Voice(np.ones(3, np.float32), 1, 1.0))])
    with pytest.raises(ValueError, match="needs a name"):
        store.add(" ", voice(2))
    with pytest.raises(KeyError):
        store["Zoe"]
    assert (tmp_path / "voices").read_bytes() == before


def test_a_file_of_another_model_is_refused_whenever_it_appears(tmp_path: Path) -> None:
    early = VoiceFile(tmp_path / "voices", "another model", create=True)
    opened(tmp_path / "voices").add("Ann", voice(0))
    with pytest.raises(ValueError, match="voices that another model enrolled"):
        early.add("Bob", voice(1))
    assert VoiceFile(tmp_path / "voices").fingerprint == "this model"
