"""Laws of enrolled voices: means of recordings, in a file that belongs to one model."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors

from simple_spk.inference import speaker_store
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.speaker_store import SpeakerStore, Voice


def voice(seed: int, recordings: int = 1) -> Voice:
    random = np.random.default_rng(seed)
    return Voice(random.normal(size=8).astype(np.float32), recordings, 1.5 * recordings)


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
def test_a_store_is_a_dictionary_and_snapshots_stay(script: list[tuple[str, int]]) -> None:
    """Beside a plain dictionary; keys are lifted embeddings after any history."""
    store, plain = SpeakerStore("x", lambda embeddings: 2 * embeddings), {}
    shown = []
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
        now = store.snapshot()
        shown.append((now, list(plain), list(plain.values())))
    for snapshot, names, values in shown:
        assert snapshot.names == names and len(snapshot) == len(names)
        for row, value in enumerate(values):
            assert np.array_equal(snapshot.embeddings[row], value.embedding)
            assert np.array_equal(snapshot.keys[row], 2 * value.template)
    assert list(store) == list(plain) and len(store) == len(plain)
    for name, expected in plain.items():
        assert store[name][1:3] == expected[1:3]
        assert np.array_equal(store[name].known_measures, expected.known_measures)


@pytest.mark.parametrize("at_once", [1, 100, 2**22])
def test_a_search_is_a_sort(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a plain loop, with many equal scores; in blocks of any size."""
    monkeypatch.setattr(speaker_store, "SCORES_AT_ONCE", at_once)
    random = np.random.default_rng(0)
    store = SpeakerStore("x")
    for number in range(50):
        embedding = random.integers(-2, 3, 4).astype(np.float32)
        store.add(f"voice {number}", Voice(embedding, 1, 1.0))
    voices = store.snapshot()
    queries = random.integers(-2, 3, (7, 4)).astype(np.float32)
    bonus = random.integers(0, 3, 50)
    for rank in (None, lambda place, scores: scores + place * bonus):
        for top in (None, 1, 5, 50, 1000):
            hits = voices.search(queries, top, rank)
            for place, query in enumerate(queries):
                scores = [float(query @ key) for key in voices.keys]
                values = np.array(scores) + (0 if rank is None else place * bonus)
                order = sorted(range(50), key=lambda row: (-values[row], row))[:top]
                assert hits.rows[place].tolist() == order
                assert hits.scores[place].tolist() == [scores[row] for row in order]
                assert hits.values[place].tolist() == values[order].tolist()
                assert hits.log_totals[place] == pytest.approx(np.log(np.exp(values).sum()))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_is_saved_is_loaded(count: int, voices: SpeakerStore, tmp_path: Path) -> None:
    for name in list(voices)[count:]:
        voices.remove(name)
    voices.save(tmp_path / "voices")
    found = SpeakerStore.load(tmp_path / "voices", "this model")
    assert list(found) == list(voices)
    for name, expected in voices.items():
        assert np.array_equal(found[name].embedding, expected.embedding)
        assert found[name][1:3] == expected[1:3]
        assert np.array_equal(found[name].measures, expected.measures)
    assert [path.name for path in tmp_path.iterdir()] == ["voices"]


def test_voices_of_another_model_are_refused(voices: SpeakerStore, tmp_path: Path) -> None:
    voices.save(tmp_path / "voices")
    with pytest.raises(ValueError, match="voices that another model enrolled"):
        SpeakerStore.load(tmp_path / "voices", "another model")


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


def test_files_that_are_none_are_named(voices: SpeakerStore, tmp_path: Path) -> None:
    path = tmp_path / "voices"
    with pytest.raises(FileNotFoundError, match="no enrolled voices"):
        SpeakerStore.load(path, "this model")
    voices.save(path)
    whole = path.read_bytes()
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(path)
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


def enroll_in_process(number: int, path: str) -> None:
    """One of several processes that each enroll somebody, slowly."""
    with SpeakerStore.changing(path, "this model") as voices:
        time.sleep(0.1)
        voices.add(f"voice {number}", voice(number))


def test_processes_that_enroll_at_once_lose_no_voice(tmp_path: Path) -> None:
    path = tmp_path / "new" / "voices"
    torch.multiprocessing.spawn(enroll_in_process, args=(str(path),), nprocs=3)
    assert set(SpeakerStore.load(path, "this model")) == {f"voice {n}" for n in range(3)}


def test_a_change_that_fails_changes_nothing(voices: SpeakerStore, tmp_path: Path) -> None:
    path = tmp_path / "voices"
    voices.save(path)
    before = path.read_bytes()
    with (
        pytest.raises(ValueError, match="nobody is enrolled as 'Zoe'"),
        SpeakerStore.changing(path, "this model") as changed,
    ):
        changed.remove("Ann")
        changed.remove("Zoe")
    assert path.read_bytes() == before


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


def test_voices_of_0_1_0_load_without_measures(voices: SpeakerStore, tmp_path: Path) -> None:
    path = tmp_path / "voices"
    voices.save(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(path)
    del arrays["measures"]
    save_file(arrays, path, metadata)
    found = SpeakerStore.load(path, "this model")
    for name, expected in voices.items():
        assert np.array_equal(found[name].embedding, expected.embedding)
        assert found[name].known_measures[-1] == pytest.approx(np.linalg.norm(expected.embedding))
