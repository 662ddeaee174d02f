"""Laws of codecs: same length, time and loudness; the band and the bits are those of the codec."""

import io

import av
import numpy as np
import pytest
from scipy.signal import correlate

from simple_spk.data import codecs
from simple_spk.data.augmentation import Augmentation
from simple_spk.data.codecs import CODECS, bit_rate_range, through_codec, unavailable_codecs

RATE = 16000
WORKING = [name for name in CODECS if name not in unavailable_codecs()]


def noise(samples: int = 32000, seed: int = 0) -> np.ndarray:
    """Noise with a random spectral tilt and pauses, as speech has them."""
    random = np.random.default_rng(seed)
    sound = random.normal(0, 0.1, samples)
    sound[1:] += 0.5 * sound[:-1]
    return (sound * (np.sin(np.arange(samples) / 2000) > -0.5)).astype(np.float32)


def best(name: str) -> float | None:
    """The highest bit rate of a codec."""
    limits = bit_rate_range(name)
    return None if limits is None else limits[1]


def power(signal: np.ndarray, lowest: float, highest: float, rate: int = RATE) -> float:
    """The share of a signal's power that is in a band."""
    spectrum = np.abs(np.fft.rfft(signal.astype(np.float64))) ** 2
    hertz = np.fft.rfftfreq(len(signal), 1 / rate)
    return float(spectrum[(hertz >= lowest) & (hertz < highest)].sum() / spectrum.sum())


def test_every_codec_works_or_has_a_reason():
    for name, reason in unavailable_codecs().items():
        assert name in CODECS and "has no " in reason
    assert {"mp3", "opus", "aac", "mulaw", "alaw", "telephone"} <= set(WORKING)


@pytest.mark.parametrize("name", WORKING)
def test_length_time_and_loudness_stay(name):
    speech = noise()
    for samples in (32000, 31999, 16385, 500):
        heard = through_codec(speech[:samples], name, best(name))
        assert heard.shape == (samples,) and heard.dtype == np.float32
        assert np.mean(heard**2) == pytest.approx(np.mean(speech[:samples] ** 2), rel=1e-3)
    heard = through_codec(speech, name, best(name))
    assert correlate(heard, speech).argmax() == len(speech) - 1
    limits = bit_rate_range(name)
    if limits is not None:  # few bits leave less that can be found again
        heard = through_codec(speech, name, limits[0])
        assert abs(int(correlate(heard, speech).argmax()) - (len(speech) - 1)) <= 4


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.parametrize("rate", [8000, 11025, 44100])
def test_other_sample_rates_keep_length_and_time(name, rate):
    speech = noise(2 * rate)
    heard = through_codec(speech, name, best(name), rate)
    assert len(heard) == len(speech)
    assert abs(int(correlate(heard, speech).argmax()) - (len(speech) - 1)) <= rate // 8000


@pytest.mark.parametrize("name", WORKING)
def test_the_same_speech_becomes_the_same(name):
    speech = noise()
    first = through_codec(speech, name, best(name))
    through_codec(noise(seed=1), name, best(name))
    assert np.array_equal(first, through_codec(speech, name, best(name)))
    assert not np.array_equal(first, speech)


@pytest.mark.parametrize("name", WORKING)
def test_silence_stays_and_loud_speech_is_not_clipped(name):
    for samples in (0, 1, 4000):
        silence = np.zeros(samples, np.float32)
        assert np.array_equal(through_codec(silence, name, best(name)), silence)
    speech = noise()
    assert np.abs(3 * speech).max() > 1.0
    twice = [through_codec(f * speech, name, best(name)) / f for f in np.float32([3.0, 6.0])]
    assert np.allclose(*twice, atol=1e-3)


@pytest.mark.parametrize("name", ["amr_nb", "mulaw", "alaw", "telephone"])
def test_telephones_keep_their_band_only(name):
    if name not in WORKING:
        pytest.skip(unavailable_codecs()[name])
    heard = through_codec(noise(), name, best(name))
    assert power(heard, 4400, 8001) < 1e-3 < 0.1 < power(noise(), 4400, 8001)
    if name == "telephone":
        assert power(heard, 0, 200) < 1e-4 and power(heard, 3700, 8001) < 0.02
        tones = [np.sin(2 * np.pi * hertz * np.arange(RATE) / RATE) for hertz in (310, 1000, 3390)]
        for tone in np.float32(tones):
            band = codecs.telephone_band(tone)
            assert np.abs(band - tone)[800:-800].max() < 1e-2


