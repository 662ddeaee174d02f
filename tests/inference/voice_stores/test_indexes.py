"""Laws of the stores with indexes: they answer like the file of voices."""

import socket
from pathlib import Path

import numpy as np
import pytest

from simple_spk.inference.extractor import Extractor
from simple_spk.inference.voice_stores import faiss_store
from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.inference.voice_stores.voice import Voice, VoiceStore
from simple_spk.inference.voice_stores.voice_file import VoiceFile
from tests.command_line import Capture, run
from tests.inference.voice_stores.test_voice_file import lifted, voice


def opened(kind: str, folder: Path, model: str = "this model") -> VoiceStore:
    """A store; skips without its package."""
    if kind != "file":
        package = {"faiss": "faiss", "qdrant": "qdrant_client"}[kind]
        pytest.importorskip(package, reason=f"{package} is not installed")
    address = {"file": "{}", "faiss": "faiss:{}", "qdrant": "qdrant:{}"}[kind]
    return open_voices(address.format(folder / kind), model, lifted, create=True)


def check_against_a_loop(store: VoiceStore, expected: dict[str, Voice]) -> None:
    """The best three, exactly, and their number."""
    assert len(store) == len(expected) and set(store) == set(expected)
    queries = lifted(np.stack([voice(seed).embedding for seed in range(40)]))
    keys = {name: lifted(one.template[None])[0] for name, one in expected.items()}
    for query, hits in zip(queries, store.search(queries, 3), strict=True):
        scores = {name: float(query @ key) for name, key in keys.items()}
        best = sorted(scores, key=lambda name: -scores[name])[:3]
        assert hits.names == best and hits.total == len(expected)
        np.testing.assert_allclose(hits.scores, [scores[name] for name in best], rtol=1e-4)


