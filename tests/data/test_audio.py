"""Laws of reading audio: a crop is a slice, and bad files are named."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torchaudio.functional
from numpy.typing import NDArray

from simple_spk.data import audio
from simple_spk.data.audio import (
    AudioError,
    channels_cancel,
    duration_seconds,
    is_silent,
    read_crop,
    read_header,
    read_recording,
)
from tools.write_m4a import write_m4a

ALMOST_ONE = float(np.nextafter(1.0, 0.0))
POSITIONS = (0.0, 0.123, 0.5, 0.77, ALMOST_ONE)

Readers = pytest.mark.parametrize(
    "read",
    [read_recording, lambda path: read_crop(path, 4000, 0.9), duration_seconds],
    ids=["read_recording", "read_crop", "duration_seconds"],
)


def noise(samples: int, channels: int = 1, seed: int = 0) -> NDArray[np.float32]:
    shape = (samples, channels) if channels > 1 else (samples,)
    return np.random.default_rng(seed).uniform(-0.5, 0.5, shape).astype(np.float32)


def sine(seconds: float, hertz: float, rate: int) -> NDArray[np.float32]:
    time = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def loudest_hertz(waveform: NDArray[np.float32], rate: int = 16000) -> float:
    spectrum = np.abs(np.fft.rfft(waveform * np.hanning(len(waveform))))
    return float(spectrum.argmax() * rate / len(waveform))


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_a_crop_is_a_slice_of_the_recording(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, noise(20000), 16000)
    whole = read_recording(path)
    assert whole.shape == (20000,)
    assert whole.dtype == np.float32
    for position in POSITIONS:
        start = int(position * (20000 - 6000 + 1))
        crop = read_crop(path, 6000, position)
        np.testing.assert_allclose(crop, whole[start : start + 6000], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("rate", [16000, 44100])
def test_a_crop_of_an_m4a_is_a_slice_too(rate: int, tmp_path: Path) -> None:
    path = tmp_path / "x.m4a"
    write_m4a(path, sine(1.0, 440.0, rate) + 0.1 * noise(rate), rate)
    whole = read_recording(path)
    assert len(whole) >= 16000
    assert duration_seconds(path) == pytest.approx(1.0, abs=0.001)
    for position in POSITIONS:
        start = int(position * (len(whole) - 6000 + 1))
        assert np.array_equal(read_crop(path, 6000, position), whole[start : start + 6000])
        start = int(position * len(whole))
        repeated = np.tile(whole, 3)[start : start + len(whole) + 5000]
        assert np.array_equal(read_crop(path, len(whole) + 5000, position), repeated)


def test_samples_keep_their_values(tmp_path: Path) -> None:
    """16-bit values come back exactly, with full scale at one."""
    values = np.array([0, 1, -1, 12345, -32768, 32767] * 100, dtype=np.int16)
    soundfile.write(tmp_path / "x.wav", values, 16000)
    assert np.array_equal(read_recording(tmp_path / "x.wav"), values.astype(np.float32) / 32768)


@pytest.mark.parametrize("spare", [0, 1, 2, 1023, 1024])
def test_positions_reach_the_first_and_the_last_start_and_nothing_else(
    spare: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, np.arange(100 + spare, dtype=np.int16), 16000)
    assert read_crop(path, 100, 0.0)[0] == 0.0
    assert read_crop(path, 100, ALMOST_ONE)[0] * 32768 == spare


def test_all_starts_are_equally_likely(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, np.arange(104, dtype=np.int16), 16000)
    starts = [int(read_crop(path, 100, position / 50)[0] * 32768) for position in range(50)]
    assert np.bincount(starts).tolist() == [10] * 5


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("samples", [251, 500, 1777])
def test_a_short_recording_is_repeated(position: float, samples: int, tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, noise(250), 16000)
    whole, crop = read_recording(path), read_crop(path, samples, position)
    assert crop.shape == (samples,)
    start = int(position * 250)
    for offset in range(samples):
        assert crop[offset] == whole[(start + offset) % 250]


@pytest.mark.parametrize("position", [-0.1, 1.0, float("nan")])
def test_a_position_outside_the_recording_raises(position: float, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", noise(250), 16000)
    with pytest.raises(ValueError, match=str(position)):
        read_crop(tmp_path / "x.wav", 100, position)


@pytest.mark.parametrize("channels", [2, 3])
def test_channels_are_averaged(channels: int, tmp_path: Path) -> None:
    path, waveform = tmp_path / "x.wav", noise(8000, channels)
    soundfile.write(path, waveform, 16000, subtype="FLOAT")
    expected = waveform.mean(axis=1)
    np.testing.assert_allclose(read_recording(path), expected, rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(read_crop(path, 500, 0.0), expected[:500], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_other_rates_are_resampled(rate: int, tmp_path: Path) -> None:
    """A tone keeps its frequency and strength, a recording its duration, a crop its size."""
    path = tmp_path / "x.wav"
    soundfile.write(path, sine(1.5, 1000.0, rate), rate)
    whole, crop = read_recording(path), read_crop(path, 12345, 0.3)
    assert len(whole) == 24000
    assert len(crop) == 12345
    assert duration_seconds(path) == 1.5
    for waveform in (whole, crop):
        assert waveform.dtype == np.float32
        assert loudest_hertz(waveform) == pytest.approx(1000.0, abs=2.0)
        middle = waveform[1000:-1000]
        assert np.sqrt(2.0) * middle.std() == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_rates_are_converted_as_by_torchaudio(rate: int, tmp_path: Path) -> None:
    """Also by a filter that is used again."""
    path = tmp_path / "x.wav"
    for seed in range(2):
        waveform = noise(rate, seed=seed)
        soundfile.write(path, waveform, rate, subtype="FLOAT")
        exact = torch.from_numpy(waveform).double()  # in floats, its filters are off by 1e-5
        expected = torchaudio.functional.resample(exact, rate, 16000).numpy()
        np.testing.assert_allclose(read_recording(path), expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 44100])
@pytest.mark.parametrize("samples", [3999, 4000, 4001, 15999, 16000, 16001])
def test_a_crop_of_another_rate_has_the_size_asked_for(
    rate: int, samples: int, tmp_path: Path
) -> None:
    """Also where the recording has about the size of the crop."""
    path = tmp_path / "x.wav"
    soundfile.write(path, noise(rate // 4), rate)
    assert read_crop(path, samples, ALMOST_ONE).shape == (samples,)


def test_a_rate_of_the_users_choice(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, sine(1.0, 500.0, 16000), 16000)
    assert len(read_recording(path, 8000)) == 8000
    assert loudest_hertz(read_crop(path, 4000, 0.5, 8000), 8000) == pytest.approx(500.0, abs=4.0)


@Readers
@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3", "m4a", "mkv", "unheard-of"])
@pytest.mark.parametrize("content", [b"", b"this is not audio\n" * 500], ids=["empty", "text"])
def test_files_that_are_not_audio(
    read: Callable, content: bytes, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(content)
    with pytest.raises(AudioError, match=r"x\."):
        read(path)


def test_a_file_whose_name_promises_samples_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "x.raw").write_bytes(bytes(1000))
    with pytest.raises(AudioError, match=r"x\.raw"):
        read_recording(tmp_path / "x.raw")


@Readers
@pytest.mark.parametrize("suffix", [".wav", ".m4a"])
def test_a_name_that_is_not_utf_8(read: Callable, suffix: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", noise(16000), 16000)
    write_m4a(tmp_path / "x.m4a", noise(16000))
    odd = tmp_path / (os.fsdecode(b"\xff") + suffix)
    expected = read(tmp_path / f"x{suffix}")
    (tmp_path / f"x{suffix}").rename(odd)
    assert np.array_equal(read(odd), expected)


@pytest.mark.parametrize("promised_frames", [0x7FFFFFFF, 0xFFFFFFFF])
def test_a_header_that_promises_absurd_lengths(promised_frames: int, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.mp3", noise(32000), 16000)
    content = bytearray((tmp_path / "x.mp3").read_bytes())
    count_at = content.index(b"Xing") + 8
    content[count_at : count_at + 4] = promised_frames.to_bytes(4, "big")
    (tmp_path / "x.mp3").write_bytes(content)
    with pytest.raises(AudioError, match=r"x\.mp3"):
        read_recording(tmp_path / "x.mp3")


@Readers
def test_a_missing_file(read: Callable, tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"missing\.wav"):
        read(tmp_path / "missing.wav")


@Readers
def test_a_recording_without_samples(read: Callable, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros(0, dtype=np.float32), 16000)
    with pytest.raises(AudioError, match=r"x\.wav holds no samples"):
        read(tmp_path / "x.wav")


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3"])  # these say how long they should be
def test_a_truncated_file_is_not_taken_for_a_shorter_one(
    suffix: str, share: float, tmp_path: Path
) -> None:
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, noise(32000), 16000)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(AudioError, match=r"x\."):
        read_recording(path)
    with pytest.raises(AudioError, match=r"x\."):
        read_crop(path, 16000, ALMOST_ONE)


@Readers
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_truncated_m4a(read: Callable, share: float, tmp_path: Path) -> None:
    """With its index at the end, not even its duration can be read."""
    path = tmp_path / "x.m4a"
    write_m4a(path, noise(32000))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * content.index(b"moov"))])
    with pytest.raises(AudioError, match=r"x\.m4a lacks its index"):
        read(path)


def test_a_wav_written_to_a_pipe_is_read_whole(tmp_path: Path) -> None:
    """Programs that cannot go back to write its size leave the largest number there."""
    path = tmp_path / "x.wav"
    soundfile.write(path, noise(3000), 16000)
    expected, content = read_recording(path), bytearray(path.read_bytes())
    for place in (4, content.index(b"data") + 4):
        content[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    assert np.array_equal(read_recording(path), expected)


@Readers
def test_a_flac_of_unknown_length(read: Callable, tmp_path: Path) -> None:
    """Written to a pipe, flac says zero for its number of samples, which means: unknown."""
    path = tmp_path / "x.flac"
    soundfile.write(path, noise(32000), 16000)
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the 36 bits of STREAMINFO that count samples
    content[22:26] = bytes(4)
    path.write_bytes(content)
    with pytest.raises(AudioError, match=r"x\.flac"):
        read(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_that_are_not_numbers(value: float, tmp_path: Path) -> None:
    path, waveform = tmp_path / "x.wav", noise(8000)
    waveform[4321] = value
    soundfile.write(path, waveform, 16000, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"x\.wav"):
        read_recording(path)
    with pytest.raises(AudioError, match=r"x\.wav"):
        read_crop(path, 7000, 0.5)
    assert np.array_equal(read_crop(path, 4000, 0.0), waveform[:4000])  # what is asked for is fine


@pytest.mark.parametrize("speed", [0.9, 1.1])
@pytest.mark.parametrize("rate", [16000, 8000])
def test_speed_moves_every_frequency(tmp_path, speed, rate):
    """A tone played at another speed is a tone of that many times the frequency."""
    times = np.arange(3 * rate) / rate
    soundfile.write(tmp_path / "tone.wav", 0.5 * np.sin(2 * np.pi * 1000 * times), rate)
    crop = read_crop(tmp_path / "tone.wav", 16000, 0.3, 16000, speed)
    assert len(crop) == 16000
    spectrum = np.abs(np.fft.rfft(crop * np.hanning(16000)))
    assert spectrum.argmax() == round(1000 * speed)


def test_speed_uses_the_whole_recording(tmp_path):
    """At double speed, a crop of half the duration reaches from the beginning to the end."""
    soundfile.write(tmp_path / "x.wav", np.linspace(-0.5, 0.5, 16000), 16000)
    crop = read_crop(tmp_path / "x.wav", 8000, 0.999, 16000, 2.0)
    assert len(crop) == 8000
    assert np.abs(crop[100:-100] - np.linspace(-0.5, 0.5, 8000)[100:-100]).max() < 0.01


@pytest.mark.parametrize("rate", [8000, 11127, 16000, 44100, 96000])
def test_blocks_follow_each_other_without_a_seam(
    rate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in small blocks, a recording is the same as read at once."""
    path = tmp_path / "x.wav"
    soundfile.write(path, noise(3 * rate, 2), rate, subtype="FLOAT")
    whole = read_recording(path)
    for block_samples in (2, 2000, 2 * rate - 1, 2 * rate):
        monkeypatch.setattr(audio, "BLOCK_SAMPLES", block_samples * (50 if rate > 8000 else 1000))
        blocks = list(audio.recording_blocks(path))
        np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("rate", [11127, 15999, 47999, 96001])
