"""Laws of simple-spk embed: what is done stays done, and nothing is skipped silently."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from simple_spk.cli.commands import embed
from simple_spk.cli.main import main
from simple_spk.data.audio import AudioError
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.inference.embedding_store import EmbeddingStore, embed_into_file
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import save_model
from simple_spk.inference.trial_evaluation import LocatedRecordings
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from tests.command_line import NAMES, Capture, fails_naming


def run(*arguments: object) -> int:
    return main(["embed", *map(str, arguments)])


@pytest.fixture
def corpus(audio_folder: Path, tmp_path: Path) -> Path:
    """A copy of the recordings that may be damaged."""
    return Path(shutil.copytree(audio_folder, tmp_path / "corpus"))


def test_embed_writes_what_the_library_returns(
    model_folder: Path, audio_folder: Path, recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    output = tmp_path / "e.npz"
    assert run("--model", model_folder, audio_folder, "-o", output) == 0
    assert "6 embeddings of dimension 16" in capsys.readouterr().out
    found = read_embeddings(output)
    assert found.ids == NAMES
    expected = Extractor.load(model_folder).embed(recordings)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-5)


def test_embed_takes_files_and_folders_within_folders(
    model_folder: Path, recordings: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "speakers" / "x").mkdir(parents=True)
    (tmp_path / "speakers" / "notes.txt").write_text("not audio")
    (tmp_path / "speakers" / "x" / "1.WAV").write_bytes(recordings[1].read_bytes())
    output = tmp_path / "e.npz"
    sources = (recordings[0], tmp_path / "speakers")
    assert run("--model", model_folder, *sources, "-o", output) == 0
    assert read_embeddings(output).ids == ["a0.wav", "x/1.WAV"]


def test_embed_follows_links_but_not_in_a_circle(
    model_folder: Path, recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "1.wav").write_bytes(recordings[0].read_bytes())
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "speaker").symlink_to(tmp_path / "real")
    embed = ("--model", model_folder, tmp_path / "corpus", "-o", tmp_path / "e.npz")
    assert run(*embed) == 0
    assert read_embeddings(tmp_path / "e.npz").ids == ["speaker/1.wav"]
    (tmp_path / "real" / "again").symlink_to(tmp_path / "corpus")
    fails_naming(capsys, "the same folder", "embed", *embed)


def test_recordings_that_would_share_an_id_are_not_mixed_up(
    model_folder: Path, recordings: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "a0.wav").write_bytes(recordings[0].read_bytes())
    sources = ("--model", model_folder, recordings[0], tmp_path / "a0.wav")
    fails_naming(capsys, "one id", "embed", *sources, "-o", tmp_path / "e.npz")


def test_a_folder_without_audio_is_named(
    model_folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "hollow").mkdir()
    sources = ("--model", model_folder, tmp_path / "hollow")
    fails_naming(capsys, "hollow", "embed", *sources, "-o", tmp_path / "e.npz")


def test_bad_recordings_are_named_and_the_rest_is_written(
    model_folder: Path, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    whole = (corpus / "b0.wav").read_bytes()
    (corpus / "b0.wav").write_bytes(whole[:3000])
    (corpus / "c1.wav").write_bytes(b"no audio")
    output = tmp_path / "e.npz"
    assert run(corpus, "--model", model_folder, "-o", output) == 1
    said = capsys.readouterr()
    assert "not embedded: b0.wav" in said.err and "not embedded: c1.wav" in said.err
    assert "2 of 6 recordings are missing" in said.err
    found = read_embeddings(output)
    assert found.ids == ["a0.wav", "a1.wav", "b1.wav", "c0.wav"]
    # Mended, they are all that is embedded by the same command.
    (corpus / "b0.wav").write_bytes(whole)
    (corpus / "c1.wav").write_bytes((corpus / "c0.wav").read_bytes())
    assert run(corpus, "--model", model_folder, "-o", output) == 0
    assert "4 of 6 embeddings are there already" in capsys.readouterr().err
    extractor = Extractor.load(model_folder)
    expected = extractor.embed(sorted(corpus.glob("*.wav")))
    again = read_embeddings(output)
    np.testing.assert_allclose(again.matrix, expected, rtol=1e-4, atol=1e-5)
    assert again.origin == extractor.fingerprint
    assert sorted(path.name for path in tmp_path.glob("e.npz*")) == ["e.npz"]


def test_nothing_usable_is_an_error(model_folder: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.wav").write_bytes(b"no audio")
    assert run(tmp_path / "x.wav", "--model", model_folder, "-o", tmp_path / "e.npz") == 1
    assert "none of 1 recordings could be embedded; the first: " in capsys.readouterr().err
    assert not (tmp_path / "e.npz").exists()


def test_an_interrupted_run_goes_on_where_it_was(
    model_folder: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """Ctrl-C after some batches; what they gave is not computed again, unless the file changed."""
    asked: list[int] = []
    original = Extractor.embed_each

    def interrupted(self, recordings, **options):  # type: ignore[no-untyped-def]
        asked.append(len(recordings))
        for number, one in enumerate(recordings):
            if len(asked) == 1 and number == 4:
                raise KeyboardInterrupt
            for batch in original(self, [one], **options):
                yield batch._replace(
                    indexes=[number] * len(batch.indexes),
                    errors=dict.fromkeys([number] * len(batch.errors), AudioError("bad")),
                )

    monkeypatch.setattr(Extractor, "embed_each", interrupted)
    arguments = (corpus, "--model", model_folder, "-o", tmp_path / "e.npz")
    assert run(*arguments) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert not (tmp_path / "e.npz").exists() and (tmp_path / "e.npz.parts").is_dir()
    (corpus / "a1.wav").write_bytes((corpus / "c1.wav").read_bytes())
    assert run(*arguments) == 0
    assert asked == [6, 3]  # two that were not reached, and the one that changed
    found = read_embeddings(tmp_path / "e.npz")
    expected = Extractor.load(model_folder).embed(sorted(corpus.glob("*.wav")))
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-4, atol=1e-5)
    assert not (tmp_path / "e.npz.parts").exists()


def test_parts_of_another_model_are_not_used_and_those_of_another_list_are(
    model_folder: Path, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Of another list, the recordings that are the same file under the same id."""
    (corpus / "c1.wav").write_bytes(b"no audio")
    output = tmp_path / "e.npz"
    assert run(corpus, "--model", model_folder, "-o", output) == 1
    torch.manual_seed(1)
    other = trained_model(Fbank(), ResNet(width=4, stem_stride=2, embedding_dim=8), SimPLELoss())
    save_model(tmp_path / "other", other)
    capsys.readouterr()
    assert run(corpus, "--model", tmp_path / "other", "-o", output) == 1
    assert "was of another model: starting anew" in capsys.readouterr().err
    assert read_embeddings(output).matrix.shape == (5, 8)
    expected = read_embeddings(output)
    (corpus / "c1.wav").unlink()
    renamed = corpus.rename(tmp_path / "renamed")  # the same ids, but other files
    sources = ("--model", tmp_path / "other", "-o", output)
    (renamed / "bad.wav").write_bytes(b"no audio")
    assert run(renamed, *sources) == 1
    assert "already" not in capsys.readouterr().err
    (renamed / "bad.wav").unlink()
    assert run(renamed, *sources) == 0
    assert "5 of 5 embeddings are there already" in capsys.readouterr().err
    found = read_embeddings(output)
    assert found.ids == expected.ids and np.array_equal(found.matrix, expected.matrix)


