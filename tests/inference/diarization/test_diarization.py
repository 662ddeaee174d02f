"""Laws of diarization: speech is covered once, by whoever it is likeliest; results are files."""

import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk import Extractor
from simple_spk.inference.batch_embedding import NoSpeechError
from simple_spk.inference.diarization import pipeline
from simple_spk.inference.diarization.conversation import (
    Conversation,
    Turn,
    read_conversation,
    rttm_lines,
)
from simple_spk.inference.diarization.resegmentation import best_path, speaker_spans
from simple_spk.inference.diarization.segmentation import (
    SHIFT_SECONDS,
    WINDOW_SECONDS,
    cut_out,
    speech_spans,
    windows_of,
)
from simple_spk.inference.speech_quality import SpeechFrames
from tools.make_toy_corpus import write_speaker

RATE = 16000


@pytest.fixture(scope="module")
def dialog(tmp_path_factory):
    """A conversation of two synthetic voices, with pauses, and its true turns."""
    folder = tmp_path_factory.mktemp("dialog")
    voices = []
    for speaker in (0, 12):
        write_speaker(folder, speaker, recordings=4, seed=0)
        files = sorted((folder / "wav" / f"toy{speaker + 1:04d}").glob("*.wav"))[:4]
        voices.append([soundfile.read(file, dtype="float32")[0] for file in files])
    parts, turns, place = [], [], 0.0
    for number in range(8):
        waveform = voices[number % 2][number // 2]
        turns.append(Turn(place, place + len(waveform) / RATE, f"voice {number % 2}"))
        parts += [waveform, np.zeros(RATE // 2, np.float32)]
        place += len(waveform) / RATE + 0.5
    path = folder / "dialog.wav"
    soundfile.write(path, np.concatenate(parts), RATE)
    return path, turns


def test_progress_is_shown_while_speech_is_sought(capfd):
    """The whole recording is read before anything is embedded; this one is read slowly."""

    def blocks():
        for _ in range(3):
            time.sleep(0.6)
            yield np.zeros(10 * RATE, np.float32)

    model = Extractor.load().model
    with pytest.raises(NoSpeechError, match=r"none was found in 30\.0 s"):
        pipeline.heard_speech(blocks, "silence.wav", model, RATE, None, progress=True)
    assert "find speech: 30s" in capfd.readouterr().err


@pytest.mark.parametrize("seed", range(5))
def test_spans_are_cut_out_whatever_the_blocks(seed):
    random = np.random.default_rng(seed)
    waveform = random.normal(size=5000).astype(np.float32)
    starts = np.sort(random.uniform(0, 4.5, 30))
    spans = np.stack([starts, starts + random.uniform(0.0, 0.5, 30)], axis=1)
    sizes = random.integers(1, 900, 40).cumsum()
    blocks = np.split(waveform, sizes[sizes < 5000])
    for (start, end), found in zip(spans, cut_out(blocks, spans, 1000), strict=True):
        assert np.array_equal(found, waveform[round(start * 1000) : round(end * 1000)])


@pytest.mark.parametrize("seed", range(5))
def test_windows_cover_all_speech_and_nothing_else(seed):
    flags = np.random.default_rng(seed).random(2000).repeat(9) > 0.6
    speech = speech_spans(SpeechFrames(flags, 0.02, "energy"), 360.0)
    assert (speech[1:, 0] > speech[:-1, 1]).all() and (speech[:, 1] > speech[:, 0]).all()
    windows = windows_of(speech)
    lengths = windows.spans[:, 1] - windows.spans[:, 0]
    assert lengths.max() <= WINDOW_SECONDS + 1e-9
    for row, (start, end) in enumerate(speech):
        own = windows.spans[windows.speech == row]
        assert own[0, 0] == start and own[-1, 1] == pytest.approx(end)
        assert (np.diff(own[:, 0]) <= SHIFT_SECONDS + 1e-9).all()
        assert (own[1:, 0] <= own[:-1, 1]).all()


def test_the_best_path_is_that_of_all_paths():
    random = np.random.default_rng(0)
    for _ in range(20):
        votes, costs = random.normal(size=(6, 3)), random.uniform(0, 2, 6)
        sums = {}
        for path in itertools.product(range(3), repeat=6):
            changes = [costs[i] for i in range(1, 6) if path[i] != path[i - 1]]
            sums[path] = votes[range(6), path].sum() - sum(changes)
        assert tuple(best_path(votes, costs)) == max(sums, key=sums.get)


def test_turns_cover_the_speech_and_follow_the_windows():
    speech = np.array([[0.0, 6.0], [7.0, 7.4], [9.0, 12.0]])
    windows = windows_of(speech)
    middle = windows.spans.mean(axis=1)
    is_second = (middle > 3.0) & (middle < 8.0)
    values = np.where(np.stack([~is_second, is_second], axis=1), 20.0, -20.0)
    spans = speaker_spans(speech, windows, values)
    assert [speaker for _, _, speaker in spans] == [0, 1, 1, 0]
    assert spans[0][1] == pytest.approx(3.375, abs=0.06)
    covered = sum(end - start for start, end, _ in spans)
    assert covered == pytest.approx((speech[:, 1] - speech[:, 0]).sum())


def test_two_voices_are_told_apart(dialog):
    path, turns = dialog
    extractor = Extractor.load()
    found = extractor.diarize(path)
    assert len(found.speakers) == 2 and found.speakers == ["SPEAKER_01", "SPEAKER_02"]
    right = total = 0.0
    for start, end, speaker in found:
        for turn in turns:
            shared = max(0.0, min(end, turn.end) - max(start, turn.start))
            total += shared
            expected = found.speakers[int(turn.speaker[-1])]
            right += shared * (speaker == expected)
    assert right > 0.9 * total
    for first, second in itertools.pairwise(found):
        assert first.end <= second.start + 1e-6
    samples, rate = soundfile.read(path, dtype="float32")
    assert list(extractor.diarize(samples, rate)) == list(found)
    assert len(extractor.diarize(path, speakers=1).speakers) == 1
    assert len(extractor.diarize(path, speakers=3).speakers) == 3
    assert len(extractor.diarize(path, min_speakers=2, max_speakers=4).speakers) == 2


def test_enrolled_speakers_have_their_names(dialog, tmp_path):
    path, _ = dialog
    extractor = Extractor.load()
    found = extractor.diarize(path)
    file = tmp_path / "dialog.json"
    file.write_text(json.dumps(found.plain()))
    waveform, rate = pipeline.speech_of_speaker(file, "SPEAKER_02", RATE)
    assert len(waveform) / rate == pytest.approx(found.talk_seconds()["SPEAKER_02"], abs=0.01)
    extractor.enroll("Bob Lee", waveform, rate)
    named = extractor.diarize(path)
    assert named.speakers == ["SPEAKER_01", "Bob Lee"]
    assert [turn[:2] for turn in named] == [turn[:2] for turn in found]
    assert extractor.diarize(path, prior=1e-12).speakers == ["SPEAKER_01", "SPEAKER_02"]
    assert "Bob_Lee <NA>" in named.rttm()
    with pytest.raises(ValueError, match="no speaker 'Eve'; known: SPEAKER_01, SPEAKER_02"):
        pipeline.speech_of_speaker(file, "Eve", RATE)


@pytest.mark.parametrize("samples", [0.0 * np.ones(RATE), np.full(100, 0.1), 1e-6 * np.ones(RATE)])
def test_a_recording_without_speech_is_refused(samples):
    with pytest.raises(NoSpeechError, match=r"recording 0 has no speech: none .* by "):
        Extractor.load().diarize(samples.astype(np.float32), RATE)


def test_impossible_numbers_of_speakers_are_refused(dialog):
    samples = soundfile.read(dialog[0], dtype="float32")[0][: 2 * RATE]
    extractor = Extractor.load()
    with pytest.raises(ValueError, match="too few to tell 9 speakers apart"):
        extractor.diarize(samples, RATE, speakers=9)
    for wrong in ({"speakers": 0}, {"min_speakers": -1}, {"max_speakers": 0}):
        with pytest.raises(ValueError, match="at least one speaker"):
            extractor.diarize(samples, RATE, **wrong)
    with pytest.raises(ValueError, match="not both"):
        extractor.diarize(samples, RATE, speakers=2, max_speakers=3)
    with pytest.raises(ValueError, match="at least 3 and at most 2"):
        extractor.diarize(samples, RATE, min_speakers=3, max_speakers=2)
    extractor.model = extractor.model._replace(calibration=None, threshold=None)
    with pytest.raises(ValueError, match="give their number"):
        extractor.diarize(samples, RATE)
    assert extractor.diarize(samples, RATE, speakers=1).speakers == ["SPEAKER_01"]


def test_files_keep_a_conversation(tmp_path):
    turns = [Turn(0.0, 1.5, "Ann"), Turn(2.0, 2.5, "B c"), Turn(3.0, 4.0, "Ann")]
    found = Conversation(turns, "a b.wav", 5.0, "energy")
    assert found.talk_seconds() == {"Ann": 2.5, "B c": 0.5}
    path = tmp_path / "found.json"
    path.write_text(json.dumps(found.plain()))
    again = read_conversation(path)
    assert list(again) == turns and vars(again) == vars(found)
    lines = found.rttm().splitlines()
    assert lines[1] == "SPEAKER a_b 1 2.000 0.500 <NA> <NA> B_c <NA> <NA>"
    assert found.rttm() == rttm_lines("a b", turns)
    assert found.renamed({"B c": "Ann"}).speakers == ["Ann"]
    for wrong in ("[]", "{", '{"turns": [{"start": 2, "end": 1, "speaker": "a"}]}', "\xff"):
        path.write_text(wrong, encoding="latin-1")
        with pytest.raises(ValueError, match="not a file of simple-spk diarize --json"):
            read_conversation(path)


def test_an_annotation_has_the_turns():
    core = pytest.importorskip("pyannote.core", reason="pyannote.core is not installed")
    found = Conversation([Turn(0.0, 1.5, "Ann")], "a.wav", 5.0, "energy").annotation()
    assert list(found.itertracks(yield_label=True)) == [(core.Segment(0.0, 1.5), 0, "Ann")]


def test_rows_make_a_table():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(Conversation([Turn(0.0, 1.5, "Ann")], "a.wav", 5.0, "energy"))
    assert list(table.columns) == ["start", "end", "speaker"] and len(table) == 1


def test_the_result_is_kept_as_a_path_beside_its_file(dialog, tmp_path):
    """A JSON file that was moved finds the recording beside it."""
    source = soundfile.read(dialog[0], dtype="float32")[0]
    soundfile.write(tmp_path / "moved.wav", source, RATE)
    found = Conversation([Turn(0.0, 1.5, "Ann")], "elsewhere/moved.wav", 5.0, "energy")
    path = Path(tmp_path, "found.json")
    path.write_text(json.dumps(found.plain()))
    waveform, _ = pipeline.speech_of_speaker(path, "Ann", RATE)
    assert len(waveform) == 1.5 * RATE
