"""Laws of the extractor: an answer depends on the recordings in question alone."""

import math
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torch.multiprocessing
from numpy.typing import NDArray

import simple_spk
from simple_spk.data.audio import AudioError, read_recording
from simple_spk.distributed import leave_group
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.quality_measures import pack_background, typicality
from simple_spk.evaluation.ratio_spread import Spread
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.model import Model, trained_model
from simple_spk.inference.model_folder import save_model
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct

Parts = tuple[Fbank, ResNet, SimPLELoss]


@pytest.fixture
def extractor(model_folder: Path) -> Extractor:
    return Extractor.load(model_folder)


def relative_error(found: NDArray, expected: NDArray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_answers_do_not_depend_on_batches_or_earlier_calls(
    extractor: Extractor, recordings: list[Path]
) -> None:
    first = extractor.embed(recordings)
    assert first.shape == (6, 16)
    assert first.dtype == np.float32
    alone = np.concatenate([extractor.embed([path]) for path in recordings])
    small = extractor.embed(recordings, batch_seconds=1.5)
    backwards = extractor.embed(recordings[::-1])[::-1]
    for other in (alone, small, backwards):
        for row, expected in zip(other, first, strict=True):
            assert relative_error(row, expected) < 1e-4
    assert np.array_equal(extractor.embed(recordings), first)
    distances = [relative_error(a, b) for a, b in combinations(first, 2)]
    assert min(distances) > 1e-2  # the recordings are not all the same to it


def test_embedding_files_is_embedding_their_waveforms(
    extractor: Extractor, recordings: list[Path]
) -> None:
    waveform = torch.from_numpy(read_recording(recordings[0]))
    found = extractor.embed_waveforms(waveform[None])
    assert not found.requires_grad
    assert relative_error(found.numpy(), extractor.embed(recordings[:1])) < 1e-5


def test_half_the_precision_is_enough_and_has_to_be_spelled_right(
    model_folder: Path, extractor: Extractor, recordings: list[Path]
) -> None:
    half = Extractor.load(model_folder, precision="bf16")
    found, exact = half.embed(recordings), extractor.embed(recordings)
    assert 1e-5 < relative_error(found, exact) < 0.03
    assert np.array_equal(half.embed(recordings[2:3])[0], found[2])
    assert half.fingerprint == extractor.fingerprint  # the voices of one are those of the other
    with pytest.raises(ValueError, match="'fp16'"):
        Extractor.load(model_folder, precision="fp16")  # type: ignore[arg-type]


def test_an_extractor_of_a_model_in_training_answers_the_same(
    tiny_model: Parts, extractor: Extractor, recordings: list[Path]
) -> None:
    """Dither and BatchNorm would make answers depend on chance and on batches."""
    front_end, encoder, loss = tiny_model
    model = Model(front_end.train(), encoder.train(), loss.similarity, None)
    found = Extractor(model).embed(recordings)
    assert relative_error(found, extractor.embed(recordings)) < 1e-4


def test_recordings_of_another_rate_are_brought_to_the_models(
    extractor: Extractor, recordings: list[Path], tmp_path: Path
) -> None:
    """A recording that was made at 8 kHz is the same at 16 kHz, as read_recording brings it."""
    waveform = read_recording(recordings[0], 8000)
    soundfile.write(tmp_path / "8.wav", waveform, 8000, subtype="FLOAT")
    soundfile.write(tmp_path / "16.wav", read_recording(tmp_path / "8.wav"), 16000, subtype="FLOAT")
    low, high = extractor.embed([tmp_path / "8.wav", tmp_path / "16.wav"])
    assert relative_error(low, high) < 1e-4


@pytest.mark.parametrize("similarity", [GeneralizedInnerProduct(), CosineSimilarity()])
def test_a_score_is_the_similarity_and_symmetric(
    similarity: torch.nn.Module, tiny_model: Parts, recordings: list[Path]
) -> None:
    extractor = Extractor(Model(*tiny_model[:2], similarity, None))
    embeddings = torch.from_numpy(extractor.embed(recordings))
    expected = similarity(embeddings, embeddings)
    for i, j in combinations(range(4), 2):
        score = extractor.verify(recordings[i], recordings[j]).score
        assert score == pytest.approx(float(expected[i, j]), rel=1e-3, abs=1e-5)
        back = extractor.verify(recordings[j], recordings[i]).score
        assert back == pytest.approx(score, rel=1e-4, abs=1e-6)


def test_no_recording_resembles_two_recordings_more_than_they_themselves(
    extractor: Extractor, recordings: list[Path]
) -> None:
    """S(a, a) + S(b, b) >= 2 S(a, b) for every generalized inner product with b_theta <= 1."""
    selves = [extractor.verify(path, path).score for path in recordings[:3]]
    for i, j in combinations(range(3), 2):
        other = extractor.verify(recordings[i], recordings[j]).score
        assert selves[i] + selves[j] > 2 * other


def test_decisions_follow_the_threshold(tiny_model: Parts, spoken: list[Path]) -> None:
    front_end, encoder, loss = tiny_model
    first, second = spoken[:2]
    score = Extractor(Model(front_end, encoder, loss.similarity, None)).verify(first, second).score
    for threshold, accepted in ((score - 0.1, True), (score + 0.1, False), (None, None)):
        model = Model(front_end, encoder, loss.similarity, threshold)
        verdict = Extractor(model).verify(first, second)
        assert verdict.accepted is accepted
        assert verdict.threshold == threshold
        assert verdict.probability is None and "not calibrated" in verdict.sureness
        assert ("neither" in verdict.reason) == (threshold is None)


def test_a_saved_threshold_is_used(tiny_model: Parts, spoken: list[Path], tmp_path: Path) -> None:
    """A pair is accepted if S + b > 0."""
    front_end, encoder, loss = tiny_model
    for bias in (-1e6, 1e6):
        torch.nn.init.constant_(loss.bias, bias)
        save_model(tmp_path / "model", trained_model(front_end, encoder, loss))
        assert Extractor.load(tmp_path / "model").verify(*spoken[:2]).accepted is (bias > 0)


# ---- kinds of recordings ------------------------------------------------------------------------


def test_one_recording_is_a_list_of_one_whatever_it_is(
    extractor: Extractor, recordings: list[Path]
) -> None:
    path = recordings[0]
    expected = extractor.embed([path])
    assert expected.shape == (1, 16)
    samples = read_recording(path)
    whole_numbers = soundfile.read(path, dtype="int16")[0]
    stereo = np.stack([samples, samples])
    assert relative_error(extractor.embed(path), expected) == 0.0
    assert relative_error(extractor.embed(str(path)), expected) == 0.0
    for array in (samples, torch.from_numpy(samples), whole_numbers, stereo):
        assert extractor.embed(array, sample_rate=16000).shape == (1, 16)
        assert relative_error(extractor.embed(array, sample_rate=16000), expected) < 1e-4
        found = extractor.embed([path, array, array], sample_rate=16000)
        assert found.shape == (3, 16) and relative_error(found[2:], expected) < 1e-4


def test_what_is_no_recording_is_refused(extractor: Extractor, recordings: list[Path]) -> None:
    with pytest.raises(ValueError, match="how many samples a second"):
        extractor.embed(read_recording(recordings[0]))
    for wrong in ([1.0, 2.0], [[recordings[0]]], [None]):
        with pytest.raises(ValueError, match="a recording is a path, an array or a tensor, not a"):
            extractor.embed(wrong, sample_rate=16000)  # type: ignore[arg-type]


def test_what_overflows_is_an_error_and_never_a_nan(
    tiny_model: Parts, recordings: list[Path]
) -> None:
    """A model that gives numbers for most sounds may not for one of them."""
    front_end, encoder, loss = tiny_model
    torch.nn.init.constant_(encoder.output.linear.weight, 3e38)
    broken = Extractor(trained_model(front_end, encoder, loss))
    for call in (
        lambda: broken.embed(recordings[:2]),
        lambda: broken.verify(*recordings[:2]),
    ):
        with pytest.raises(AudioError, match=r"a[01]\.wav: the model makes no finite embedding"):
            call()
    (batch,) = [batch for batch in broken.embed_each(recordings[:2]) if batch.errors]
    assert batch.indexes == [] and set(batch.errors) == {0, 1}


# ---- verdicts -----------------------------------------------------------------------------------

PAIRS = ((0.1, 2.0), (0.01, 4.0))


@pytest.fixture
def calibrated(extractor: Extractor) -> Extractor:
    """An extractor whose calibration looks at the score and at durations."""
    weights = {"least_log_duration": 0.25, "greatest_length": 0.5}
    calibration = Calibration(2.0, -1.0, weights, 0.01, "list", 1000, 10)
    calibration = replace(calibration, nontarget_spread=Spread({}, {}, PAIRS, 1000))
    return Extractor(extractor.model._replace(calibration=calibration))


def test_a_calibrated_verdict_is_the_formula(calibrated: Extractor, spoken: list[Path]) -> None:
    embeddings = calibrated.embed(spoken)
    for i, j in combinations(range(4), 2):
        verdict = calibrated.verify(spoken[i], spoken[j])
        seconds = [len(read_recording(spoken[k])) / 16000 for k in (i, j)]
        lengths = np.linalg.norm(embeddings[[i, j]], axis=1)
        ratio = -1.0 + 2.0 * verdict.score + 0.25 * math.log(min(seconds))
        ratio += 0.5 * float(lengths.max())
        assert verdict.log_likelihood_ratio == pytest.approx(ratio, rel=1e-4)
        assert verdict.probability == pytest.approx(1 / (1 + np.exp(-ratio)), rel=1e-4)
        assert verdict.accepted is (ratio >= 0)
        assert [side[0].seconds for side in verdict.qualities] == pytest.approx(seconds)
        found = [side[0].embedding_length for side in verdict.qualities]
        assert found == pytest.approx(lengths.tolist(), rel=1e-4)
        for prior in (0.01, 0.9):
            judged = calibrated.verify(spoken[i], spoken[j], prior=prior)
            odds = math.exp(ratio) * prior / (1 - prior)
            assert judged.probability == pytest.approx(odds / (1 + odds), rel=1e-3)
            assert judged.accepted is (odds >= 1)
            assert judged.threshold == pytest.approx(-np.log(prior / (1 - prior)))


def test_typicality_counts_in_verification_and_identification(
    extractor: Extractor, spoken: list[Path]
) -> None:
    one, other = extractor.embed(spoken[:2])
    plain = extractor.verify(*spoken[:2])
    weights = {"least_typicality": 2.0, "greatest_typicality": 3.0}
    background = pack_background(np.linspace(-1.0, 1.0, len(one))[None])
    calibration = Calibration(1.5, 0.5, weights, 0.5, "list", 9, 5, background=background)
    judge = Extractor(extractor.model._replace(calibration=calibration))
    sides = sorted(typicality(np.stack([one, other]), background).tolist())
    assert plain.score is not None
    expected = 0.5 + 1.5 * plain.score + 2.0 * sides[0] + 3.0 * sides[1]
    assert judge.verify(*spoken[:2]).log_likelihood_ratio == pytest.approx(expected, rel=1e-3)
    judge.enroll("Ann", spoken[0], force=True)
    judge.enroll("Bob", spoken[2], force=True)
    found = {one.name: one.log_likelihood_ratio for one in judge.identify(spoken[1]).candidates}
    assert found["Ann"] == pytest.approx(expected, rel=1e-3)


def test_a_false_accept_rate_sets_the_threshold(calibrated: Extractor, spoken: list[Path]) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibrated.verify(*spoken[:2], false_accept_rate=1.5)
    for rate, threshold in ((0.1, 2.0), (0.01, 4.0)):
        verdict = calibrated.verify(*spoken[:2], false_accept_rate=rate)
        assert verdict.threshold == pytest.approx(threshold)
        assert verdict.accepted is (verdict.log_likelihood_ratio >= threshold)
        assert "extrapolated" not in verdict.reason
    strict = calibrated.verify(*spoken[:2], false_accept_rate=1e-3)
    assert 5.5 < strict.threshold < 6.0 and "extrapolated" in strict.reason  # on the same line
    assert verdict.miss_rate is None  # it does not know targets
    targets = Spread({"greatest_length": 0.0}, {}, ((0.9, 0.0), (0.5, 4.0), (0.1, 8.0)), 10)
    known = replace(calibrated.model.calibration, target_spread=targets)
    informed = Extractor(calibrated.model._replace(calibration=known))
    verdict = informed.verify(*spoken[:2], false_accept_rate=0.01)
    assert verdict.miss_rate == pytest.approx(0.5)


def test_probabilities_and_rates_need_a_calibration(
    extractor: Extractor, calibrated: Extractor, spoken: list[Path]
) -> None:
    with pytest.raises(ValueError, match=r"not calibrated.*error rates"):
        extractor.verify(*spoken[:2], false_accept_rate=0.01)
    with pytest.raises(ValueError, match=r"not calibrated.*probabilities"):
        extractor.verify(*spoken[:2], prior=0.5)
    for wrong in (0.0, 1.0, -3.0):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            calibrated.verify(*spoken[:2], prior=wrong)
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            calibrated.verify(*spoken[:2], false_accept_rate=wrong)


def test_several_recordings_are_compared_as_their_mean(
    calibrated: Extractor, spoken: list[Path]
) -> None:
    embeddings = torch.from_numpy(calibrated.embed(spoken))
    verdict = calibrated.verify(spoken[:3], spoken[3:5])
    templates = []
    for side in (embeddings[:3], embeddings[3:5]):  # as long as the recordings on average
        mean = side.mean(0, keepdim=True)
        templates.append(mean * side.norm(dim=1).mean() / mean.norm())
    expected = float(calibrated.model.similarity.pairs(*templates))
    assert verdict.score == pytest.approx(expected, rel=1e-4)
    assert [len(side) for side in verdict.qualities] == [3, 2]


def test_too_little_speech_or_too_much_noise_is_no_evidence(
    calibrated: Extractor, spoken: list[Path]
) -> None:
    """The score is given all the same; enrolling such a voice is refused."""
    speech = read_recording(spoken[0])
    noise = np.random.default_rng(0).normal(0.0, 0.1, 32000).astype(np.float32)
    padded = np.concatenate([np.zeros(16000), 0.001 * noise[:8000], speech[:4000]])
    for bad in (speech[:4000], noise, padded.astype(np.float32)):
        for sides in ((bad, speech), (speech, bad)):
            verdict = calibrated.verify(*sides, sample_rate=16000)
            assert verdict.accepted is None
            assert np.isfinite([verdict.score, verdict.probability]).all()
            which = "first" if sides[0] is bad else "second"
            assert f"the {which} recording has" in verdict.reason
            assert " s of speech" in verdict.reason or " dB" in verdict.reason
        with pytest.raises(ValueError, match="cannot be enrolled: the recordings have"):
            calibrated.enroll("Ann", bad, sample_rate=16000)
    assert calibrated.verify(speech, [speech[:4000], speech], 16000).accepted is not None


# ---- known voices -------------------------------------------------------------------------------


def test_identification_is_verification_against_each_voice(
    calibrated: Extractor, spoken: list[Path]
) -> None:
    groups = {"Ann": spoken[0:2], "Bob": spoken[2:4], "Cid": spoken[4:5]}
    for name, paths in groups.items():
        calibrated.enroll(name, paths, force=True)
    found = calibrated.identify(spoken[5])
    assert {candidate.name for candidate in found.candidates} == set(groups)
    odds = []
    for candidate in found.candidates:
        verdict = calibrated.verify(groups[candidate.name], spoken[5])
        assert candidate.score == pytest.approx(verdict.score, rel=1e-4)
        assert candidate.log_likelihood_ratio == pytest.approx(verdict.log_likelihood_ratio, 1e-3)
        odds.append(np.exp(verdict.log_likelihood_ratio) / 3)
    assert odds == sorted(odds, reverse=True)
    expected = np.array(odds) / (1 + sum(odds))
    assert [c.probability for c in found.candidates] == pytest.approx(expected.tolist(), rel=1e-2)


def test_identification_may_know_nobody_and_asks_more_of_more_voices(
    calibrated: Extractor, spoken: list[Path]
) -> None:
    with pytest.raises(ValueError, match="no voice is enrolled"):
        calibrated.identify(spoken[0])
    thresholds = []
    for number in range(5):
        calibrated.enroll(f"voice {number}", spoken[number], force=True)
        found = calibrated.identify(spoken[5], false_accept_rate=0.1)
        assert found.threshold == pytest.approx(
            calibrated.model.calibration.threshold_at(0.1 / (number + 1)).log_likelihood_ratio
        )
        best = found.candidates[0]
        assert found.accepted is (best.log_likelihood_ratio >= found.threshold)
        assert found.name == (best.name if found.accepted else None)
        thresholds.append(found.threshold)
    assert thresholds == sorted(thresholds) and thresholds[0] < thresholds[-1]
    never = calibrated.identify(spoken[5], prior=1e-12)
    assert never.name is None and never.accepted is False
    short = calibrated.identify(read_recording(spoken[5])[:4000], sample_rate=16000)
    assert short.accepted is None and "the recording has" in short.reason


def test_one_voice_under_two_names_cannot_be_told_apart(
    calibrated: Extractor, spoken: list[Path]
) -> None:
    for name in ("Ann", "Anna"):
        calibrated.enroll(name, spoken[0], force=True)
    found = calibrated.identify(spoken[0], prior=0.999)
    assert found.accepted is None and "about as likely" in found.reason
    calibrated.voices.remove("Anna")
    assert calibrated.identify(spoken[0], prior=0.999).name == "Ann"


def test_many_recordings_are_identified_as_each_alone(
    calibrated: Extractor, spoken: list[Path], tmp_path: Path
) -> None:
    for number in range(4):
        calibrated.enroll(f"voice {number}", spoken[number], force=True)
    silence = np.zeros(16000, np.float32)
    items = [spoken[4], spoken[4:6], tmp_path / "missing.wav", silence]
    several, both, missing, silent = calibrated.identify_each(items, sample_rate=16000)
    for answer, recordings in ((several, spoken[4]), (both, spoken[4:6])):
        alone = calibrated.identify(recordings)
        assert (answer.name, answer.reason) == (alone.name, alone.reason)
        assert [one.name for one in answer.candidates] == [one.name for one in alone.candidates]
        for found, expected in zip(answer.candidates, alone.candidates, strict=True):
            assert found[1:] == pytest.approx(expected[1:], rel=1e-4)
    assert isinstance(missing, AudioError) and "missing.wav" in str(missing)
    assert silent.accepted is None and silent.candidates == ()
    whole = calibrated.identify(spoken[4], top=None).candidates
    assert len(whole) == 4
    first = calibrated.identify(spoken[4], top=2).candidates
    assert first == whole[:2]  # probabilities count all voices, shown or not
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            calibrated.identify(spoken[4], top=wrong)


def test_what_cannot_be_used_is_left_out_if_the_caller_wants(
    extractor: Extractor, spoken: list[Path], tmp_path: Path
) -> None:
    missing = tmp_path / "missing.wav"
    with pytest.raises(AudioError, match=r"missing\.wav"):
        extractor.verify([spoken[0], missing], spoken[1])
    left_out = {}
    found = extractor.verify([spoken[0], missing], spoken[1], left_out=left_out.__setitem__)
    assert list(left_out) == [missing] and isinstance(left_out[missing], AudioError)
    assert found.score == pytest.approx(extractor.verify(*spoken[:2]).score, rel=1e-4)
    with pytest.raises(AudioError, match=r"missing\.wav"):
        extractor.verify([missing], spoken[1], left_out=left_out.__setitem__)


# ---- threads ------------------------------------------------------------------------------------


class Meddling(GeneralizedInnerProduct):
    """A similarity during whose computation somebody else is at work."""

    meddle: Callable[[], None] = staticmethod(lambda: None)

    def lift_queries(self, queries: torch.Tensor) -> torch.Tensor:
        self.meddle()
        return super().lift_queries(queries)


def test_an_answer_is_about_the_voices_at_one_moment(tiny_model: Parts, spoken: list[Path]) -> None:
    similarity = Meddling()
    extractor = Extractor(Model(*tiny_model[:2], similarity, None))
    for name, path in (("Ann", spoken[0]), ("Bob", spoken[2]), ("Cid", spoken[4])):
        extractor.enroll(name, path)

    def meddle() -> None:
        extractor.voices.remove("Ann")
        extractor.voices.rename("Bob", "Ann")
        extractor.voices.add("Dan", extractor.voices["Cid"])

    similarity.meddle = meddle
    during = extractor.identify(spoken[5]).candidates
    assert {one.name for one in during} == {"Ann", "Cid", "Dan"}
    similarity.meddle = Meddling.meddle
    assert extractor.identify(spoken[5]).candidates == during
    similarity.meddle = lambda: extractor.voices.remove("Ann", "Cid", "Dan")
    with pytest.raises(ValueError, match="no voice is enrolled"):
        extractor.identify(spoken[5])


def test_eight_threads_get_the_answers_of_one(calibrated: Extractor, spoken: list[Path]) -> None:
    """While they identify, verify and enroll, one more enrolls and removes all the time."""
    calibrated.enroll("Ann", spoken[0])
    voice = calibrated.voices["Ann"]
    opposite = voice._replace(embedding=-voice.embedding)
    expected = calibrated.identify(spoken[0]), calibrated.verify(*spoken[:2])
    done = threading.Event()

    def change() -> None:
        number = 0
        while not done.is_set():
            calibrated.voices.add(f"stranger {number}", opposite)
            if number >= 20:
                calibrated.voices.remove(f"stranger {number - 20}")
            number += 1

    def use(number: int) -> None:
        for _ in range(4):
            found = calibrated.identify(spoken[0], top=None)
            assert found.candidates[0].name == "Ann" and len(found.candidates) > 0
            assert found.candidates[0].score == pytest.approx(expected[0].candidates[0].score, 1e-4)
            scores = [one.score for one in found.candidates if one.name.startswith("stranger")]
            assert not scores or max(scores) < found.candidates[0].score
            decision = calibrated.verify(*spoken[:2])
            assert decision.score == pytest.approx(expected[1].score, rel=1e-4)
        calibrated.enroll(f"thread {number}", spoken[0], force=True)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(9) as pool:
            changing = pool.submit(change)
            try:
                for future in [pool.submit(use, number) for number in range(8)]:
                    future.result()
            finally:
                done.set()
            changing.result()
    finally:
        sys.setswitchinterval(interval)
    assert {f"thread {number}" for number in range(8)} <= set(calibrated.voices)


def test_threads_that_ask_first_share_one_store(model_folder: Path) -> None:
    extractor = Extractor.load(model_folder)
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: extractor.voices, range(8)))
    assert len(set(map(id, stores))) == 1


