"""Laws of simple-spk embed --shard: parts that are embedded apart are those of one process."""

import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from simple_spk.evaluation.embedding_files import read_embeddings, write_embeddings
from simple_spk.inference.embedding_store import EmbeddingStore
from simple_spk.io.parquet_parts import part_name
from tests.command_line import NAMES, Capture, fails_naming, run


@pytest.fixture
def corpus(audio_folder: Path, tmp_path: Path) -> Path:
    """A copy of the recordings that may be damaged."""
    return Path(shutil.copytree(audio_folder, tmp_path / "corpus"))


def embed_shards(corpus: Path, model: Path, output: Path, total: int = 4) -> None:
    for number in range(total, 0, -1):  # in any order
        shard = f"{number}/{total}"
        assert run("embed", corpus, "--model", model, "-o", output, "--shard", shard) == 0


def test_shards_have_the_bits_of_one_process_and_score_as_it_does(
    model_folder: Path, corpus: Path, trials: Path, tmp_path: Path
) -> None:
    embed_shards(corpus, model_folder, tmp_path / "parts")
    whole = tmp_path / "whole.parquet"
    assert run("embed", corpus, "--model", model_folder, "-o", whole) == 0
    found, expected = read_embeddings(tmp_path / "parts"), read_embeddings(whole)
    assert found.ids == expected.ids == NAMES
    assert np.array_equal(found.matrix, expected.matrix)
    assert found.origin == expected.origin is not None
    names = [file.name for file in sorted((tmp_path / "parts").iterdir())]
    assert names == [part_name(number, 4) for number in range(1, 5)]
    frame = pl.read_parquet(whole)
    assert frame["path"].to_list() == [str(corpus / name) for name in NAMES]
    np.testing.assert_allclose(frame["length"], np.linalg.norm(expected.matrix, axis=1), rtol=1e-6)
    for source in ("parts", "whole.parquet"):
        score = ("score", "--embeddings", tmp_path / source, "--model", model_folder)
        assert run(*score, "--trials", trials, "-o", tmp_path / f"{source}.txt") == 0
    texts = [(tmp_path / f"{source}.txt").read_text() for source in ("parts", "whole.parquet")]
    assert texts[0] == texts[1]


def test_a_complete_part_is_kept_unless_its_recordings_change(
    model_folder: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    parts, asked = tmp_path / "parts", []
    embed_shards(corpus, model_folder, parts, total=2)
    fill = EmbeddingStore.fill
    monkeypatch.setattr(
        EmbeddingStore,
        "fill",
        lambda self, extractor, missing, *rest: (
            asked.append(len(missing)) or fill(self, extractor, missing, *rest)
        ),
    )
    capsys.readouterr()
    embed_shards(corpus, model_folder, parts, total=2)
    assert not asked and capsys.readouterr().out.count("3 embeddings are in ") == 2
    os.utime(corpus / "a1.wav", (1, 1))
    embed_shards(corpus, model_folder, parts, total=2)
    assert asked == [3]


def test_a_part_without_a_bad_recording_is_completed_later(
    model_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    good = (corpus / "a1.wav").read_bytes()
    (corpus / "a1.wav").write_bytes(b"no audio")
    arguments = ("embed", corpus, "--model", model_folder, "-o", tmp_path / "parts")
    assert run(*arguments, "--shard", "1/2") == 1
    assert run(*arguments, "--shard", "2/2") == 0
    assert read_embeddings(tmp_path / "parts").ids == [name for name in NAMES if name != "a1.wav"]
    (corpus / "a1.wav").write_bytes(good)
    assert run(*arguments, "--shard", "1/2") == 0
    assert read_embeddings(tmp_path / "parts").ids == NAMES


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4"])
def test_what_is_no_shard_is_refused(text: str, tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        run("embed", tmp_path, "-o", tmp_path / "parts", f"--shard={text}")
    assert "expected I/N" in capsys.readouterr().err


def test_parts_of_different_runs_do_not_mix(
    model_folder: Path, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    embed = ("embed", corpus, "--model", model_folder, "-o", tmp_path / "parts", "--shard")
    fails_naming(capsys, "6 recordings cannot be divided into 7 parts", *embed, "1/7")
    assert run(*embed, "1/2") == 0
    fails_naming(capsys, "not one of 3 parts", *embed, "1/3")
    with pytest.raises(ValueError, match=r"lacks 1 of 2 parts .*part-00002-of-00002"):
        read_embeddings(tmp_path / "parts")
    shutil.copy(tmp_path / "parts" / part_name(1, 2), tmp_path / "parts" / part_name(1, 1))
    with pytest.raises(ValueError, match="mixes the parts of several runs"):
        read_embeddings(tmp_path / "parts")


def test_only_the_rows_that_are_asked_for_are_read(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).standard_normal((40_000, 4)).astype(np.float32)
    ids = [f"r{number}" for number in range(len(matrix))]
    for number, rows in enumerate(np.array_split(np.arange(len(matrix)), 3), start=1):
        path = tmp_path / part_name(number, 3)
        write_embeddings(path, [ids[row] for row in rows], matrix[rows], "model")
    wanted = ["r39999", "r7", "r20000", "absent"]
    found = read_embeddings(tmp_path, wanted)
    assert sorted(found.ids) == ["r20000", "r39999", "r7"] and found.origin == "model"
    assert np.array_equal(found.of(["r39999", "r7"]), matrix[[39999, 7]])
    with pytest.raises(ValueError, match=r"1 of 4 recordings .* \(first: absent\)"):
        found.of(wanted)


def test_parquet_of_other_programs_is_read_and_what_is_not_vectors_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "e.parquet"
    pl.DataFrame({"id": ["a", "b"], "embedding": [[1.0, 2.0], [3.0, 4.0]]}).write_parquet(path)
    found = read_embeddings(path)
    assert found.matrix.dtype == np.float32 and found.matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    bad: dict[str, dict] = {
        "embedding": {"id": ["a"], "vector": [[1.0]]},
        "not vectors of floats": {"id": ["a"], "embedding": [["x"]]},
        "some rows are empty": {"id": ["a", "b"], "embedding": [[1.0], None]},
        "width 2": {"id": ["a", "b"], "embedding": [[1.0, 2.0], [1.0]]},
        r"shape=\(2, 2\)": {"id": ["a"], "embedding": np.ones((1, 2, 2))},
    }
    for reason, columns in bad.items():
        pl.DataFrame(columns).write_parquet(path)
        with pytest.raises(ValueError, match=rf"e\.parquet is not a Parquet file .*{reason}"):
            read_embeddings(path)
    pl.DataFrame({"id": ["a", "a"], "embedding": [[1.0], [2.0]]}).write_parquet(path)
    with pytest.raises(ValueError, match="the id a stands for several"):
        read_embeddings(path)
    zeros = pl.Series(np.zeros((3_000_000, 8), np.float32), dtype=pl.Array(pl.Float32, 8))
    pl.DataFrame({"embedding": zeros}).with_columns(id=pl.lit("a")).write_parquet(path)
    with pytest.raises(ValueError, match="cannot hold the 3000000 rows"):
        read_embeddings(path)
    path.write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(ValueError, match="is not a Parquet file"):
        read_embeddings(path)
    with pytest.raises(ValueError, match="is not UTF-8: rename it"):
        write_embeddings(path, ["\udc80"], np.ones((1, 2), np.float32))
    with pytest.raises(FileNotFoundError, match=r"holds no \.parquet file"):
        (tmp_path / "empty").mkdir()
        read_embeddings(tmp_path / "empty")
