"""Laws of augmentation: levels are what they say, and a seed is all that is random."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from simple_spk.data.augmentation import (
    Augmentation,
    NoiseKind,
    in_room,
    random_filter,
    through_channel,
    with_noise,
)
from simple_spk.data.manifest import write_manifest

RANDOM = np.random.default_rng(0)


def noise(samples: int = 16000) -> np.ndarray:
    return RANDOM.normal(0, 0.1, samples).astype(np.float32)


def decibels(signal: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(signal.astype(np.float64) ** 2)))


@pytest.fixture
def noises(tmp_path: Path) -> Path:
    """Noises of the kinds of MUSAN, longer and shorter than a crop, each a tone of its own."""
    rows = []
    for number, kind in enumerate(["noise", "music", "speech"] * 3):
        path = tmp_path / f"{kind}{number}.wav"
        times = np.arange(8000 * (1 + number)) / 16000
        soundfile.write(path, 0.1 * np.sin(2 * np.pi * (300 + 100 * number) * times), 16000)
        rows.append((path.stem, path.name, len(times) / 16000, kind))
    write_manifest(tmp_path / "musan.csv", *zip(*rows, strict=True))
    return tmp_path / "musan.csv"


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    response = np.zeros(4000)
    response[100] = 0.5
    response[1000:] = 0.02 * RANDOM.normal(size=3000)
    soundfile.write(tmp_path / "room.wav", response, 16000)
    write_manifest(tmp_path / "rooms.csv", ["room"], ["room.wav"], [0.25], ["room"])
    return tmp_path / "rooms.csv"


@pytest.mark.parametrize("level", [0.0, 7.5, 20.0])
def test_noise_is_as_far_below_speech_as_it_says(level: float) -> None:
    speech, sound = noise(), 3.0 * noise()
    added = with_noise(speech, sound, level) - speech
    assert decibels(speech) - decibels(added) == pytest.approx(level, abs=0.01)
    assert np.corrcoef(added, sound)[0, 1] > 0.9999


def test_silence_has_no_level() -> None:
    silence, speech = np.zeros(100, dtype=np.float32), noise(100)
    assert np.array_equal(with_noise(silence, speech, 5.0), silence)
    assert np.array_equal(with_noise(speech, silence, 5.0), speech)
    assert np.array_equal(in_room(silence, speech), silence)


def test_a_room_keeps_loudness_length_and_time() -> None:
    speech = noise()
    response = np.zeros(500, dtype=np.float32)
    response[70] = -0.3  # nothing but a delayed, weaker direct path
    assert np.allclose(in_room(speech, response), -speech, atol=1e-5)
    response[200:] = 0.01 * noise(300)
    wet = in_room(speech, response)
    assert len(wet) == len(speech)
    assert decibels(wet) == pytest.approx(decibels(speech), abs=0.01)


def test_the_seed_decides_everything(noises: Path, rooms: Path) -> None:
    speech = noise()
    first = Augmentation(noises, rooms, probability=0.8)
    second = Augmentation(noises, rooms, probability=0.8)
    results = [first(speech, seed) for seed in range(30)]
    for seed in reversed(range(30)):  # in any order, in any process
        assert np.array_equal(second(speech, seed), results[seed])
    assert all(len(result) == len(speech) and result.dtype == np.float32 for result in results)
    untouched = sum(np.array_equal(result, speech) for result in results)
    assert 0 < untouched < 15
    assert len({result.tobytes() for result in results}) > 10


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_probability(probability: float, noises: Path) -> None:
    speech, augmentation = noise(), Augmentation(noises, probability=probability)
    for seed in range(10):
        assert np.array_equal(augmentation(speech, seed), speech) == (probability == 0.0)


def test_levels_and_numbers_of_voices_are_those_of_the_kind(noises: Path) -> None:
    speech = noise()
    augmentation = Augmentation(
        noises, probability=1.0, kinds={"speech": NoiseKind((13.0, 20.0), (3, 3))}
    )
    for seed in range(10):
        added = augmentation(speech, seed) - speech
        assert 12.9 <= decibels(speech) - decibels(added) <= 20.1


def test_mistakes_are_named(noises: Path, rooms: Path) -> None:
    with pytest.raises(ValueError, match="noises, rooms, or both"):
        Augmentation()
    with pytest.raises(ValueError, match=r"\[0, 1\], not 1.5"):
        Augmentation(noises, probability=1.5)
    with pytest.raises(ValueError, match=r"rooms.csv has no recordings of the kinds music, noise"):
        Augmentation(rooms)


def test_a_random_filter_changes_levels_by_frequency_as_much_as_it_says():
    impulse = np.zeros(16001, dtype=np.float32)
    impulse[0] = 1.0
    random = np.random.default_rng(1)
    gains = [
        20 * np.log10(np.abs(np.fft.rfft(random_filter(impulse, random, 16000, 5.0)))[1000:7000])
        for _ in range(200)
    ]
    assert 3.0 < np.std(gains) < 6.0  # between two knots, their mean deviates less
    assert abs(np.mean(gains)) < 1.0


def test_a_band_keeps_its_inside_and_loses_its_outside():
    hertz = np.array([60.0, 1000.0, 7500.0])
    times = np.arange(16000) / 16000
    for number, tone in enumerate(np.sin(2 * np.pi * hertz[:, None] * times)):
        random = np.random.default_rng(2)
        heard = random_filter(tone.astype(np.float32), random, 16000, 0.0, (300.0, 3400.0))
        loss = decibels(tone) - decibels(heard)
        assert abs(loss) < 0.1 if number == 1 else loss > 20.0


def test_a_channel_depends_on_its_seed_alone():
    speech = noise()
    heard = [through_channel(speech, np.random.default_rng(seed), 16000) for seed in (3, 3, 4)]
    assert np.array_equal(heard[0], heard[1]) and not np.array_equal(heard[0], heard[2])
    assert heard[0].dtype == np.float32