# ---- the built-in model -------------------------------------------------------------------------

BUILTIN = Path(simple_spk.__file__).with_name("builtin_model")


@pytest.mark.skipif(BUILTIN.is_dir(), reason="this copy comes with a model")
def test_a_copy_without_a_model_says_so() -> None:
    with pytest.raises(FileNotFoundError, match="comes without a model: name a model folder"):
        Extractor.load()


@pytest.mark.skipif(not BUILTIN.is_dir(), reason="this copy comes without a model")
def test_the_built_in_model_is_small_calibrated_and_documented() -> None:
    extractor = Extractor.load()
    assert sum(path.stat().st_size for path in BUILTIN.iterdir()) <= 8_000_000
    assert {path.name for path in BUILTIN.iterdir()} == {
        *("README.md", "config.yaml", "model.safetensors")
    }
    assert extractor.model.calibration is not None and extractor.model.training_data
    assert extractor.model.calibration.score_weight > 0


@pytest.mark.skipif(not BUILTIN.is_dir(), reason="this copy comes without a model")
@pytest.mark.skipif("SIMPLE_SPK_DATA" not in os.environ, reason="SIMPLE_SPK_DATA is not set")
def test_the_built_in_model_knows_voices_apart() -> None:
    folder = Path(os.environ["SIMPLE_SPK_DATA"], "speech", "speechocean762")
    speakers = sorted(folder.iterdir())[-3:]
    extractor = Extractor.load()
    for speaker in speakers[:2]:
        extractor.enroll(speaker.name, sorted(speaker.glob("*.ogg"))[:2])
    for speaker in speakers[:2]:
        test = sorted(speaker.glob("*.ogg"))[5]
        assert extractor.identify(test).name == speaker.name
        assert extractor.verify(sorted(speaker.glob("*.ogg"))[0], test).accepted is True
    assert extractor.identify(sorted(speakers[2].glob("*.ogg"))[0]).name is None