def test_a_damaged_part_is_named(corpus: Path, tmp_path: Path) -> None:
    paths = sorted(corpus.glob("*.wav"))
    parts = EmbeddingStore(tmp_path / "e.npz", "model", [path.name for path in paths], paths)
    assert parts.begin() and parts.read() == {}
    parts.write({2: np.ones(3, np.float32), 5: np.zeros(3, np.float32)})
    parts.write({3: np.zeros(3, np.float32)})
    assert parts.begin()
    found = parts.read()
    assert sorted(found) == [2, 3, 5] and found[2].tolist() == [1.0, 1.0, 1.0]
    (parts.folder / "000001-0.npz").write_bytes(b"PK damaged")
    with pytest.raises(ValueError, match=r"000001-0\.npz is damaged.*delete it"):
        parts.read()
    (parts.folder / "000001-0.npz").unlink()
    (parts.folder / "000001-0.npz").mkdir()  # the system's refusals are no damage
    with pytest.raises(IsADirectoryError, match=r"000001-0\.npz"):
        parts.read()


def test_a_part_that_was_deleted_takes_no_other_along(corpus: Path, tmp_path: Path) -> None:
    """Who deletes a damaged part, as the message says, loses that part only."""
    paths = sorted(corpus.glob("*.wav"))
    parts = EmbeddingStore(tmp_path / "e.npz", "model", [path.name for path in paths], paths)
    parts.begin()
    for index in range(3):
        parts.write({index: np.full(3, index, np.float32)})
    deleted = min(parts.folder.glob("*.npz"))
    gone = int(deleted.name.split("-")[0])
    deleted.unlink()
    parts.write({gone: np.full(3, 7, np.float32), 4: np.full(3, 4, np.float32)})
    found = parts.read()
    expected = {0: 0.0, 1: 1.0, 2: 2.0, 4: 4.0} | {gone: 7.0}
    assert {index: float(row[0]) for index, row in found.items()} == expected


