"""Is everything installed that preparing, training and scoring need, and does it work together?"""

import importlib
import io
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.distributed import usable_cores
from simple_spk.doctor.finding import Finding, Status

TOPIC = "installation"
SHARED_MEMORY = Path("/dev/shm")
# A batch of 512 crops of 8 s as float32 has 0.26 GB, and every data worker holds two.
COMFORTABLE_SHARED_GB = 2.0
LEAST_FREE_GB = 10.0
TONE_HERTZ = 440.0
# soundfile's format and subtype of the kinds of files that recipes meet.
SOUND_FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg vorbis": ("OGG", "VORBIS"),
    "ogg opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}


def check_installation(folders: Iterable[Path] = ()) -> list[Finding]:
    """Versions, audio formats, processors and memory; free space on the disks of ``folders``."""
    return [
        _python(),
        _torch(),
        _speechbrain(),
        _sound_formats(),
        _aac(),
        *_processors(),
        _shared_memory(),
        *(_disk(folder) for folder in folders),
    ]


def _python() -> Finding:
    """The version of Python."""
    text = f"{platform.python_version()} ({sys.executable})"
    status = Status.OK if sys.version_info >= (3, 10) else Status.PROBLEM
    return Finding(TOPIC, "Python", status, text, "install Python 3.10 or newer")


def _torch() -> Finding:
    """torch and torchaudio, which are of one release or do not work together."""
    versions = {name: _version(name) for name in ("torch", "torchaudio")}
    text = ", ".join(f"{name} {found or 'is not installed'}" for name, found in versions.items())
    releases = {".".join((found or "").split(".")[:2]) for found in versions.values()}
    status = Status.OK if len(releases) == 1 and "" not in releases else Status.PROBLEM
    if status is Status.OK:
        try:
            importlib.import_module("torchaudio")
        except (ImportError, OSError, RuntimeError) as error:
            status, text = Status.PROBLEM, f"{text}; importing them fails: {error}"
    cure = 'pip install "torch>=2.11,<2.12" "torchaudio>=2.11,<2.12"'
    return Finding(TOPIC, "torch", status, text, cure)


def _speechbrain() -> Finding:
    """SpeechBrain, on whose Brain training rests."""
    found = _version("speechbrain")
    status = Status.OK if (found or "").startswith("1.1") else Status.PROBLEM
    cure = 'pip install "speechbrain>=1.1,<1.2" (only training needs it)'
    return Finding(TOPIC, "SpeechBrain", status, found or "is not installed", cure)


def _sound_formats() -> Finding:
    """The formats in which soundfile brings back a tone that it wrote."""
    try:
        soundfile = importlib.import_module("soundfile")
    except (ImportError, OSError) as error:
        cure = "pip install soundfile; on some systems also: apt install libsndfile1"
        return Finding(TOPIC, "soundfile", Status.PROBLEM, f"does not start: {error}", cure)
    fails = []
    for name, (kind, subtype) in SOUND_FORMATS.items():
        file = io.BytesIO()
        try:
            soundfile.write(file, _tone(), SAMPLE_RATE, format=kind, subtype=subtype)
            file.seek(0)
            is_right = _is_tone(soundfile.read(file, dtype="float32")[0])
        except (RuntimeError, ValueError):  # what soundfile raises for formats that it lacks
            is_right = False
        if not is_right:
            fails.append(name)
    about = f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}"
    works = ", ".join(name for name in SOUND_FORMATS if name not in fails)
    if fails:
        text = f"{about}: reads {works}, but not {', '.join(fails)}"
        cure = "pip install --upgrade soundfile (wheels bring libsndfile 1.2 with opus and mp3)"
        return Finding(TOPIC, "soundfile", Status.PROBLEM, text, cure, fails)
    return Finding(TOPIC, "soundfile", Status.OK, f"{about}: reads {works}")