# ---- recordings that cannot be used -------------------------------------------------------------


def test_a_recording_that_is_too_short_is_named_in_any_company(
    extractor: Extractor, recordings: list[Path], tmp_path: Path
) -> None:
    """Less than one frame has no embedding, alone or beside longer recordings."""
    short = tmp_path / "short.wav"
    soundfile.write(short, np.zeros(399, dtype=np.float32), 16000)
    with pytest.raises(ValueError, match=r"short\.wav"):
        extractor.embed([*recordings[:2], short])
    with pytest.raises(ValueError, match=r"short\.wav"):
        extractor.embed([short])


@pytest.mark.parametrize("milliseconds", [10.0, 50.0])
def test_what_is_too_short_depends_on_the_models_frames(
    milliseconds: float, tiny_model: Parts, recordings: list[Path], tmp_path: Path
) -> None:
    _, encoder, loss = tiny_model
    front_end = Fbank(frame_milliseconds=milliseconds)
    extractor = Extractor(trained_model(front_end, encoder, loss))
    path = tmp_path / "short.wav"
    for missing in (0, 1):
        samples = front_end.frame_samples - missing
        soundfile.write(path, np.linspace(-0.5, 0.5, samples), 16000)
        if not missing:
            assert np.isfinite(extractor.embed([recordings[0], path])).all()
            continue
        message = rf"short\.wav lasts .* ms, less than one frame of {milliseconds:.0f} ms"
        for some in ([path], [recordings[0], path]):
            with pytest.raises(AudioError, match=message):
                extractor.embed(some)
        assert extractor.verify(recordings[0], path).score is None


