"""Is everything installed that preparing, training and scoring need, and does it work together?"""

import contextlib
import importlib
import io
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
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
TIME_SECONDS = np.arange(SAMPLE_RATE) / SAMPLE_RATE
TONE = (0.5 * np.sin(2 * np.pi * TONE_HERTZ * TIME_SECONDS)).astype(np.float32)
NOT_INSTALLED = "is not installed"
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
    python = f"{platform.python_version()} ({sys.executable})"
    speechbrain = _version("speechbrain")
    install = "pip install -e '.[train]' (only training needs it)"
    absent = Status.NOTE if speechbrain == NOT_INSTALLED else Status.PROBLEM
    findings = [
        _check("Python", sys.version_info >= (3, 10), python, "install Python 3.10 or newer"),
        _torch(),
        _check("SpeechBrain", speechbrain.startswith("1.1"), speechbrain, install, absent),
        _sound_formats(),
        _aac(),
        *_processors(),
    ]
    if SHARED_MEMORY.is_dir():  # through which data workers pass batches
        cure = "large batches end in bus errors: docker run --shm-size=8g, or fewer workers"
        where = f"in {SHARED_MEMORY}"
        space = _space("shared memory", SHARED_MEMORY, COMFORTABLE_SHARED_GB, where, cure)
    else:
        space = not_checked(TOPIC, "shared memory", "no /dev/shm on this system")
    findings.append(space)
    cure = "VoxCeleb2 as flac takes about 180 GB, checkpoints of a run a few"
    for folder in folders:
        place = folder.resolve()
        existing = next(path for path in (place, *place.parents) if path.exists())
        findings.append(_space("disk", existing, LEAST_FREE_GB, f"at {folder}", cure))
    return findings


def _check(
    kind: str, is_ok: bool, text: str, cure: str, otherwise: Status = Status.PROBLEM
) -> Finding:
    """The outcome of a check of the installation."""
    return Finding(TOPIC, kind, Status.OK if is_ok else otherwise, text, cure)


def _space(kind: str, place: Path, least: float, where: str, cure: str) -> Finding:
    """A note if less than ``least`` gigabytes are free on the disk of an existing place."""
    gigabytes = shutil.disk_usage(place).free / 1e9
    found = _check(kind, gigabytes >= least, f"{gigabytes:,.1f} GB free {where}", cure, Status.NOTE)
    return replace(found, metrics={"gigabytes": gigabytes})


def _torch() -> Finding:
    """torch and, for training, torchaudio, which must be of one release."""
    versions = {name: _version(name) for name in ("torch", "torchaudio")}
    if versions["torchaudio"] == NOT_INSTALLED:
        del versions["torchaudio"]
    text = ", ".join(f"{name} {found}" for name, found in versions.items())
    releases = {".".join(found.split(".")[:2]) for found in versions.values()}
    is_ok = len(releases) == 1 and NOT_INSTALLED not in releases
    if is_ok:
        try:
            for name in versions:
                importlib.import_module(name)
        except (ImportError, OSError, RuntimeError) as error:
            is_ok, text = False, f"{text}; importing them fails: {error}"
    return _check("torch", is_ok, text, 'pip install "torch>=2.11,<2.12" "torchaudio>=2.11,<2.12"')


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
        with contextlib.suppress(RuntimeError, ValueError):  # raised for formats that it lacks
            soundfile.write(file, TONE, SAMPLE_RATE, format=kind, subtype=subtype)
            file.seek(0)
            if _is_tone(soundfile.read(file, dtype="float32")[0]):
                works.append(name)
    fails = [name for name in SOUND_FORMATS if name not in works]
    about = f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}"
    text = f"{about}: reads {', '.join(works)}" + (f", but not {', '.join(fails)}" if fails else "")
    cure = "pip install --upgrade soundfile (wheels bring libsndfile 1.2 with opus and mp3)"
    return replace(_check("soundfile", not fails, text, cure), names=fails)


def _aac() -> Finding:
    """Whether PyAV reads back a tone that it wrote as m4a, the format of VoxCeleb2."""
    cure = "pip install --upgrade av (its wheels bring FFmpeg); only m4a files need it"
    try:
        av = importlib.import_module("av")
        file = io.BytesIO()
        with av.open(file, "w", format="mp4") as container:
            stream = container.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
            frame = av.AudioFrame.from_ndarray(TONE[np.newaxis], format="fltp", layout="mono")
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
        metrics = {"gigabytes": about.total_memory / 1e9}
        text = f"{about.name}, {metrics['gigabytes']:.1f} GB, fast in {half}"
        findings.append(Finding(TOPIC, f"GPU {number}", Status.OK, text, metrics=metrics))
    return findings


def _version(package: str) -> str:
    """The version of an installed package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED
