"""Laws of simple-spk evaluate: from audio files to figures, each recording embedded once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simple_spk.evaluation.clustering import cluster_summary
from simple_spk.evaluation.embedding_files import read_embeddings, write_embeddings
from simple_spk.inference.extractor import Extractor
from tests.command_line import NAMES, Capture, fails_naming, read_scores, run

ROOT = Path(__file__).parents[2]


def test_several_processes_evaluate_as_one_does(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Each embeds a share of the recordings, and one of them reports."""
    arguments = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    outputs = ("--trials", trials, "--replicates", 0, "--json")
    assert run(*arguments, *outputs, "-o", tmp_path / "one.txt") == 0
    expected = capsys.readouterr().out
    # The command, which also says how many recordings each process embeds.
    program = tmp_path / "counting.py"
    program.write_text(
        "import sys\n"
        "from simple_spk.cli import main as cli\n"
        "from simple_spk.inference import extractor\n"
        "embed = extractor.Extractor.embed_waveforms\n"
        "def counted(self, waveforms, lengths):\n"
        "    print(f'embeds {len(waveforms)}\\n', end='', file=sys.stderr, flush=True)\n"
        "    return embed(self, waveforms, lengths)\n"
        "extractor.Extractor.embed_waveforms = counted\n"
        "sys.exit(cli.main())\n"
    )
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", program)
    kept = ("-o", tmp_path / "two.txt", "--save-embeddings", tmp_path / "kept.npz")
    command = (*torchrun, *arguments, *outputs, *kept)
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("embeds 3\n") == 2
    assert json.loads(done.stdout) == json.loads(expected)
    np.testing.assert_allclose(
        read_scores(tmp_path / "two.txt"), read_scores(tmp_path / "one.txt"), rtol=1e-4
    )
    assert sorted(read_embeddings(tmp_path / "kept.npz").ids) == NAMES