def _aac() -> Finding:
    """Whether PyAV brings back a tone that it wrote as m4a, the format of VoxCeleb2."""
    cure = "pip install --upgrade av (its wheels bring FFmpeg); only m4a files need it"
    try:
        av = importlib.import_module("av")
        file = io.BytesIO()
        with av.open(file, "w", format="mp4") as container:
            stream = container.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
            frame = av.AudioFrame.from_ndarray(_tone()[np.newaxis], format="fltp", layout="mono")
            frame.sample_rate = SAMPLE_RATE
            for packet in [*stream.encode(frame), *stream.encode(None)]:
                container.mux(packet)
        file.seek(0)
        with av.open(file) as container:
            frames = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
        is_right = _is_tone(np.concatenate(frames))
    except (ImportError, OSError, ValueError) as error:  # FFmpeg's errors are of these kinds
        return Finding(TOPIC, "AAC", Status.PROBLEM, f"PyAV fails: {error}", cure)
    if not is_right:
        return Finding(TOPIC, "AAC", Status.PROBLEM, "PyAV returns another sound", cure)
    return Finding(TOPIC, "AAC", Status.OK, f"PyAV {av.__version__} decodes m4a")


def _tone() -> NDArray[np.float32]:
    """A second of a pure tone (samples,)."""
    time_seconds = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    return (0.5 * np.sin(2 * np.pi * TONE_HERTZ * time_seconds)).astype(np.float32)


def _is_tone(waveform: NDArray[np.float32]) -> bool:
    """Whether a decoded waveform (samples,) lasts a second and has the tone as its loudest."""
    if not 0.9 * SAMPLE_RATE < len(waveform) < 1.2 * SAMPLE_RATE:
        return False
    loudest = np.abs(np.fft.rfft(waveform)).argmax() * SAMPLE_RATE / len(waveform)
    return bool(abs(loudest - TONE_HERTZ) < 5.0 and 0.3 < waveform.std() < 0.4)


def _processors() -> list[Finding]:
    """GPUs with their memory and half-precision formats, and CPU cores."""
    cores = usable_cores()
    text = f"{cores} of {os.cpu_count()} can be used"
    findings = [Finding(TOPIC, "CPU cores", Status.OK, text, metrics={"cores": cores})]
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError):  # said by _torch already
        return findings
    if not torch.cuda.is_available():
        cure = "small recipes train on CPUs; VoxCeleb needs a GPU (see nvidia-smi)"
        return [*findings, Finding(TOPIC, "GPU", Status.NOTE, "torch finds none", cure)]
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        has_bf16 = about.major >= 8
        half = "bf16 and fp16" if has_bf16 else "fp16, but not bf16"
        gigabytes = about.total_memory / 1e9
        findings.append(
            Finding(
                TOPIC,
                f"GPU {number}",
                Status.OK,
                f"{about.name}, {gigabytes:.1f} GB, fast in {half}",
                metrics={"gigabytes": gigabytes},
            )
        )
    return findings


def _shared_memory() -> Finding:
    """The space through which data workers pass batches."""
    if not SHARED_MEMORY.is_dir():
        return Finding(TOPIC, "shared memory", Status.NOT_CHECKED, "no /dev/shm on this system")
    gigabytes = shutil.disk_usage(SHARED_MEMORY).free / 1e9
    is_enough = gigabytes >= COMFORTABLE_SHARED_GB
    return Finding(
        TOPIC,
        "shared memory",
        Status.OK if is_enough else Status.NOTE,
        f"{gigabytes:.1f} GB free in {SHARED_MEMORY}",
        "large batches end in bus errors: docker run --shm-size=8g, or fewer workers",
        metrics={"gigabytes": gigabytes},
    )


def _disk(folder: Path) -> Finding:
    """Free space on the disk of a folder."""
    existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    gigabytes = shutil.disk_usage(existing).free / 1e9
    status = Status.OK if gigabytes >= LEAST_FREE_GB else Status.NOTE
    text = f"{gigabytes:,.1f} GB free at {folder}"
    cure = "VoxCeleb2 as flac takes about 180 GB, checkpoints of a run a few"
    return Finding(TOPIC, "disk", status, text, cure, metrics={"gigabytes": gigabytes})


def _version(package: str) -> str | None:
    """The version of an installed package, without importing it; None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
