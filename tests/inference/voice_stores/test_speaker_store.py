"""Laws of enrolled voices: means of recordings, in a file that belongs to one model."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

from simple_spk.inference.extractor import Extractor
from simple_spk.inference.voice_stores import key_matrix, speaker_store
from simple_spk.inference.voice_stores import voice as voice_module
from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.inference.voice_stores.speaker_store import SpeakerStore
from simple_spk.inference.voice_stores.voice import Voice, VoiceStore
from simple_spk.inference.voice_stores.voice_file import VoiceFile
from tests.inference.voice_stores.test_voice_file import voice


@pytest.fixture
def voices() -> SpeakerStore:
    found = SpeakerStore("this model")
    for number, name in enumerate(("Ann", "Bjørn", "李")):
        found.add(name, voice(number, number + 1))
    return found


def test_recordings_of_a_known_name_join_its_others_in_any_portions() -> None:
    parts = [voice(seed) for seed in range(5)]
    expected = np.mean([part.embedding for part in parts], axis=0)
    for portions in ([1, 1, 1, 1, 1], [3, 2], [1, 4]):
        found = SpeakerStore("x")
        start = 0
        for size in portions:
            some = parts[start : start + size]
            mean = np.mean([part.embedding for part in some], axis=0)
            found.add("Ann", Voice(mean, size, 1.5 * size))
            start += size
        assert (found["Ann"].recordings, found["Ann"].seconds) == (5, 7.5)
        np.testing.assert_allclose(found["Ann"].embedding, expected, rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(
    script=st.lists(
        st.tuples(st.sampled_from(["add", "remove", "rename"]), st.integers(0, 9)), max_size=40
    )
)
def test_a_store_is_a_dictionary(script: list[tuple[str, int]]) -> None:
    """In memory and in a file, beside a plain dictionary; scores are those of lifted embeddings
    after any history, and snapshots stay."""
    with tempfile.TemporaryDirectory() as folder:
        memory = SpeakerStore("x", doubled)
        follow_script(memory, script)
        follow_script(VoiceFile(Path(folder, "voices"), "x", doubled, create=True), script)


def doubled(embeddings: np.ndarray) -> np.ndarray:
    """A lift."""
    return 2 * embeddings


def follow_script(store: VoiceStore, script: list[tuple[str, int]]) -> None:
    """Change a store and a dictionary alike."""
    plain: dict[str, Voice] = {}
    shown = []
    query = voice(99).embedding
    for step, (action, number) in enumerate(script):
        name, other = f"voice {number}", f"voice {(number + 1) % 10}"
        if action == "add":
            new = voice(step)
            store.add(name, new)
            plain[name] = plain[name].joined(new) if name in plain else new
        elif action == "remove" and {name, other} <= set(plain):
            store.remove(name, other)
            del plain[name], plain[other]
        elif action == "rename" and name in plain and other not in plain:
            store.rename(name, other)
            plain = {other if one == name else one: value for one, value in plain.items()}
        for hits in store.search(query[None], 3) if len(store) else ():
            scores = {one: 2 * float(query @ value.template) for one, value in plain.items()}
            assert hits.names == sorted(scores, key=lambda one: -scores[one])[:3]
            np.testing.assert_allclose(
                hits.scores, sorted(scores.values(), reverse=True)[:3], rtol=1e-4, atol=1e-5
            )
            assert hits.total == len(plain) and not np.isnan(hits.quality["length"]).any()
        if isinstance(store, SpeakerStore):
            shown.append((store.snapshot(), list(plain), list(plain.values())))
    for snapshot, names, values in shown:
        assert snapshot.names == names and len(snapshot) == len(names)
        for row, value in enumerate(values):
            assert np.array_equal(snapshot.embeddings[row], value.embedding)
            assert np.array_equal(snapshot.keys[row], 2 * value.template)
    assert list(store) == list(plain) and len(store) == len(plain)
    for name, expected in plain.items():
        assert store[name][1:3] == expected[1:3]
        assert np.array_equal(store[name].known_measures, expected.known_measures)


@pytest.mark.parametrize("at_once", [1, 7, 100, 2**22])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_search_is_a_sort(
    kind: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a plain loop, with many equal scores; in blocks of any size."""
    monkeypatch.setattr(voice_module, "SCORES_AT_ONCE", at_once)
    monkeypatch.setattr(key_matrix, "ROWS_AT_ONCE", at_once)
    random = np.random.default_rng(0)
    store: VoiceStore = SpeakerStore("x")
    if kind == "file":
        store = VoiceFile(tmp_path / "voices", "x", lambda keys: keys, create=True)
    for number in range(50):
        embedding = random.integers(-2, 3, 4).astype(np.float32)
        store.add(f"voice {number}", Voice(embedding, 1, 1.0))
    queries = random.integers(-2, 3, (40, 4)).astype(np.float32)
    keys = [(name, one.template) for name, one in store.each()]
    for top in (None, 1, 5, 50, 1000):
        for query, hits in zip(queries, store.search(queries, top), strict=True):
            scores = {name: float(query @ key) for name, key in keys}
            order = sorted(scores, key=lambda name: -scores[name])[:top]
            assert hits.scores.tolist() == pytest.approx([scores[name] for name in order])
            assert hits.names == order
            assert hits.total == 50


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_is_saved_is_loaded(count: int, voices: SpeakerStore, tmp_path: Path) -> None:
    for name in list(voices)[count:]:
        voices.remove(name)
    voices.save(tmp_path / "voices")
    found = open_voices(tmp_path / "voices", "this model")
    assert list(found) == list(voices) and found.fingerprint == "this model"
    for name, expected in voices.items():
        assert np.array_equal(found[name].embedding, expected.embedding)
        assert found[name][1:3] == expected[1:3]
        assert np.array_equal(found[name].measures, expected.measures)
    assert [path.name for path in tmp_path.iterdir()] == ["voices"]