def test_rates_that_share_no_divisor_are_converted(rate: int, tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, sine(2.0, 1000.0, rate), rate)
    waveform = read_recording(path)
    assert len(waveform) == 32000
    assert len(read_crop(path, 24000, 0.5)) == 24000
    assert loudest_hertz(waveform) == pytest.approx(1000.0, abs=1.0)


def test_floats_louder_than_full_scale_are_kept(tmp_path: Path) -> None:
    path, waveform = tmp_path / "x.wav", noise(8000) * 40000.0
    soundfile.write(path, waveform, 16000, subtype="FLOAT")
    assert np.array_equal(read_recording(path), waveform)
    soundfile.write(path, waveform * 1e9, 16000, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"x\.wav holds samples as large as 2e\+13"):
        read_recording(path)


@Readers
@pytest.mark.parametrize("rate", [1, 1999, 10**6, 2**31 - 1])
def test_absurd_rates(read: Callable, rate: int, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", noise(8000), rate)
    with pytest.raises(AudioError, match=rf"x\.wav says {rate} samples a second"):
        read(tmp_path / "x.wav")


@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_silence_is_a_span_of_three_steps_of_16_bits(offset: float) -> None:
    """A constant offset or the noise of the last bits is no sound; a click is one."""
    steps = np.array([0, 1, -1, 2, 0, 1], dtype=np.float32)
    assert is_silent(np.full(100, offset, dtype=np.float32))
    assert is_silent(offset + steps / 32768)
    assert not is_silent(offset + np.append(steps, 3) / 32768)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_the_header_says_length_rate_and_channels(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, noise(4410, channels=2), 44100)
    assert read_header(path) == (0.1, 44100, 2, suffix)


@pytest.mark.parametrize("suffix", ["wav", "m4a"])
def test_channels_of_opposite_phase_cancel_each_other(suffix: str, tmp_path: Path) -> None:
    """Also if a codec or a little noise leaves something of their mean."""
    voice, other = noise(32000, channels=2).T
    loud = 0.02 * other
    for second, expected in (
        (-voice, True),
        (-0.9 * voice + loud, True),
        (voice, False),
        (other, False),
        (0.0 * voice, False),
        (loud - 0.3 * voice, False),
    ):
        channels = np.stack([voice, second]).astype(np.float32)
        if suffix == "m4a":
            write_m4a(tmp_path / "x.m4a", channels)
        else:
            soundfile.write(tmp_path / "x.wav", channels.T, 16000)
        assert channels_cancel(tmp_path / f"x.{suffix}") == expected
        assert channels_cancel(channels) == expected
        assert channels_cancel((channels * 32767).astype(np.int16)) == expected
    assert not channels_cancel(np.zeros((2, 100), np.float32)) and not channels_cancel(voice)


def test_inspecting_needs_no_torch(tmp_path: Path) -> None:
    """So that processes that inspect or convert audio start at once."""
    soundfile.write(tmp_path / "x.wav", noise(16000), 16000)
    code = (
        "import sys; from simple_spk.corpora.conversion import convert\n"
        "from simple_spk.data.audio import read_header, read_recording\n"
        f"read_header({str(tmp_path / 'x.wav')!r}), read_recording({str(tmp_path / 'x.wav')!r})\n"
        "assert 'torch' not in sys.modules"
    )
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": root})


@pytest.mark.parametrize("suffix", ["wav", "m4a"])
def test_recordings_beyond_a_limit_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"long.{suffix}"
    if suffix == "m4a":
        write_m4a(path, noise(32000)[None])
    else:
        soundfile.write(path, noise(32000), 16000)
    for read in (read_recording, lambda *args: list(audio.recording_blocks(*args))):
        with pytest.raises(AudioError, match=r"long\..* lasts 2 s or more, longer than the limit"):
            read(path, 16000, 1.0)
        assert len(read(path, 16000, 3.0))