def test_digital_silence_within_a_recording_does_no_harm(
    extractor: Extractor, tmp_path: Path, noisy_tone: Callable[..., NDArray[np.float32]]
) -> None:
    silence, half = tmp_path / "silence.wav", tmp_path / "half.wav"
    soundfile.write(silence, np.zeros(8000, dtype=np.float32), 16000)
    soundfile.write(half, np.concatenate([noisy_tone(0.5), np.zeros(8000)]), 16000)
    assert np.isfinite(extractor.embed([half])).all()
    with pytest.raises(AudioError, match=r"silence\.wav is silent"):
        extractor.embed([half, silence])


def test_a_recording_that_holds_nothing_gets_a_verdict_of_its_own(
    extractor: Extractor, spoken: list[Path], tmp_path: Path
) -> None:
    silence, short = tmp_path / "silence.wav", tmp_path / "short.wav"
    soundfile.write(silence, np.zeros(8000, dtype=np.float32), 16000)
    soundfile.write(short, np.ones(3, dtype=np.float32), 16000)
    for bad in (silence, short):
        verdict = extractor.verify(spoken[0], bad)
        assert verdict.score is None and verdict.accepted is None and bad.name in verdict.reason
    extractor.enroll("Ann", spoken[0])
    found = extractor.identify(silence)
    assert found.name is None and found.accepted is None and "is silent" in found.reason


