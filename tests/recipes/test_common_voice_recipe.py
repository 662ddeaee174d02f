"""recipes/CommonVoice on a miniature in the layout of the official releases."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from recipes.CommonVoice.clean_labels import main as clean_labels_main
from recipes.CommonVoice.prepare import main, prepare_common_voice, sessions_of
from simple_spk.corpora.label_fixes import read_label_fixes
from simple_spk.data.manifest import read_manifest
from simple_spk.data.trials import read_trials

COLUMNS = ["client_id", "path", "sentence", "up_votes", "down_votes"]
COLUMNS += ["age", "gender", "accents", "locale", "segment"]
FRACTIONS = {"valid_fraction": 0.3, "test_fraction": 0.3}


def write_release(folder: Path, language: str, speakers: int = 10, clips: int = 4) -> Path:
    """A language of a release: each speaker has two sessions, far apart in clip numbers."""
    root = folder / language
    (root / "clips").mkdir(parents=True)
    random = np.random.default_rng(len(language))
    rows = []
    for speaker in range(speakers):
        for clip in range(clips):
            number = 100_000 * (clip % 2) + 100 * speaker + clip
            name = f"common_voice_{language}_{number}.mp3"
            samples = 0.1 * random.standard_normal(24_000)
            soundfile.write(root / "clips" / name, samples, 16_000, format="MP3")
            rows.append([f"{speaker:0128x}", name, f'he said "{clip}', "2", "0", *[""] * 5])
    write_table(root / "validated.tsv", rows)
    return root


def write_table(path: Path, rows: list[list[str]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in [COLUMNS, *rows]))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cv-corpus-99.0")
    for language in ("en", "cy"):
        write_release(folder, language)
    return folder


def test_speakers_stay_in_one_part_and_trials_are_across_sessions(
    release: Path, tmp_path: Path
) -> None:
    prepared = prepare_common_voice(tmp_path, [release / "en", release / "cy"], **FRACTIONS)
    assert not prepared.quarantined
    manifests = {part: read_manifest(tmp_path / f"{part}.csv") for part in prepared.parts}
    speakers = [set(manifest.speakers) for manifest in manifests.values()]
    assert sum(map(len, speakers)) == len(set().union(*speakers)) == 20
    assert sum(map(len, manifests.values())) == 80
    row = manifests["train"].wav(0)
    assert soundfile.info(row).samplerate == 16_000 and row.suffix == ".flac"
    for part in ("valid", "test"):
        trials = read_trials(tmp_path / f"{part}_trials.txt")
        assert set(trials.ids) <= set(manifests[part].ids)
        names = [name.split("/") for name in trials.ids]
        for enroll, test, is_target in zip(
            trials.enroll, trials.test, trials.is_target, strict=True
        ):
            (speaker, session, _), (other, other_session, _) = names[enroll], names[test]
            assert is_target == (speaker == other)
            assert speaker.split("-")[0] == other.split("-")[0], "within a language"
            assert not is_target or session != other_session
        assert 0 < trials.is_target.sum() < len(trials)


def test_a_second_run_converts_nothing_and_writes_the_same(release: Path, tmp_path: Path) -> None:
    def contents() -> dict[str, bytes]:
        files = [path for path in tmp_path.rglob("*") if path.suffix in (".flac", ".csv", ".txt")]
        return {str(path): path.read_bytes() for path in files}

    prepare_common_voice(tmp_path, [release / "cy"], **FRACTIONS)
    before = contents()
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.flac")}
    prepare_common_voice(tmp_path, [release / "cy"], **FRACTIONS)
    assert contents() == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.flac")} == times


def test_bad_rows_and_clips_are_left_out_and_named(tmp_path: Path) -> None:
    root = write_release(tmp_path / "release", "sw", speakers=8)
    lines = (root / "validated.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    (root / "clips" / rows[0][1]).unlink()
    (root / "clips" / rows[1][1]).write_text("not audio")
    soundfile.write(root / "clips" / rows[2][1], np.zeros(24_000), 16_000, format="MP3")
    soundfile.write(root / "clips" / rows[4][1], np.ones(80) * 0.1, 16_000, format="MP3")
    rows.append(["", "common_voice_sw_1.mp3", *[""] * 8])  # no client_id
    rows.append(["f" * 128, rows[8][1], *[""] * 8])  # a clip of two speakers
    rows.append(["e" * 128, "../outside.mp3", *[""] * 8])
    rows.append(["short row"])
    write_table(root / "validated.tsv", rows)
    data = tmp_path / "data"
    prepared = prepare_common_voice(data, [root], **FRACTIONS, same_session_targets=True)
    kinds = Counter(fault.kind for fault in prepared.quarantined)
    assert kinds["vanished"] == 1 and kinds["bad row"] == 3 and kinds["two speakers"] == 1
    assert kinds["silent"] == 1 and kinds["too short"] == 1
    assert kinds["alone"] == 1, "the first speaker has one clip left"
    assert sum(kinds.values()) == 9, kinds
    listed = (data / "quarantine.csv").read_text()
    assert all(rows[row][1] in listed for row in (0, 1, 2, 4, 8))
    used = (data / "train.csv").read_text() + (data / "valid.csv").read_text()
    used += (data / "test.csv").read_text()
    assert not any(f"/{Path(rows[row][1]).stem}," in used for row in (0, 1, 2, 3, 4, 8))


def test_lists_without_target_trials_say_what_to_change(release: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none of the \d+ speakers .*--valid-fraction.*or allow"):
        prepare_common_voice(tmp_path / "data", [release / "cy"], **FRACTIONS, session_gap=10**9)
    with pytest.raises(FileNotFoundError, match="DATA comes first"):
        prepare_common_voice(release, [tmp_path / "data"], **FRACTIONS)


def test_other_tables_are_read_only_on_request(tmp_path: Path) -> None:
    root = write_release(tmp_path / "release", "eu", speakers=8)
    lines = (root / "validated.tsv").read_text().splitlines()
    (root / "validated.tsv").write_text("\n".join(lines[:-8]) + "\n")
    (root / "other.tsv").write_text("\n".join([lines[0], *lines[-8:]]) + "\n")
    few = prepare_common_voice(tmp_path / "a", [root], **FRACTIONS)
    all_of_them = prepare_common_voice(
        tmp_path / "b", [root], tables=("validated", "other"), **FRACTIONS
    )
    clips = [sum(part.recordings for part in one.parts.values()) for one in (few, all_of_them)]
    assert clips == [24, 32]
    assert few.parts["train"].sessions == 2 * few.parts["train"].speakers


def test_wrong_labels_are_found_and_corrected(tmp_path: Path, noisy_tone) -> None:
    """The built-in model finds clips of other voices, and prepare.py leaves them out."""
    root = tmp_path / "release/xx"
    (root / "clips").mkdir(parents=True)
    rows = []
    for speaker in range(12):
        for clip in range(4):
            name = f"common_voice_xx_{100_000 * (clip % 2) + 100 * speaker + clip}.wav"
            hertz = 80.0 * 1.18**speaker
            soundfile.write(root / "clips" / name, noisy_tone(1.2, hertz, clip), 16_000)
            rows.append([f"{speaker:0128x}", name, "", "2", "0", *[""] * 5])
    rows[1][0], rows[-1][0] = rows[-1][0], rows[1][0]
    write_table(root / "validated.tsv", rows)
    data, fixes = tmp_path / "data", tmp_path / "fixes.csv"
    prepare_common_voice(data, [root], valid_fraction=0.2, test_fraction=0.0)
    arguments = [str(data / "train.csv"), str(data / "valid.csv"), "-o", str(fixes)]
    assert clean_labels_main([*arguments, "--false-share", "0.3"]) == 0
    dropped = [fix.name.split("/")[-1] for fix in read_label_fixes(fixes) if fix.action == "drop"]
    swapped = {Path(rows[1][1]).stem, Path(rows[-1][1]).stem}
    assert swapped <= set(dropped) and len(dropped) < 16
    cleaned = prepare_common_voice(
        data, [root], valid_fraction=0.2, test_fraction=0.0, clean_labels=fixes
    )
    kinds = Counter(fault.kind for fault in cleaned.quarantined)
    assert kinds["wrong label"] == len(dropped)
    used = (data / "train.csv").read_text() + (data / "valid.csv").read_text()
    assert not any(f"/{name}," in used for name in swapped)
    prepare_common_voice(data, [root], valid_fraction=0.0, test_fraction=0.0)
    assert not list(data.glob("valid*")), "their speakers are for training now"


def test_few_clips_of_a_speaker_are_spread_over_its_sessions(release: Path, tmp_path: Path) -> None:
    prepare_common_voice(tmp_path, [release / "en"], maximum_clips=2, **FRACTIONS)
    ids = list(read_manifest(tmp_path / "train.csv").ids)
    sessions = {name.rpartition("/")[0] for name in ids}
    assert len(sessions) == len(ids), "two clips, two sessions"


def test_sessions_begin_where_numbers_jump() -> None:
    names = ["cv_3.mp3", "cv_1.mp3", "cv_5000.mp3", "cv_5001.mp3", "cv_9000.mp3"]
    assert sessions_of(names, gap=1000) == ["s000", "s000", "s001", "s001", "s002"]
    assert sessions_of(["a.mp3", "b.mp3"], gap=1000) == ["s000", "s000"]


@pytest.mark.parametrize(
    "break_it, words",
    [
        (lambda root: (root / "validated.tsv").unlink(), "validated.tsv"),
        (lambda root: (root / "validated.tsv").write_text("a\tb\n1\t2\n"), "client_id"),
        (lambda root: write_table(root / "validated.tsv", []), "name no clips"),
        (lambda root: (root / "clips").rename(root / "audio"), "no folder clips/"),
    ],
)
def test_what_is_no_release_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], break_it, words: str
) -> None:
    root = write_release(tmp_path / "release", "xx", speakers=2, clips=2)
    break_it(root)
    assert main([str(tmp_path / "data"), str(root)]) == 1
    message = capsys.readouterr().err
    assert words in message and "Traceback" not in message
    assert not list((tmp_path / "data").glob("*.csv"))


def test_the_folder_of_all_languages_is_not_a_language(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), str(release)]) == 1
    assert "name one of its languages: cy, en" in capsys.readouterr().err
