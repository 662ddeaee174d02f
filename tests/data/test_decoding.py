"""Laws of decoding: what was encoded comes back in its place, and no cut goes unnoticed."""

import os
import pickle
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from simple_spk.data import decoding
from simple_spk.data.audio import RECORDING_SUFFIXES, read_header, read_recording
from simple_spk.data.content import KNOWN_SUFFIXES, misnamed
from simple_spk.data.decoding import AudioError, BadRecordingError, decode, read_av_header
from tools.write_m4a import write_m4a

AAC_FRAME_SAMPLES = 1024

Tone = Callable[..., NDArray[np.float32]]


def delay_samples(original: NDArray, decoded: NDArray) -> int:
    """By how much a waveform lags behind another, from their cross-correlation."""
    size = 2 * max(len(original), len(decoded))
    product = np.fft.rfft(decoded, size) * np.fft.rfft(original, size).conj()
    lag = int(np.fft.irfft(product, size).argmax())
    return lag if lag < size // 2 else lag - size


@pytest.fixture
def m4a(noisy_tone: Tone, tmp_path: Path) -> Path:
    """A recording of one second whose index comes first, so that its end can be cut off."""
    write_m4a(tmp_path / "x.m4a", noisy_tone(1.0), index_first=True)
    return tmp_path / "x.m4a"


@pytest.mark.parametrize("index_first", [False, True])
@pytest.mark.parametrize("samples", [16000, 31 * AAC_FRAME_SAMPLES, 40001])
def test_samples_come_back_in_their_place(
    samples: int, index_first: bool, noisy_tone: Tone, tmp_path: Path
) -> None:
    """The samples that the encoder puts before the first are gone, and none of ours."""
    original = noisy_tone(3.0)[:samples]
    write_m4a(tmp_path / "x.m4a", original, index_first=index_first)
    decoded = decode(tmp_path / "x.m4a")
    assert decoded.dtype == np.float32
    assert samples <= len(decoded) < samples + 2 * AAC_FRAME_SAMPLES
    assert delay_samples(original, decoded) == 0
    error = decoded[:samples] - original
    assert np.sqrt(np.mean(error**2)) < 0.2 * original.std()


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_other_rates_are_converted(rate: int, tmp_path: Path) -> None:
    """Below 6 kHz the spectra of two seconds are the same, in strength and in phase."""
    time = np.arange(2 * rate) / rate
    write_m4a(tmp_path / "x.m4a", 0.5 * np.sin(2 * np.pi * (500.0 + 400.0 * time) * time), rate)
    own, converted = decode(tmp_path / "x.m4a", rate), decode(tmp_path / "x.m4a")
    assert len(converted) == pytest.approx(len(own) * 16000 / rate, abs=1.0)
    highest = min(6000, rate * 3 // 8)
    expected = np.fft.rfft(own[: 2 * rate] * np.hanning(2 * rate))[: 2 * highest] / rate
    found = np.fft.rfft(converted[:32000] * np.hanning(32000))[: 2 * highest] / 16000
    assert np.linalg.norm(found - expected) < 0.001 * np.linalg.norm(expected)


def test_channels_are_averaged(noisy_tone: Tone, tmp_path: Path) -> None:
    left, right = noisy_tone(1.0, 120.0), noisy_tone(1.0, 190.0, seed=1)
    write_m4a(tmp_path / "x.m4a", np.stack([left, right]))
    decoded = decode(tmp_path / "x.m4a")[:16000]
    error = decoded - (left + right) / 2
    assert np.sqrt(np.mean(error**2)) < 0.2 * decoded.std()


def test_the_program_ffmpeg_makes_the_same_samples(m4a: Path) -> None:
    """To one step of 16 bits, as its version may be another."""
    if shutil.which("ffmpeg") is None:
        pytest.skip("needs the program ffmpeg")
    command = ["ffmpeg", "-v", "error", "-i", str(m4a), "-f", "s16le", "-ac", "1", "-"]
    theirs = np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, "<i2")
    ours = np.rint(decode(m4a) * 32768)
    assert theirs.shape == ours.shape
    assert np.abs(theirs - ours).max() <= 1