@pytest.mark.parametrize("name", [name for name in WORKING if bit_rate_range(name) is not None])
def test_more_bits_leave_less_error(name):
    speech, limits = noise(), bit_rate_range(name)
    errors = [1 - np.corrcoef(through_codec(speech, name, k), speech)[0, 1] for k in limits]
    assert errors[1] < errors[0]


def test_mp3_equals_that_of_a_file():
    """Packets without a container decode to what a whole mp3 file in memory does."""
    speech, file = noise(), io.BytesIO()
    with av.open(file, "w", format="mp3") as container:
        stream = container.add_stream("libmp3lame", rate=RATE, layout="mono", format="fltp")
        stream.bit_rate, stream.options = 32000, {"compression_level": "7"}
        frame = av.AudioFrame.from_ndarray(speech[None], format="fltp", layout="mono")
        frame.sample_rate = RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    file.seek(0)
    with av.open(file) as container:
        decoded = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
    expected = np.concatenate(decoded)[: len(speech)]
    heard = through_codec(speech, "mp3", 32.0)
    assert np.corrcoef(heard[2000:-2000], expected[2000 : len(speech) - 2000])[0, 1] > 0.9999


def test_mistakes_are_named(monkeypatch):
    speech = noise(4000)
    with pytest.raises(ValueError, match="no codec 'mp5': choose one of mp3, opus"):
        through_codec(speech, "mp5", 32.0)
    with pytest.raises(ValueError, match="mp3 needs a bit rate of 8 to 64 kbit/s, and has none"):
        through_codec(speech, "mp3")
    with pytest.raises(ValueError, match="mp3 needs a bit rate of 8 to 64 kbit/s, and has 320"):
        through_codec(speech, "mp3", 320.0)
    with pytest.raises(ValueError, match="mulaw has no choice of bit rates, not 8"):
        through_codec(speech, "mulaw", 8.0)
    speech[7] = np.nan
    with pytest.raises(ValueError, match="not numbers"):
        through_codec(speech, "mp3", 32.0)
    with pytest.raises(ValueError, match=r"\[lowest, highest\], not \[32, 16\]"):
        Augmentation(probability=0.0, codec_probability=1.0, codecs={"mp3": [32, 16]})
    with pytest.raises(ValueError, match="codecs names none"):
        Augmentation(probability=0.0, codec_probability=1.0, codecs={})
    monkeypatch.setitem(CODECS, "mp3", codecs.Codec("libmissing", "mp3float", None, (8.0, 64.0)))
    unavailable_codecs.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"mp3 does not work: .* has no encoder libmissing"):
            Augmentation(probability=0.0, codec_probability=1.0, codecs={"mp3": None})
        with pytest.warns(UserWarning, match=r"without the codec mp3: .* no encoder libmissing"):
            augmentation = Augmentation(probability=0.0, codec_probability=1.0)
        assert "mp3" not in augmentation.codecs and "opus" in augmentation.codecs
    finally:
        unavailable_codecs.cache_clear()


def test_augmentation_draws_codecs_from_the_seed():
    speech = noise(8000)
    first = Augmentation(probability=0.0, codec_probability=0.7)
    second = Augmentation(probability=0.0, codec_probability=0.7)
    results = [first(speech, seed) for seed in range(40)]
    for seed in reversed(range(40)):
        assert np.array_equal(second(speech, seed), results[seed])
    assert 4 <= sum(np.array_equal(result, speech) for result in results) <= 20
    assert len({result.tobytes() for result in results}) > 12
    fixed = Augmentation(probability=0.0, codec_probability=1.0, codecs={"mp3": [32.0, 32.0]})
    assert np.array_equal(fixed(speech, 5), through_codec(speech, "mp3", 32.0))


def test_without_codecs_augmentation_is_what_it_was():
    """A seed draws the same channels with and without the option."""
    speech = noise(8000)
    plain = Augmentation(probability=0.0, channel_probability=0.5)
    coded = Augmentation(probability=0.0, channel_probability=0.5, codec_probability=0.2)
    same = [np.array_equal(plain(speech, seed), coded(speech, seed)) for seed in range(40)]
    assert 24 <= sum(same) < 40
