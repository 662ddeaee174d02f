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
from simple_spk.doctor.finding import Finding, Status, not_checked

TOPIC = "installation"
SHARED_MEMORY = Path("/dev/shm")
# A batch of 512 crops of 8 s as float32 has 0.26 GB, and every data worker holds two.
COMFORTABLE_SHARED_GB = 2.0
LEAST_FREE_GB = 10.0
TONE_HERTZ = 440.0
# soundfile's format and subtype of the files that recipes read.
SOUND_FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg vorbis": ("OGG", "VORBIS"),
    "ogg opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}


def check_installation(folders: Iterable[Path] = ()) -> list[Finding]:
    """Versions, audio formats, processors and memory; free space on the disks of ``folders``."""
    checks = [_python(), _torch(), _speechbrain(), _sound_formats(), _aac()]
    return [*checks, *_processors(), _shared_memory(), *map(_disk, folders)]


def _check(
    kind: str, is_ok: bool, text: str, cure: str, otherwise: Status = Status.PROBLEM
) -> Finding:
    """The outcome of a check of the installation."""
    return Finding(TOPIC, kind, Status.OK if is_ok else otherwise, text, cure)


def _space(kind: str, gigabytes: float, least: float, where: str, cure: str) -> Finding:
    """A note if less than ``least`` gigabytes are free."""
    status = Status.OK if gigabytes >= least else Status.NOTE
    text = f"{gigabytes:,.1f} GB free {where}"
    return Finding(TOPIC, kind, status, text, cure, metrics={"gigabytes": gigabytes})


def _python() -> Finding:
    """The version of Python."""
    text = f"{platform.python_version()} ({sys.executable})"
    return _check("Python", sys.version_info >= (3, 10), text, "install Python 3.10 or newer")


def _torch() -> Finding:
    """torch and torchaudio, which must be of one release."""
    versions = {name: _version(name) for name in ("torch", "torchaudio")}
    text = ", ".join(f"{name} {found or 'is not installed'}" for name, found in versions.items())
    releases = {".".join((found or "").split(".")[:2]) for found in versions.values()}
    is_ok = len(releases) == 1 and "" not in releases
    if is_ok:
        try:
            importlib.import_module("torchaudio")
        except (ImportError, OSError, RuntimeError) as error:
            is_ok, text = False, f"{text}; importing them fails: {error}"
    return _check("torch", is_ok, text, 'pip install "torch>=2.11,<2.12" "torchaudio>=2.11,<2.12"')


def _speechbrain() -> Finding:
    """SpeechBrain, which training needs."""
    found = _version("speechbrain") or "is not installed"
    cure = 'pip install "speechbrain>=1.1,<1.2" (only training needs it)'
    return _check("SpeechBrain", found.startswith("1.1"), found, cure)


def _sound_formats() -> Finding:
    """The formats in which soundfile reads back a tone that it wrote."""
    try:
        soundfile = importlib.import_module("soundfile")
    except (ImportError, OSError) as error:
        cure = "pip install soundfile; on some systems also: apt install libsndfile1"
        return _check("soundfile", False, f"does not start: {error}", cure)
    works = []
    for name, (kind, subtype) in SOUND_FORMATS.items():
        file = io.BytesIO()
        try:
            soundfile.write(file, _tone(), SAMPLE_RATE, format=kind, subtype=subtype)
            file.seek(0)
            if _is_tone(soundfile.read(file, dtype="float32")[0]):
                works.append(name)
        except (RuntimeError, ValueError):  # what soundfile raises for formats that it lacks
            pass
    fails = [name for name in SOUND_FORMATS if name not in works]
    about = f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}"
    text = f"{about}: reads {', '.join(works)}" + (f", but not {', '.join(fails)}" if fails else "")
    cure = "pip install --upgrade soundfile (wheels bring libsndfile 1.2 with opus and mp3)"
    return Finding(TOPIC, "soundfile", Status.PROBLEM if fails else Status.OK, text, cure, fails)


def _aac() -> Finding:
    """Whether PyAV reads back a tone that it wrote as m4a, the format of VoxCeleb2."""
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
        return _check("AAC", False, f"PyAV fails: {error}", cure)
    text = f"PyAV {av.__version__} decodes m4a" if is_right else "PyAV returns another sound"
    return _check("AAC", is_right, text, cure)


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
    """CPU cores, and GPUs with their memory and half-precision formats."""
    cores = usable_cores()
    text = f"{cores} of {os.cpu_count()} can be used"
    findings = [Finding(TOPIC, "CPU cores", Status.OK, text, metrics={"cores": cores})]
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError):  # _torch says so already
        return findings
    if not torch.cuda.is_available():
        cure = "small recipes train on CPUs; VoxCeleb needs a GPU (see nvidia-smi)"
        return [*findings, _check("GPU", False, "torch finds none", cure, Status.NOTE)]
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        half = "bf16 and fp16" if about.major >= 8 else "fp16, but not bf16"
        gigabytes = about.total_memory / 1e9
        text = f"{about.name}, {gigabytes:.1f} GB, fast in {half}"
        metrics = {"gigabytes": gigabytes}
        findings.append(Finding(TOPIC, f"GPU {number}", Status.OK, text, metrics=metrics))
    return findings


def _shared_memory() -> Finding:
    """The space through which data workers pass batches."""
    if not SHARED_MEMORY.is_dir():
        return not_checked(TOPIC, "shared memory", "no /dev/shm on this system")
    gigabytes = shutil.disk_usage(SHARED_MEMORY).free / 1e9
    cure = "large batches end in bus errors: docker run --shm-size=8g, or fewer workers"
    where = f"in {SHARED_MEMORY}"
    return _space("shared memory", gigabytes, COMFORTABLE_SHARED_GB, where, cure)


def _disk(folder: Path) -> Finding:
    """Free space on the disk of a folder."""
    existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    gigabytes = shutil.disk_usage(existing).free / 1e9
    cure = "VoxCeleb2 as flac takes about 180 GB, checkpoints of a run a few"
    return _space("disk", gigabytes, LEAST_FREE_GB, f"at {folder}", cure)


def _version(package: str) -> str | None:
    """The version of an installed package, without importing it; None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