def test_the_header_says_how_long_it_is(m4a: Path) -> None:
    seconds, sample_rate, channels, audio_format = read_av_header(m4a)
    assert (sample_rate, channels, audio_format) == (16000, 1, "mov")
    assert seconds == pytest.approx(1.0, abs=0.001)
    assert 0.0 <= len(decode(m4a)) / 16000 - seconds < 2 * AAC_FRAME_SAMPLES / 16000


@pytest.mark.parametrize("index_first", [False, True])
def test_every_cut_is_noticed(index_first: bool, noisy_tone: Tone, tmp_path: Path) -> None:
    """Unless it takes no samples away: after the index, there may be titles and the like."""
    write_m4a(tmp_path / "x.m4a", noisy_tone(0.7), index_first=index_first)
    content, whole = (tmp_path / "x.m4a").read_bytes(), decode(tmp_path / "x.m4a")
    cut, noticed = tmp_path / "cut.m4a", 0
    sizes = [*range(0, len(content), 37), len(content) - 1]
    for size in sizes:
        cut.write_bytes(content[:size])
        try:
            assert np.array_equal(decode(cut), whole)
            assert not index_first
            assert size > content.index(b"moov")
        except BadRecordingError as error:
            noticed += 1
            if index_first and size > content.index(b"mdat") + 4:
                assert error.kind in ("truncated", "header only")
    assert noticed > 0.9 * len(sizes)


def test_a_lost_packet_at_the_very_end_is_noticed(m4a: Path, tmp_path: Path) -> None:
    """Cut between packets nothing is torn, there is only less than promised."""
    av = pytest.importorskip("av")
    with av.open(str(m4a)) as container:
        places = [packet.pos for packet in container.demux(audio=0) if packet.size]
    for place in places[2:]:  # the first holds nothing but what the encoder puts before the start
        (tmp_path / "cut.m4a").write_bytes(m4a.read_bytes()[:place])
        with pytest.raises(BadRecordingError) as caught:
            decode(tmp_path / "cut.m4a")
        assert caught.value.kind == "truncated"