def test_a_folder_of_somebody_elses_is_not_deleted(
    model_folder: Path, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "e.npz.parts").mkdir()
    (tmp_path / "e.npz.parts" / "thesis.txt").write_text("years of work")
    assert run(corpus, "--model", model_folder, "-o", tmp_path / "e.npz") == 1
    assert "holds something else: move it away" in capsys.readouterr().err
    assert (tmp_path / "e.npz.parts" / "thesis.txt").read_text() == "years of work"


def test_a_second_run_into_one_output_is_refused(
    model_folder: Path, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Also evaluate --save-embeddings, which shares the folder; the first run loses nothing."""
    output = tmp_path / "e.npz"
    embed = ("embed", corpus, "--model", model_folder, "-o", output)
    paths = sorted(corpus.glob("*.wav"))
    first = EmbeddingStore(output, "model", [path.name for path in paths], paths)
    holder = f"process {os.getpid()} on "
    with first.held():
        assert first.begin()
        first.write({2: np.ones(3, np.float32)})
        fails_naming(capsys, holder, *embed)
        with pytest.raises(BlockingIOError, match="is embedding in"):
            extractor = Extractor.load(model_folder)
            embed_into_file(output, extractor, LocatedRecordings([], []), "model")
        assert list(first.read()) == [2]
    assert not output.exists()
    assert main([*map(str, embed)]) == 0  # the lock went with its holder


def test_a_run_killed_while_it_tidies_up_knows_its_parts(
    model_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = (corpus, "--model", model_folder, "-o", tmp_path / "e.npz")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        if path.parent.suffix == ".parts":
            raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert run(*embed) == 1
    monkeypatch.undo()
    assert run(*embed) == 0
    assert not (tmp_path / "e.npz.parts").exists()


def test_a_recording_that_changes_meanwhile_is_named(
    model_folder: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    original = EmbeddingStore.write

    def write_and_change(self: EmbeddingStore, embeddings: dict) -> None:
        original(self, embeddings)
        os.utime(corpus / "a1.wav", (1, 1))

    monkeypatch.setattr(EmbeddingStore, "write", write_and_change)
    assert run(corpus, "--model", model_folder, "-o", tmp_path / "e.npz") == 1
    assert "not embedded: a1.wav: it changed while" in capsys.readouterr().err
    assert len(read_embeddings(tmp_path / "e.npz").ids) == 5


def test_several_processes_share_the_work(model_folder: Path, corpus: Path, tmp_path: Path) -> None:
    """As torchrun starts them, one recording being bad; the file is that of one process."""
    (corpus / "b1.wav").write_bytes(b"no audio")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    arguments = [corpus, "--model", model_folder, "-o", tmp_path / "e.npz"]
    root = Path(embed.__file__).parents[2]
    done = subprocess.run(
        [*command, "-m", "simple_spk.cli.main", "embed", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0 and "not embedded: b1.wav" in done.stderr
    found = read_embeddings(tmp_path / "e.npz")
    good = [path for path in sorted(corpus.glob("*.wav")) if path.name != "b1.wav"]
    assert found.ids == [path.name for path in good]
    expected = Extractor.load(model_folder).embed(good)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-4, atol=1e-5)