def judge_in_process(process: int, folder: str) -> None:
    """One of two processes that verify together; the second recording is the second one's."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=process, world_size=2
    )
    extractor = Extractor.load(Path(folder, "model"))
    good, silent, missing = (Path(folder, f"{name}.wav") for name in ("good", "silent", "missing"))
    verdict = extractor.verify(good, silent)
    assert verdict.accepted is None and "silent.wav is silent" in verdict.reason
    with pytest.raises(AudioError, match=r"no audio file at .*missing\.wav"):
        extractor.verify(silent, missing)
    assert extractor.verify(good, good).score is not None
    leave_group()


def test_processes_that_verify_together_answer_alike_whatever_fails(
    model_folder: Path, spoken: list[Path], tmp_path: Path
) -> None:
    """Neither waits for the other's part of a recording that cannot be used."""
    assert model_folder == tmp_path / "model"
    (tmp_path / "good.wav").symlink_to(spoken[0])
    soundfile.write(tmp_path / "silent.wav", np.zeros(16000), 16000)
    torch.multiprocessing.spawn(judge_in_process, args=(str(tmp_path),), nprocs=2)


def test_content_counts_and_not_the_extension(
    extractor: Extractor, spoken: list[Path], tmp_path: Path
) -> None:
    samples, rate = soundfile.read(spoken[0], dtype="int16")
    wrong = tmp_path / "flac.wav"
    soundfile.write(wrong, samples, rate, format="FLAC")
    (quality,), (right,) = extractor.verify(wrong, spoken[0]).qualities
    assert (quality.sample_rate, quality.misnamed) == (rate, "FLAC named .wav")
    assert right.misnamed is None
    np.testing.assert_array_equal(extractor.embed(wrong), extractor.embed(spoken[0]))
    wrong.write_text("not a recording")
    with pytest.raises(AudioError, match=r"flac\.wav holds text, not audio"):
        extractor.verify(wrong, spoken[0])


def test_a_missing_recording_is_named(extractor: Extractor, recordings: list[Path]) -> None:
    with pytest.raises(AudioError, match=r"missing\.wav"):
        extractor.embed([*recordings, "missing.wav"])


def test_no_recordings_at_all_are_called_so(extractor: Extractor) -> None:
    with pytest.raises(ValueError, match="no recordings"):
        extractor.embed([])
