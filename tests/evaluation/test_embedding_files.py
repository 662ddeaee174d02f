"""Laws of embeddings on disk: what is written is read, and nothing in a file is executed."""

import io
import pickle
import struct
import sys
from pathlib import Path

import kaldiio
import numpy as np
import pytest

from simple_spk.evaluation.embedding_files import Embeddings, read_embeddings, write_embeddings

IDS = ["id1/a.wav", "id1/b.wav", "話者/é.flac", "x" * 300, "-"]
EMBEDDINGS = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
SUFFIXES = ["npz", "safetensors", "ark"]


@pytest.mark.parametrize("suffix", [*SUFFIXES, "scp"])
def test_round_trip(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / f"e.{suffix}"
    write_embeddings(path.with_suffix(".ark") if suffix == "scp" else path, IDS, EMBEDDINGS)
    found = read_embeddings(path)
    assert found.ids == IDS
    assert found.matrix.dtype == np.float32
    assert np.array_equal(found.matrix, EMBEDDINGS)
    written = {file.name for file in path.parent.iterdir()}
    assert written == ({"e.ark", "e.scp"} if suffix in ("ark", "scp") else {path.name})


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_the_model_that_made_them_is_remembered(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"e.{suffix}"
    for origin in ("some model", None):
        write_embeddings(path, IDS, EMBEDDINGS, origin)
        assert read_embeddings(path).origin == origin


def test_rows_are_found_by_id_in_any_order_and_number(tmp_path: Path) -> None:
    embeddings = Embeddings(IDS, EMBEDDINGS)
    rows = [3, 0, 3, 4]
    assert np.array_equal(embeddings.of([IDS[row] for row in rows]), EMBEDDINGS[rows])
    assert embeddings.of([]).shape == (0, 7)
    assert embeddings.missing(["p", IDS[0], "q"]) == ["p", "q"]
    with pytest.raises(ValueError, match=r"2 of 3 recordings of l\.txt .*first: p, q\)"):
        embeddings.of(["p", IDS[0], "q"], Path("l.txt"))


@pytest.mark.parametrize("name", ["two words", "", "line\nbreak", "n\udcff.wav"])
def test_names_that_a_format_cannot_hold_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rename it"):
        write_embeddings(tmp_path / "e.ark", [name], EMBEDDINGS[:1])
    if "\n" in name:
        with pytest.raises(ValueError, match="line break"):
            write_embeddings(tmp_path / "e.safetensors", [name], EMBEDDINGS[:1])
    else:
        write_embeddings(tmp_path / "e.safetensors", [name], EMBEDDINGS[:1])
        assert read_embeddings(tmp_path / "e.safetensors").ids == [name]
    write_embeddings(tmp_path / "e.npz", [name], EMBEDDINGS[:1])
    assert read_embeddings(tmp_path / "e.npz").ids == [name]


@pytest.mark.parametrize("name", ["e.csv", "e.scp", "embeddings", "e.NPZ.txt"])
def test_a_name_of_another_format_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{name}: expected a name that ends in \.npz"):
        write_embeddings(tmp_path / name, IDS, EMBEDDINGS)
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"e\.npz"):
        read_embeddings(tmp_path / "e.npz")


class Payload:
    """Something whose unpickling leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("kind", ["in an array", "as the file"])
def test_a_pickle_is_refused_unopened(kind: str, tmp_path: Path) -> None:
    path, trace = tmp_path / "e.npz", tmp_path / "executed"
    if kind == "in an array":
        payload = np.array([Payload(trace)], dtype=object)
        np.savez(path, ids=payload, embeddings=EMBEDDINGS[:1])
    else:
        path.write_bytes(pickle.dumps(Payload(trace)))
    with pytest.raises(ValueError, match=r"e\.npz"):
        read_embeddings(path)
    assert not trace.exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_named(suffix: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / f"e.{suffix}"
    write_embeddings(path, IDS, EMBEDDINGS)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=rf"e\.{suffix}"):
        read_embeddings(path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    write_embeddings(path, IDS, EMBEDDINGS)
    content = bytearray(path.read_bytes())
    content[content.index(EMBEDDINGS.tobytes()) + 5] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"e\.npz"):
        read_embeddings(path)


def test_a_plain_array_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", EMBEDDINGS)
    with pytest.raises(ValueError, match=r"e\.npy"):
        read_embeddings(tmp_path / "e.npy")


@pytest.mark.parametrize(
    "arrays",
    [
        {"ids": np.array(IDS)},
        {"ids": np.array(IDS[:4]), "embeddings": EMBEDDINGS},
        {"ids": np.array(IDS), "embeddings": EMBEDDINGS[:, 0]},
        {"ids": np.array(IDS), "embeddings": np.where(EMBEDDINGS > 1, np.nan, EMBEDDINGS)},
        {"ids": np.array(IDS), "embeddings": EMBEDDINGS.astype(str)},
        {"ids": np.array([IDS[0]] * 5), "embeddings": EMBEDDINGS},
    ],
    ids=["no embeddings", "few ids", "one dimension", "not numbers", "text", "one id five times"],
)
def test_arrays_that_are_no_embeddings_are_named(arrays: dict, tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(ValueError, match=r"e\.npz"):
        read_embeddings(tmp_path / "e.npz")


# ---- Kaldi ---------------------------------------------------------------------------------------


def test_archives_of_kaldi_are_read_in_every_spelling(tmp_path: Path) -> None:
    vectors = dict(zip(IDS, EMBEDDINGS, strict=True))
    spellings = {
        "binary": {"array_dict": vectors},
        "text": {"array_dict": vectors, "text": True},
        "double": {"array_dict": {name: v.astype(np.float64) for name, v in vectors.items()}},
        "rows": {"array_dict": {name: v[None] for name, v in vectors.items()}},
    }
    for name, arguments in spellings.items():
        kaldiio.save_ark(str(tmp_path / f"{name}.ark"), **arguments)
        found = read_embeddings(tmp_path / f"{name}.ark")
        assert found.ids == IDS, name
        np.testing.assert_allclose(found.matrix, EMBEDDINGS, rtol=1e-5)


def test_archives_are_sought_from_here_and_beside_the_script_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, rows in (("here", EMBEDDINGS), ("there", -EMBEDDINGS)):
        (tmp_path / place).mkdir()
        write_embeddings(tmp_path / place / "e.ark", IDS, rows)
    script = tmp_path / "there" / "e.scp"
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ValueError, match=r"e\.scp, line 1: e\.ark lies both in "):
        read_embeddings(script)
    away = (tmp_path / "there" / "e.ark").rename(tmp_path / "away.ark")
    assert np.array_equal(read_embeddings(script).matrix, EMBEDDINGS)
    (tmp_path / "here" / "e.ark").unlink()
    away.rename(tmp_path / "there" / "e.ark")
    assert np.array_equal(read_embeddings(script).matrix, -EMBEDDINGS)
    (tmp_path / "there" / "e.ark").unlink()
    with pytest.raises(FileNotFoundError, match=r"e\.scp, line 1: 'e\.ark' does not exist"):
        read_embeddings(script)


@pytest.mark.parametrize(
    "entry",
    ["touch {trace} |", "touch {trace}|", "| touch {trace}", "{trace}.ark:5[0:3]", "", "  "],
)
def test_commands_and_ranges_in_script_files_are_refused(entry: str, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    write_embeddings(tmp_path / "e.ark", IDS, EMBEDDINGS)
    script = tmp_path / "e.scp"
    lines = script.read_text(encoding="utf-8").splitlines()
    lines[2] = f"name {entry.format(trace=trace)}"
    script.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"e\.scp, line 3: found"):
        read_embeddings(script)
    assert not trace.exists()


@pytest.mark.parametrize("script", [False, True])
def test_a_pickle_in_an_archive_is_refused_unopened(script: bool, tmp_path: Path) -> None:
    trace, path = tmp_path / "executed", tmp_path / "e.ark"
    path.write_bytes(b"name PKL" + pickle.dumps(Payload(trace)))
    if script:
        path = tmp_path / "e.scp"
        path.write_text(f"name {tmp_path / 'e.ark'}:5\n")
    with pytest.raises(ValueError, match="entry name is not a vector"):
        read_embeddings(path)
    assert not trace.exists()


def test_an_array_of_objects_in_an_archive_is_refused_unopened(tmp_path: Path) -> None:
    trace, path = tmp_path / "executed", tmp_path / "e.ark"
    buffer = io.BytesIO()
    np.save(buffer, np.array([Payload(trace)], dtype=object), allow_pickle=True)
    size = struct.pack("<BI", 4, buffer.tell())
    path.write_bytes(b"name NPY" + size + buffer.getvalue())
    with pytest.raises(ValueError, match="entry name is not a vector"):
        read_embeddings(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": EMBEDDINGS[0], "b": EMBEDDINGS[0, :3]}, r"b has shape \(3,\); expected \(7,\)"),
        ({"a": EMBEDDINGS}, r"a has shape \(5, 7\); expected one dimension"),
        ({"a": np.arange(7, dtype=np.int32)}, "holds int32; expected floats"),
        ({"a": EMBEDDINGS[0] + np.nan}, "not numbers"),
    ],
)
def test_archives_of_other_things_are_refused(arrays: dict, message: str, tmp_path: Path) -> None:
    kaldiio.save_ark(str(tmp_path / "e.ark"), arrays)
    with pytest.raises(ValueError, match=message):
        read_embeddings(tmp_path / "e.ark")


def test_without_kaldiio_the_way_to_get_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_embeddings(tmp_path / "e.ark", IDS, EMBEDDINGS)
    monkeypatch.setitem(sys.modules, "kaldiio", None)
    with pytest.raises(ValueError, match="pip install kaldiio"):
        read_embeddings(tmp_path / "e.ark")


def test_ids_may_be_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", ids=[name.encode() for name in IDS], embeddings=EMBEDDINGS)
    assert read_embeddings(tmp_path / "e.npz").ids == IDS


def test_no_damage_to_a_compressed_file_is_anything_but_named(tmp_path: Path) -> None:
    """Every byte in turn is changed: what is read all the same is what was written."""
    path = tmp_path / "e.npz"
    np.savez_compressed(path, ids=IDS, embeddings=EMBEDDINGS)
    whole = path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            found = read_embeddings(path)
        except ValueError as error:
            assert "e.npz" in str(error)
            refused += 1
        else:
            assert found.ids == IDS
            assert np.array_equal(found.matrix, EMBEDDINGS)
    assert refused > len(whole) / 2