def test_each_fault_has_its_kind(
    m4a: Path, noisy_tone: Tone, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And FFmpeg does not speak by itself."""
    av = pytest.importorskip("av")
    index_first = m4a.read_bytes()
    samples_at = index_first.index(b"mdat") + 4
    write_m4a(tmp_path / "last.m4a", noisy_tone(1.0))
    index_last = (tmp_path / "last.m4a").read_bytes()
    with av.open(str(tmp_path / "video.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in (*stream.encode(picture), *stream.encode()):
            container.mux(packet)
    damaged = bytearray(index_first)
    damaged[samples_at + 2000 : samples_at + 4000] = bytes(2000)
    contents = {
        "empty": [b""],
        "header only": [index_first[:samples_at], index_last[: index_last.index(b"mdat") + 4]],
        "truncated": [index_first[:-100], index_last[: len(index_last) // 2]],
        "not audio": [b"404 not found\n" * 99, bytes(5000), b"#EXTM3U\n" + str(m4a).encode()],
        "without audio": [(tmp_path / "video.mp4").read_bytes()],
        "damaged": [bytes(damaged)],
    }
    for kind, files in contents.items():
        for content in files:
            (tmp_path / "bad.m4a").write_bytes(content)
            with pytest.raises(BadRecordingError, match=r"bad\.m4a") as caught:
                decode(tmp_path / "bad.m4a")
            assert caught.value.kind == kind
    assert capfd.readouterr() == ("", "")


def test_a_playlist_is_not_followed(m4a: Path, tmp_path: Path) -> None:
    for text in (f"ffconcat version 1.0\nfile {m4a.name}\n", f"#EXTM3U\n#EXTINF:1,\n{m4a.name}\n"):
        (tmp_path / "list.m4a").write_text(text)
        with pytest.raises(BadRecordingError, match="holds text, not audio"):
            decode(tmp_path / "list.m4a")
        (tmp_path / "list.m4a").write_bytes(text.encode() + b"#\xff is no text\n")
        with pytest.raises(BadRecordingError, match="no known audio format"):
            decode(tmp_path / "list.m4a")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Ann: hello\n" * 9, "text"),
        ("Zo\u00eb: hello\n".encode() * 400, "text"),  # cut within a letter at some size
        ("Ann: hello\n".encode("utf-16") * 9, "text"),  # begins as an MP3 frame may
        (b"\n<!DOCTYPE html><title>404</title>" * 9, "a web page"),
        (b"%PDF-1.4\n" + bytes(range(256)), "a PDF document"),
        (b"PK\x03\x04" + bytes(99), "a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"),
    ],
)
@pytest.mark.parametrize("suffix", ["wav", "mp3", "m4a"])
def test_what_is_no_recording_is_said(
    content: bytes, words: str, suffix: str, tmp_path: Path
) -> None:
    (tmp_path / f"x.{suffix}").write_bytes(content)
    with pytest.raises(AudioError, match=rf"x\.{suffix} holds {words}.*, not audio"):
        read_recording(tmp_path / f"x.{suffix}")


def copy_to_mkv(source: Path, target: Path) -> None:
    """The same packets in another container."""
    with av.open(str(source)) as one, av.open(str(target), "w", format="matroska") as other:
        stream = other.add_stream_from_template(one.streams.audio[0])
        for packet in filter(lambda packet: packet.size, one.demux(audio=0)):
            packet.stream = stream
            other.mux(packet)


@pytest.mark.parametrize("found", ["wav", "flac", "ogg", "mp3", "aiff", "m4a", "mkv"])
@pytest.mark.parametrize("named", ["wav", "mp3", "m4a", "webm", "odd"])
def test_content_counts_and_a_wrong_extension_is_known(
    found: str, named: str, noisy_tone: Tone, tmp_path: Path
) -> None:
    right, wrong = tmp_path / f"right.{found}", tmp_path / f"wrong.{named}"
    if found in ("m4a", "mkv"):
        write_m4a(tmp_path / "right.m4a", noisy_tone(0.5))
        if found == "mkv":
            copy_to_mkv(tmp_path / "right.m4a", right)
    else:
        soundfile.write(right, noisy_tone(0.5), 16000)
    wrong.write_bytes(right.read_bytes())
    np.testing.assert_array_equal(read_recording(wrong), read_recording(right))
    header = read_header(wrong)
    assert misnamed(right, header.audio_format) is None
    fits = named in (found, "odd") or (found, named) == ("mkv", "webm")
    words = misnamed(wrong, header.audio_format)
    assert words is None if fits else words is not None and words.endswith(f" named .{named}")


def test_every_suffix_of_recordings_has_a_format() -> None:
    assert set(RECORDING_SUFFIXES) <= KNOWN_SUFFIXES


def test_a_name_is_a_name_and_no_address(m4a: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = decode(m4a)
    monkeypatch.chdir(m4a.parent)
    m4a.rename("concat:a|b.m4a")
    assert np.array_equal(decode("concat:a|b.m4a"), expected)


def test_less_than_a_sample_is_too_short(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.full(10, 0.1, dtype=np.float32), 768_000)
    with pytest.raises(BadRecordingError) as caught:
        decode(tmp_path / "x.wav")
    assert caught.value.kind == "too short"


def test_files_out_of_reach(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.m4a"):
        decode(tmp_path / "missing.m4a")
    with pytest.raises(IsADirectoryError):
        decode(tmp_path)


def test_an_error_can_leave_its_process(tmp_path: Path) -> None:
    (tmp_path / "x.m4a").write_bytes(b"")
    with pytest.raises(BadRecordingError) as caught:
        decode(tmp_path / "x.m4a")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert (copy.kind, copy.details) == ("empty", "has 0 bytes")


@pytest.mark.parametrize("rate", [16000, 44100])
def test_blocks_follow_each_other_without_a_seam(
    rate: int, noisy_tone: Tone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_m4a(tmp_path / "x.m4a", np.stack([noisy_tone(3.0), noisy_tone(3.0, 90.0)]), rate)
    whole = decode(tmp_path / "x.m4a")
    monkeypatch.setattr(decoding, "_BLOCK_SAMPLES", 5000)
    blocks = list(decoding.decoded_blocks(tmp_path / "x.m4a"))
    assert len(blocks) > 5
    np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=0.0, atol=1e-6)


def test_a_name_may_have_any_bytes(m4a: Path) -> None:
    path = m4a.with_name(os.fsdecode(b"n\xff.m4a"))
    path.write_bytes(m4a.read_bytes())
    assert np.array_equal(decode(path), decode(m4a))
    assert read_av_header(path) == read_av_header(m4a)