@pytest.mark.parametrize("kind", ["file", "faiss", "qdrant"])
def test_stores_are_dictionaries_that_can_be_searched(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    plain = {f"voice {number}": voice(number, 1 + number % 3) for number in range(60)}
    store.extend(plain.items())
    check_against_a_loop(store, plain)
    plain["voice 3"] = plain["voice 3"].joined(voice(100))
    assert store.add("voice 3", voice(100)).recordings == plain["voice 3"].recordings
    plain["Ann"] = voice(101)
    store.add("Ann", plain["Ann"])
    store.remove("voice 5", "voice 6")
    del plain["voice 5"], plain["voice 6"]
    store.rename("voice 7", "Zoë")
    plain["Zoë"] = plain.pop("voice 7")
    check_against_a_loop(store, plain)
    for name, expected in plain.items():
        assert np.array_equal(store[name].embedding, expected.embedding)
        assert store[name][1:3] == expected[1:3]
        np.testing.assert_allclose(store[name].known_measures, expected.known_measures)
    for wrong, message in (
        (lambda: store.remove("Ann", "voice 5"), "nobody is enrolled as 'voice 5'"),
        (lambda: store.rename("voice 5", "x"), "nobody is enrolled as 'voice 5'"),
        (lambda: store.rename("Ann", "Zoë"), "'Zoë' is enrolled, too"),
        (lambda: store.add("", voice(0)), "needs a name"),
        (lambda: store.add("x", Voice(np.ones(3, np.float32), 1, 1.0)), "so far of 8"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    assert "Ann" in store and "x" not in store and "voice 5" not in store
    with pytest.raises(ValueError, match="voices that another model enrolled"):
        opened(kind, tmp_path, "another model")


@pytest.mark.parametrize("kind", faiss_store.INDEX_KINDS)
def test_an_index_is_exact_for_what_is_new_and_recalls_the_rest(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened("faiss", tmp_path)
    assert isinstance(store, faiss_store.FaissStore)
    with pytest.raises(ValueError, match="has no voices to index"):
        store.build(kind)
    plain = {f"voice {number}": voice(number) for number in range(700)}
    store.extend(plain.items())
    assert store.build(kind) == 700
    queries = lifted(np.stack([voice(seed).embedding for seed in range(700)]))
    exact = open_voices(store.path, "this model", lifted)
    pairs = list(zip(exact.search(queries, 1), store.search(queries, 30), strict=True))
    recall = np.mean([one.names[0] == other.names[0] for one, other in pairs])
    assert recall == 1.0 if kind == "flat" else recall > 0.8
    for number in range(700, 720):  # into the rows of removed ones, too
        store.remove(f"voice {number - 700}")
        store.add(f"voice {number}", voice(number))
    new = lifted(np.stack([voice(seed).embedding for seed in range(700, 720)]))
    for one, other in zip(exact.search(new, 1), store.search(new, 30), strict=True):
        assert other.total == 700 and not {f"voice {n}" for n in range(20)} & set(other.names)
        if int(one.names[0].split()[1]) >= 700:
            assert one.names[0] == other.names[0]
    assert store.build("flat") == 700
    for one, other in zip(exact.search(new, 5), store.search(new, 5), strict=True):
        assert one.names == other.names
    index = store.index_path
    content = bytearray(index.read_bytes())
    content[len(content) // 2] ^= 1
    for damaged, message in (
        (bytes(content), "is damaged: build it"),
        (b"text", "is not an index"),
    ):
        index.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            list(store.search(new, 5))
    index.unlink()
    for one, other in zip(exact.search(new, 5), store.search(new, 5), strict=True):
        assert one.names == other.names
    assert "simple-spk voices index makes one" in caplog.text
    with pytest.raises(ValueError, match="an index is one of pq, flat"):
        store.build("tree")


@pytest.mark.parametrize("kind", faiss_store.INDEX_KINDS)
@pytest.mark.parametrize("count", [1, 20])
def test_an_index_of_few_voices_has_them_all(
    kind: str, count: int, tmp_path: Path, capfd: Capture
) -> None:
    """Fewer than the codes of pq, and as many as FAISS warns of."""
    store = opened("faiss", tmp_path)
    assert isinstance(store, faiss_store.FaissStore)
    store.extend((f"voice {number}", voice(number)) for number in range(count))
    assert store.build(kind) == count
    queries = lifted(np.stack([voice(seed).embedding for seed in range(count)]))
    for number, hits in enumerate(store.search(queries, count)):
        assert f"voice {number}" in hits.names and hits.total == count
    assert capfd.readouterr() == ("", "")


def test_qdrant_that_is_not_there_is_named() -> None:
    pytest.importorskip("qdrant_client", reason="qdrant_client is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"qdrant:http://127.0.0.1:{free.getsockname()[1]}/people"
    with pytest.raises(OSError, match=f"{address} does not answer"):
        open_voices(address, "this model", lifted)
    with pytest.raises(FileNotFoundError, match="no enrolled voices at qdrant:"):
        open_voices("qdrant::memory:", "this model", lifted)


def test_a_damaged_point_is_named(tmp_path: Path) -> None:
    store = opened("qdrant", tmp_path)
    store.add("Ann", voice(0))
    for change in ({"embedding": "%"}, {"seconds": -1.0}, {"measures": [1.0]}, {"name": 3}):
        before = store._retrieved(["Ann"])[0]
        number = next(iter(store._client.scroll("voices")[0])).id
        store._client.set_payload("voices", change, [number])
        with pytest.raises(ValueError, match="is damaged"):
            list(store.each())
        store._client.set_payload("voices", before, [number])
    assert list(store) == ["Ann"]


@pytest.mark.parametrize("path", ["./x", "a//x", "a/./x"])
def test_a_path_is_a_plain_file_however_it_is_written(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert type(open_voices(path, "this model", lifted, create=True)) is VoiceFile


@pytest.mark.parametrize("package, address", [("faiss", "faiss:x"), ("qdrant_client", "qdrant:x")])
def test_a_missing_package_is_named(
    package: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ValueError, match=r"pip install -e '\.\["):
        open_voices(address, "this model", lifted, create=True)


@pytest.mark.parametrize("kind", ["faiss", "qdrant"])
def test_commands_know_all_stores(
    kind: str, calibrated_folder: Path, spoken: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    package = {"faiss": "faiss", "qdrant": "qdrant_client"}[kind]
    pytest.importorskip(package, reason=f"{package} is not installed")
    address, model = f"{kind}:{tmp_path / 'voices'}", ("--model", calibrated_folder)
    file = tmp_path / "file"
    for name, path in zip(("Ann", "Bob"), spoken[::2], strict=False):
        assert run("enroll", file, name, path, *model) == 0
    assert run("voices", "copy", file, address, *model) == 0
    assert f"2 voices copied; 2 voices in {address}" in capsys.readouterr().out
    if kind == "faiss":
        assert run("voices", "index", address, "--kind", "flat", *model) == 0
        assert "2 voices in" in capsys.readouterr().out
        assert run("voices", "index", file, *model) == 1
        assert "write faiss:FILE" in capsys.readouterr().err
    answers = []
    for one in (file, address):
        run("identify", one, spoken[1], *model, "--json")
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert run("enroll", address, "Cid", spoken[4], *model) == 0
    assert run("voices", "remove", address, "Bob") == 0
    extractor = Extractor.load(calibrated_folder)
    assert set(extractor.load_voices(address)) == {"Ann", "Cid"}
