"""Laws of quality: noise lowers it, silence is no speech, and no input breaks it."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simple_spk.data.codecs import telephone_band
from simple_spk.inference.decisions import lack_of_evidence, mismatch_warnings, quality_warnings
from simple_spk.inference.speech_detector import SpeechDetector
from simple_spk.inference.speech_quality import QualityMeter, RecordingQuality, quality_of_file

RATE = 16000


def measure_quality(waveform: NDArray[np.float32], sample_rate: int) -> RecordingQuality:
    """The quality of a whole recording (samples,)."""
    meter = QualityMeter(sample_rate)
    meter.add(waveform)
    return meter.quality()


def talk(seconds: float = 6.0, gate: bool = False, seed: int = 0) -> NDArray[np.float32]:
    """Syllables of a buzzing voice, a third of a second each, with pauses, over faint noise."""
    dice = np.random.default_rng(seed)
    time = np.arange(round(seconds * RATE)) / RATE
    voice = sum(np.sin(2 * np.pi * 120.0 * n * time + n) / n for n in range(1, 20))
    loudness = np.repeat(dice.choice([0.0, 0.5, 1.0], len(time) // 4800 + 1), 4800)[: len(time)]
    noise = 0.0 if gate else 1e-4 * dice.standard_normal(len(time))
    return (0.1 * voice * loudness + noise).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_more_noise_is_less_signal_to_noise(seed: int) -> None:
    clean = talk(seed=seed)
    noise = np.random.default_rng(99).standard_normal(len(clean)).astype(np.float32)
    power = float(np.mean(clean[np.abs(clean) > 1e-3] ** 2))
    found = [
        measure_quality(clean + noise * np.float32(np.sqrt(power) * 10 ** (-true / 20)), RATE)
        for true in (40, 30, 20, 10, 5, 0, -10, -20)
    ]
    ratios = [quality.signal_to_noise_db for quality in found]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[1:4] == pytest.approx([30, 20, 10], abs=3.0)
    assert ratios[-1] < 0.0
    assert found[-1].speech_seconds == 0.0


@pytest.mark.parametrize("gate", [False, True])
def test_speech_is_what_is_louder_than_the_pauses(gate: bool) -> None:
    """Also where the pauses are exact zeros."""
    speech = talk(gate=gate)
    true_seconds = float(np.mean(np.abs(speech) > 1e-3)) * 6.0
    quality = measure_quality(speech, RATE)
    assert quality.seconds == 6.0
    assert true_seconds < quality.speech_seconds + 0.5
    assert quality.speech_seconds < true_seconds + 1.5  # with a little before and behind each word
    assert quality.signal_to_noise_db > (10.0 if gate else 30.0)
    # zeros around a recording change neither figure
    padded = measure_quality(np.pad(speech, RATE), RATE)
    assert padded.seconds == 8.0
    assert padded.speech_seconds == pytest.approx(quality.speech_seconds, abs=0.3)
    assert padded.signal_to_noise_db == pytest.approx(quality.signal_to_noise_db, abs=1.0)
    # and neither does a gain, nor a constant
    changed = measure_quality(0.25 * speech + np.float32(0.1), RATE)
    assert changed.speech_seconds == pytest.approx(quality.speech_seconds, abs=0.3)


@pytest.mark.parametrize("value", [0.0, 0.25, -1.0])
@pytest.mark.parametrize("samples", [0, 1, 319, 320, 50000])
def test_a_constant_holds_no_speech(value: float, samples: int) -> None:
    quality = measure_quality(np.full(samples, value, np.float32), RATE)
    assert quality.speech_seconds == quality.clipped_share == 0.0
    assert np.isfinite([x for x in quality if x is not None]).all()
    assert quality.seconds == samples / RATE


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 1.0, 32768.0, 2.0**31])
def test_whatever_the_scale_all_figures_are_numbers(scale: float) -> None:
    noise = np.random.default_rng(0).standard_normal(RATE).astype(np.float32) * np.float32(scale)
    for waveform in (noise, noise[:400], talk(2.0) * np.float32(scale)):
        quality = measure_quality(waveform, RATE)
        assert np.isfinite([x for x in quality if x is not None]).all()
    assert measure_quality(noise, RATE).speech_seconds == 0.0


def test_clipped_samples_are_counted_and_loud_ones_are_not() -> None:
    speech = talk()
    assert measure_quality(speech, RATE).clipped_share == 0.0
    limit = np.float32(0.5 * np.abs(speech).max())
    clipped = np.clip(speech, -limit, limit)
    share = float(np.mean(np.abs(clipped) == limit))
    assert measure_quality(clipped, RATE).clipped_share == pytest.approx(share, rel=0.2)
    assert share > 0.001
    whole_numbers = np.round(0.001 * talk() * 32768) / np.float32(32768)  # few bits, not clipped
    assert measure_quality(whole_numbers, RATE).clipped_share == 0.0


def test_windows_add_up() -> None:
    speech = talk(6.0)
    meter = QualityMeter(RATE)
    for start in range(0, len(speech), 31001):
        meter.add(speech[start : start + 31001])
    assert meter.quality() == pytest.approx(measure_quality(speech, RATE))


def test_a_telephone_is_told_by_its_band() -> None:
    random = np.random.default_rng(0)
    speech = talk() + (0.01 * random.standard_normal(6 * RATE)).astype(np.float32)
    wide, narrow = (
        measure_quality(sound, RATE) for sound in (speech, telephone_band(speech, RATE))
    )
    assert not wide.is_narrow and wide.bandwidth_hertz > 7000.0
    assert narrow.is_narrow and 3000.0 < narrow.bandwidth_hertz <= 4200.0
    assert wide.sound_measures()[-1] == 0.0 and narrow.sound_measures()[-1] == 1.0
    assert mismatch_warnings([wide], [narrow]) and "telephone band" in quality_warnings(narrow)
    for sound in (narrow, wide):  # resampled noise is not narrow
        file_of_8_khz = sound._replace(sample_rate=8000)
        assert "telephone band (a file of 8 kHz)" in quality_warnings(file_of_8_khz)
        assert mismatch_warnings([wide], [file_of_8_khz])
    assert not mismatch_warnings([wide], [wide]) and not mismatch_warnings([narrow], [narrow])


def test_speech_below_the_noise_is_no_evidence() -> None:
    clear = measure_quality(talk(), RATE)
    noisy = clear._replace(signal_to_noise_db=-3.0)
    assert lack_of_evidence([noisy]) == "a signal-to-noise ratio of -3 dB, and 0 dB is the least"
    assert lack_of_evidence([noisy, clear]) is None


def test_a_tone_is_no_speech() -> None:
    tone = (0.3 * np.sin(2 * np.pi * 440.0 * np.arange(3 * RATE) / RATE)).astype(np.float32)
    assert "a tone, not speech" in quality_warnings(measure_quality(tone, RATE))
    assert "a tone, not speech" not in quality_warnings(measure_quality(talk(), RATE))


def test_measures_of_a_recording_do_not_depend_on_its_parts() -> None:
    speech = talk(seed=3)
    meter = QualityMeter(RATE)
    for part in np.split(speech, [100, 5000, 5001, 40_000]):
        meter.add(part)
    assert meter.quality().sound_measures() == pytest.approx(
        measure_quality(speech, RATE).sound_measures()
    )


NO_DETECTOR = SpeechDetector(RATE).seconds is None


@pytest.mark.silero_vad
@pytest.mark.skipif(NO_DETECTOR, reason="the extra [vad] is not installed")
@pytest.mark.skipif(
    not Path(os.environ.get("SIMPLE_SPK_DATA", ""), "speech").is_dir(),
    reason="SIMPLE_SPK_DATA names no folder with speech",
)
def test_the_detector_finds_speech() -> None:
    speech = next(Path(os.environ["SIMPLE_SPK_DATA"], "speech").rglob("*.ogg"))
    heard = quality_of_file(speech, RATE)
    assert heard.detected_speech_seconds is not None
    assert heard.detected_speech_seconds > 0.4 * heard.speech_seconds


@pytest.mark.silero_vad
@pytest.mark.skipif(NO_DETECTOR, reason="the extra [vad] is not installed")
def test_the_detector_finds_no_speech_in_music() -> None:
    time = np.arange(6 * RATE) / RATE
    chords = sum(np.sin(2 * np.pi * hertz * time) for hertz in (220.0, 277.2, 329.6))
    music = (0.1 * chords * (np.sin(8 * time) > 0)).astype(np.float32)
    assert "music or noise, hardly any speech" in quality_warnings(measure_quality(music, RATE))