def test_voices_of_another_model_are_refused(voices: SpeakerStore, tmp_path: Path) -> None:
    voices.save(tmp_path / "voices")
    with pytest.raises(ValueError, match="voices that another model enrolled"):
        open_voices(tmp_path / "voices", "another model")


def test_names_must_be_names(voices: SpeakerStore) -> None:
    for wrong in ("", "  ", "x" * 201, 3):
        with pytest.raises(ValueError, match="needs a name"):
            voices.add(wrong, voice(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"enrolled as 'Zoe'; known: Ann, Bjørn"):
        voices.remove("Zoe")
    with pytest.raises(ValueError, match="enrolled as 'Zoe'"):
        voices.remove("Ann", "Zoe")
    with pytest.raises(ValueError, match="enrolled as 'Zoe'"):
        voices.rename("Zoe", "Eve")
    with pytest.raises(ValueError, match="'Ann' is enrolled, too"):
        voices.rename("李", "Ann")
    assert list(voices) == ["Ann", "Bjørn", "李"]


def write_old(path: Path, voices: VoiceStore) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A file as 0.1 wrote it, with measures; returns its arrays and metadata."""
    kept = [one for _, one in voices.each()]
    arrays = {
        "embeddings": np.stack([one.embedding for one in kept]),
        "recordings": np.array([one.recordings for one in kept]),
        "seconds": np.array([one.seconds for one in kept]),
        "measures": np.stack([one.known_measures for one in kept]),
    }
    metadata = {"format": speaker_store.FORMAT, "fingerprint": voices.fingerprint}
    metadata["names"] = json.dumps(list(voices))
    save_file(arrays, path, metadata)
    return arrays, metadata


def test_files_that_are_none_are_named(voices: SpeakerStore, tmp_path: Path) -> None:
    path = tmp_path / "voices"
    with pytest.raises(FileNotFoundError, match="no enrolled voices"):
        SpeakerStore.load(path, "this model")
    arrays, metadata = write_old(path, voices)
    whole = path.read_bytes()
    broken = arrays["embeddings"].copy()
    broken[0, 0] = np.nan
    for changed, described in (
        (arrays | {"embeddings": broken}, metadata),
        (arrays | {"embeddings": arrays["embeddings"][:2]}, metadata),
        (arrays | {"embeddings": arrays["embeddings"].astype(np.float64)}, metadata),
        (arrays | {"recordings": arrays["recordings"] * 0}, metadata),
        (arrays | {"recordings": arrays["recordings"] * 0 + (2**63 - 1)}, metadata),
        (arrays | {"seconds": arrays["seconds"] * 0 + 1e308}, metadata),
        (arrays | {"embeddings": arrays["embeddings"] * 0 + 3e38}, metadata),
        ({"embeddings": arrays["embeddings"]}, metadata),
        (arrays, metadata | {"names": "["}),
        (arrays, metadata | {"names": "[" * 100_000}),
        (arrays, metadata | {"names": json.dumps(["Ann"] * 3)}),
        (arrays, metadata | {"names": json.dumps([1, 2, 3])}),
        (arrays, metadata | {"names": json.dumps(["Ann", "", "Bo"])}),
        (arrays, metadata | {"format": "other"}),
        (arrays, None),
    ):
        save_file(changed, path, described)
        with pytest.raises(ValueError, match=r"is not a file of enrolled voices"):
            SpeakerStore.load(path, "this model")
    brief = {name: torch.from_numpy(array).bfloat16() for name, array in arrays.items()}
    save_tensors(brief, path, metadata)
    with pytest.raises(ValueError, match=r"is not a file of enrolled voices"):
        SpeakerStore.load(path, "this model")
    for content in (b"", b"pickle", whole[:50], whole[:-10]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"is not a file of enrolled voices"):
            SpeakerStore.load(path, "this model")


def test_an_extractor_goes_on_with_saved_voices(
    model_folder: Path, spoken: list[Path], tmp_path: Path
) -> None:
    first, second = Extractor.load(model_folder), Extractor.load(model_folder)
    first.enroll("Ann", spoken[0])
    first.enroll("Ann", [spoken[1]])
    first.enroll("Bob", spoken[2:4], force=True)
    first.voices.save(tmp_path / "voices")
    second.load_voices(tmp_path / "voices")
    assert second.identify(spoken[4]).candidates == first.identify(spoken[4]).candidates
    together = Extractor.load(model_folder)
    together.enroll("Ann", spoken[:2])
    np.testing.assert_allclose(
        together.voices["Ann"].embedding, first.voices["Ann"].embedding, rtol=1e-4, atol=1e-5
    )


def test_voices_of_another_dimension_are_named(
    model_folder: Path, spoken: list[Path], tmp_path: Path
) -> None:
    extractor = Extractor.load(model_folder)
    strangers = SpeakerStore(extractor.fingerprint)
    strangers.add("Ann", voice(0))
    strangers.save(tmp_path / "voices")
    extractor.load_voices(tmp_path / "voices")
    with pytest.raises(ValueError, match="of 8 numbers, this model makes 16: enroll them again"):
        extractor.identify(spoken[0])
    for name in ("Ann", "Bob"):
        with pytest.raises(ValueError, match="of 8 numbers, this model makes 16"):
            extractor.enroll(name, spoken[0])
    with pytest.raises(ValueError, match="of 3 numbers, the voices enrolled so far of 8"):
        strangers.add("Bob", Voice(np.ones(3, np.float32), 1, 1.0))


def test_a_template_is_as_long_as_its_recordings_and_keeps_their_quality() -> None:
    measures = [np.array([np.log(2), 0.0, 30.0, 0.0, 3.0]), np.array([np.log(6), 0.0, 10, 1, 5.0])]
    first = Voice(np.array([3.0, 0.0], np.float32), 1, 2.5, measures[0])
    second = Voice(np.array([0.0, 5.0], np.float32), 1, 7.0, measures[1])
    both = first.joined(second)
    np.testing.assert_allclose(both.known_measures, [np.log(8.0), np.log(2.0), 20.0, 0.5, 4.0])
    assert np.linalg.norm(both.template) == pytest.approx(4.0)
    assert np.linalg.norm(both.embedding) < 4.0
    np.testing.assert_allclose(both.joined(first).template, first.joined(both).template, rtol=1e-6)


def test_voices_of_earlier_versions_are_read_and_converted(
    voices: SpeakerStore, tmp_path: Path
) -> None:
    path = tmp_path / "voices"
    arrays, metadata = write_old(path, voices)
    for absent in (set(), {"measures"}):
        kept = {name: array for name, array in arrays.items() if name not in absent}
        save_file(kept, path, metadata)
        before = path.read_bytes()
        read = open_voices(path, "this model")
        assert isinstance(read, SpeakerStore) and path.read_bytes() == before
        changed = open_voices(path, change=True)
        changed.add("Zoe", voice(9))
        assert list(VoiceFile(path, "this model")) == [*voices, "Zoe"]
        for measures, (name, expected) in zip(arrays["measures"], voices.items(), strict=True):
            for found in (read[name], changed[name]):
                assert np.array_equal(found.embedding, expected.embedding)
                assert found[1:3] == expected[1:3]
                np.testing.assert_allclose(found.known_measures, measures)
