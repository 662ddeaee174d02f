"""Laws of embeddings on disk: what is written is read, and nothing in a file is executed."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from simple_spk.embeddings_file import read_embeddings, write_embeddings

IDS = ["id1/a.wav", "id1/b.wav", "話者/é.flac", "x" * 300, " "]
EMBEDDINGS = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "e.npz"
    write_embeddings(path, IDS, EMBEDDINGS)
    found = read_embeddings(path)
    assert list(found) == IDS
    for row, embedding in zip(EMBEDDINGS, found.values(), strict=True):
        assert embedding.dtype == np.float32
        assert np.array_equal(embedding, row)
    assert [file.name for file in path.parent.iterdir()] == ["e.npz"]


def test_the_name_is_the_one_asked_for(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "embeddings", IDS, EMBEDDINGS)
    assert len(read_embeddings(tmp_path / "embeddings")) == 5


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


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_named(share: float, tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    write_embeddings(path, IDS, EMBEDDINGS)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"e\.npz"):
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