def test_evaluate_finds_recordings_by_manifest_too(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "m.csv"
    rows = [f"{name},{audio_folder / name},1.0,{name[0]}" for name in reversed(NAMES)]
    manifest.write_text("\n".join(["ID,wav,duration,spk_id", *rows, ""]))
    common = ("evaluate", "--model", model_folder, "--trials", trials, "-o")
    assert run(*common, tmp_path / "1.txt", "--manifest", manifest) == 0
    assert run(*common, tmp_path / "2.txt", "--audio-folder", audio_folder) == 0
    first, second = (read_scores(tmp_path / name) for name in ("1.txt", "2.txt"))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_evaluate_tells_how_well_speakers_fall_apart(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The same by list, by manifest and by a file of speakers, as text, JSON and on the page."""
    manifest, utt2spk = tmp_path / "m.csv", tmp_path / "utt2spk"
    rows = [f"{name},{audio_folder / name},1.0,{name[0]}" for name in NAMES]
    manifest.write_text("\n".join(["ID,wav,duration,spk_id", *rows, ""]))
    utt2spk.write_text("".join(f"{name} {name[0]}\n" for name in NAMES))
    common = ("evaluate", "--model", model_folder, "--trials", trials, "--clusters")
    found = []
    for sources in (
        ("--audio-folder", audio_folder),
        ("--manifest", manifest),
        ("--audio-folder", audio_folder, "--speakers", utt2spk),
    ):
        assert run(*common, *sources, "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["clusters"])
    for other in found[1:]:
        assert other["smallest_within_pair"] == found[0]["smallest_within_pair"]
        assert other["gap"] == pytest.approx(found[0]["gap"], rel=1e-3)
    embeddings = tmp_path / "e.npz"
    assert run("embed", "--model", model_folder, audio_folder, "-o", embeddings) == 0
    vectors = read_embeddings(embeddings)
    speakers = np.array([ord(name[0]) for name in vectors.ids])
    model = Extractor.load(model_folder).model
    expected = cluster_summary(
        vectors.ids, vectors.matrix, speakers, model.similarity, model.threshold
    )
    assert found[0]["speakers"] == 3 and found[0]["recordings"] == 6
    for method, cuts in expected["linkage"].items():
        for name, cut in cuts.items():
            assert found[0]["linkage"][method][name] == pytest.approx(cut, rel=1e-3), method
    capsys.readouterr()
    page = tmp_path / "report.html"
    assert run(*common, "--audio-folder", audio_folder, "--report", page) == 0
    said = capsys.readouterr().out
    index = expected["linkage"]["average"]["at_own_threshold"]["adjusted_rand_index"]
    assert f"ARI {index:.4f} with" in said and "at 0.5 (own)" in said
    assert "Speakers as clusters" in page.read_text() and f"{index:.4f}" in page.read_text()


def test_clusters_are_of_recordings_not_of_models(
    model_folder: Path, audio_folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    enrollments, trials = tmp_path / "spk2utt", tmp_path / "t.txt"
    enrollments.write_text(f"model {NAMES[0]} {NAMES[1]}\n")
    trials.write_text(f"1 model {NAMES[1]}\n0 model {NAMES[2]}\n")
    command = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    assert run(*command, "--trials", trials, "--enrollments", enrollments, "--clusters") == 1
    assert "--enrollments" in capsys.readouterr().err


def test_several_lists_are_scored_from_one_extraction(
    model_folder: Path,
    audio_folder: Path,
    trials: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("".join(trials.read_text().splitlines(keepends=True)[:7]))
    embedded = []

    embed_each = Extractor.embed_each

    def spy(self, paths, **options):  # type: ignore[no-untyped-def]
        embedded.extend(paths)
        return embed_each(self, paths, **options)

    monkeypatch.setattr(Extractor, "embed_each", spy)
    command = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    lists = ("--trials", trials, short)
    kept = tmp_path / "kept.npz"
    outputs = ("-o", tmp_path / "scores", "--json", "--save-embeddings", kept)
    assert run(*command, *lists, *outputs) == 0
    assert sorted(path.name for path in embedded) == NAMES
    figures = json.loads(capsys.readouterr().out)
    assert [one["list"] for one in figures] == ["trials.txt", "short.txt"]
    assert [one["trials"] for one in figures] == [15, 7]
    low, high = figures[0]["intervals"]["eer"]
    assert low <= figures[0]["eer"] <= high
    scores = read_scores(tmp_path / "scores" / "trials.txt")
    assert len((tmp_path / "scores" / "short.txt").read_text().splitlines()) == 7

    # What is kept is used again, what is missing from it is added, and another model is refused.
    found = read_embeddings(kept)
    write_embeddings(kept, found.ids[:4], found.matrix[:4], found.origin)
    embedded.clear()
    assert run(*command, *lists, *outputs) == 0
    assert sorted(path.name for path in embedded) == sorted(set(NAMES) - set(found.ids[:4]))
    np.testing.assert_allclose(read_scores(tmp_path / "scores" / "trials.txt"), scores, rtol=1e-4)
    assert sorted(read_embeddings(kept).ids) == NAMES
    (model_folder / "calibration.json").write_text("beside the model, but no part of it")
    assert run(*command, *lists, *outputs) == 0
    config = model_folder / "config.yaml"
    config.write_text(config.read_text().replace("dither: 1.0", "dither: 2.0"))
    fails_naming(capsys, "kept.npz", *command, *lists, *outputs)
    fails_naming(capsys, "e.ark", *command, *lists, "--save-embeddings", tmp_path / "e.ark")


def test_kept_embeddings_are_not_taken_for_those_of_other_audio_or_precision(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Manifests of whole recordings and of their crops have the same IDs."""
    kept = ("--trials", trials, "--save-embeddings", tmp_path / "kept.npz", "--replicates", 0)
    command = ("evaluate", "--model", model_folder, *kept)
    assert run(*command, "--audio-folder", audio_folder) == 0
    other = tmp_path / "other"
    shutil.copytree(audio_folder, other)
    fails_naming(capsys, "not made of these recordings", *command, "--audio-folder", other)
    bf16 = ("--audio-folder", audio_folder, "--precision", "bf16")
    fails_naming(capsys, "or not in bf16", *command, *bf16)
    assert run(*command, "--audio-folder", audio_folder) == 0


def test_bad_trial_lists_are_named(
    model_folder: Path, audio_folder: Path, trials: Path, tmp_path: Path, capsys: Capture
) -> None:
    where = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder, "--trials")
    fails_naming(capsys, "nothing.txt", *where, tmp_path / "nothing.txt")
    trials.write_text("1 a0.wav a1.wav\n1 a0.wav\n")
    fails_naming(capsys, "trials.txt, line 2", *where, trials)
    trials.write_text("1 a0.wav a1.wav\n0 b0.wav a1.wav\n1 a0.wav a1.wav\n")
    fails_naming(capsys, "trials.txt, lines 1 and 3", *where, trials)
    trials.write_text("1 a0.wav a1.wav\n1 b0.wav b1.wav\n")
    fails_naming(capsys, "2 targets and 0 non-targets", *where, trials)
    trials.write_text("1 a0.wav other.wav\n0 a0.wav b0.wav\n")
    fails_naming(capsys, "other.wav", *where, trials)
    trials.write_text("1 a0.wav a1.wav\n0 a0.wav b0.wav\n")
    where = (
        "evaluate",
        "--model",
        model_folder,
        "--audio-folder",
        tmp_path / "nowhere",
        "--trials",
    )
    fails_naming(capsys, "nowhere", *where, trials)


def test_mistakes_are_found_before_long_work(
    model_folder: Path,
    audio_folder: Path,
    trials: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What can be known of outputs and options is checked before anything is embedded."""

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("embedding began")

    monkeypatch.setattr(Extractor, "embed_waveforms", fail)
    command = ("evaluate", "--model", model_folder, "--audio-folder", audio_folder)
    command = (*command, "--trials", trials)
    (tmp_path / "file").write_text("no folder")
    write_embeddings(tmp_path / "c.npz", ["x", "y", "z"], np.eye(3, dtype=np.float32))
    wrong = {
        ("-o", tmp_path): "is a folder",
        ("-o", tmp_path / "file" / "s.txt"): "cannot be written",
        ("--report", "/proc/report.html"): "cannot be written",
        ("--det", tmp_path / "det.xyz"): "ends in .png",
        ("--metadata", tmp_path / "nowhere.csv"): "nowhere.csv",
        ("--speakers", tmp_path / "nobody"): "nobody",
        ("--calibration", tmp_path / "none.json"): "none.json",
        ("--cohort", tmp_path / "c.npz"): "the 3 members of the cohort, not 300",
        ("--cohort-speakers", tmp_path / "utt2spk"): "--cohort",
        ("--priors", 1.5): "target_prior",
        ("--miss-cost", 0): "miss_cost",
        ("--replicates", -5): "replicates",
        ("--seed", -1): "seed",
    }
    for options, word in wrong.items():
        fails_naming(capsys, word, *command, *options)
    embed = ("embed", "--model", model_folder, audio_folder, "-o")
    fails_naming(capsys, ".ark (with an .scp beside it)", *embed, tmp_path / "e.scp")
    fails_naming(capsys, "cannot be written", *embed, tmp_path / "file" / "e.npz")
