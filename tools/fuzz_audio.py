"""Damage recordings in many ways, embed each, and count the answers.

    python tools/fuzz_audio.py --count 2000 --seed 1

Every file must end in a finite embedding or in an AudioError. Anything else (another exception, a
NaN, a crash, a hang, gigabytes of memory) is shown, and the exit code is 1. The work is done in
processes of their own, so that nothing can hide.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.write_m4a import write_m4a

SECONDS_ALLOWED = 30.0
SPARE_BYTES = (
    3 * 2**30
)  # address space beyond what an idle process has; it is taken by threads, too
MARK = "case"  # before our lines: libsndfile prints some of its own
GROWTH_MIB = 400  # of the memory in use, over all files of a process


def speech(samples: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Noise (samples, channels) with an envelope like that of speech."""
    dice = np.random.default_rng(seed)
    corners = dice.random(samples // 2000 + 2) ** 3
    envelope = np.interp(np.arange(samples) / 2000, np.arange(len(corners)), corners)
    return (0.3 * envelope[:, None] * dice.standard_normal((samples, channels))).astype(np.float32)


def write_sound_originals(folder: Path) -> list[Path]:
    """Undamaged recordings of many formats."""
    for name, rate, channels, options in (
        ("a.wav", 16000, 1, {}),
        ("b.wav", 44100, 2, {"subtype": "PCM_24"}),
        ("c.wav", 8000, 1, {"subtype": "FLOAT"}),
        ("d.wav", 16000, 24, {}),
        ("e.wav", 8000, 1, {"subtype": "ULAW"}),
        ("f.wav", 8000, 1, {"subtype": "IMA_ADPCM"}),
        ("g.flac", 16000, 1, {}),
        ("h.flac", 48000, 2, {"subtype": "PCM_24"}),
        ("i.ogg", 22050, 1, {}),
        ("j.ogg", 48000, 2, {"format": "OGG", "subtype": "OPUS"}),
        ("k.mp3", 16000, 1, {}),
        ("l.mp3", 44100, 2, {}),
        ("m.aiff", 11025, 1, {}),
        ("n.w64", 16000, 1, {}),
        ("o.caf", 16000, 2, {"subtype": "ALAC_16"}),
        ("p.rf64", 16000, 1, {"format": "RF64"}),
    ):
        soundfile.write(folder / name, speech(rate, channels), rate, **options)
    write_m4a(folder / "q.m4a", speech(16000).T)
    write_m4a(folder / "r.m4a", speech(44100, 2).T, 44100, index_first=True)
    return sorted(folder.iterdir())


def truncate(content: bytes, dice: random.Random) -> bytes:
    return content[: int(len(content) * dice.choice((dice.random(), dice.random() ** 4)))]


def flip_bytes(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.choice((1, 3, 30, 300))):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def flip_header(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.choice((1, 2, 5))):
        changed[dice.randrange(min(200, len(changed)))] = dice.choice(
            (0, 1, 127, 128, 255, dice.randrange(256))
        )
    return bytes(changed)


def odd_number(content: bytes, dice: random.Random) -> bytes:
    """A number of the header replaced by an absurd one: rates, lengths, channels, terabytes."""
    size = dice.choice((2, 4, 8))
    value = dice.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1, 10**6))
    number = (value % 2 ** (8 * size)).to_bytes(size, dice.choice(("little", "big")))
    start = dice.randrange(4, min(160, max(5, len(content) - 8)))
    return content[:start] + number + content[start + size :]


def odd_index(content: bytes, dice: random.Random) -> bytes:
    """The same within the index of an m4a, which may lie at its end, or within the last bytes."""
    start = max(content.find(b"moov"), len(content) - 1500 if b"moov" not in content else 0)
    return content[:start] + odd_number(content[start:], dice)


def splice(content: bytes, dice: random.Random) -> bytes:
    start, end = sorted(dice.randrange(len(content)) for _ in range(2))
    middle = dice.choice((b"", content[start:end] * 2, bytes(end - start), dice.randbytes(100)))
    return content[:start] + middle + content[end:]


DAMAGES = (
    truncate,
    truncate,
    flip_bytes,
    flip_bytes,
    flip_header,
    odd_number,
    odd_number,
    odd_index,
    splice,
)


def write_samples(path: Path, dice: random.Random) -> None:
    """A sound file whose samples, rate or channels are odd."""
    rate = dice.choice((8000, 11127, 16000, 22050, 44100, 47999, 96000, 96001, 192000))
    samples = dice.choice((0, 1, 2, 399, 400, 401, 5000, 20000))
    channels = dice.choice((1, 1, 2, 5, 24, 200))
    waveform = speech(max(samples, 1), channels, dice.randrange(9))[:samples]
    value = dice.choice((None, None, np.nan, np.inf, -np.inf, 1e10, -1e10, 3e38, 1e-30, 5.0))
    if value is not None and samples:
        waveform[dice.randrange(samples), dice.randrange(channels)] = value
    waveform *= dice.choice((1.0, 1.0, 0.0, 1e-9, 30000.0, 1e9, 1e30))
    if dice.random() < 0.1:
        waveform[:] = 0.25
    if dice.random() < 0.1:
        rate = dice.choice((1, 10, 1000, 1999, 2000, 768000, 10**6, 2**31 - 1))
    soundfile.write(
        path,
        waveform,
        rate,
        format="WAV",
        subtype=dice.choice(("FLOAT", "DOUBLE", "PCM_16", "PCM_U8", "PCM_32")),
    )


def write_case(originals: list[Path], path: Path, number: int, seed: int) -> Path:
    """The damaged recording of a number; the same for the same seed."""
    dice = random.Random(f"{seed} {number}")
    original = dice.choice(originals)
    path = path.with_suffix(
        original.suffix
        if dice.random() < 0.9
        else dice.choice((".wav", ".m4a", ".raw", ".flac", ""))
    )
    kind = dice.random()
    if kind < 0.15:
        write_samples(path, dice)
    elif kind < 0.18:
        path.write_bytes(
            dice.choice((b"", b"\0" * 5000, dice.randbytes(5000), b"RIFF", b"text\n" * 99))
        )
    elif kind < 0.25:  # the header of one before the samples of another
        head = dice.choice(originals).read_bytes()[: dice.randrange(8, 400)]
        path.write_bytes(head + original.read_bytes()[dice.randrange(400) :])
    else:
        content = original.read_bytes()
        for _ in range(dice.choice((1, 1, 2))):
            content = dice.choice(DAMAGES)(content, dice) if len(content) > 20 else content
        path.write_bytes(content)
    return path


def judge(path: Path, embed: Callable) -> str:
    """What embedding a file comes to: 'embedding', the kind of an AudioError, or 'BAD ...'."""
    from simple_spk.data.audio import AudioError
    from simple_spk.inference.batch_embedding import ExtractionOptions, embedded_batches

    answers = list(embedded_batches([path], embed, ExtractionOptions(with_quality=True)))
    if sum(len(batch.indexes) + len(batch.errors) for batch in answers) != 1:
        return f"BAD {len(answers)} answers"
    for batch in answers:
        for error in batch.errors.values():
            if not isinstance(error, AudioError) or path.name not in str(error):
                return f"BAD {type(error).__name__}: {error}"
            words = [word for word in str(error).partition(path.name)[2].split() if word.isalpha()]
            return f"error: {getattr(error, 'kind', ' '.join(words[:2]))}"
        if (
            not np.isfinite(batch.embeddings).all()
            or not np.isfinite(np.array(batch.qualities, float)).all()
        ):
            return "BAD not finite"
    return "embedding"


def work(folder: Path, start: int, count: int, seed: int) -> None:
    """Judge some cases, one line each, as a process that may die of it."""
    import torch

    from simple_spk.inference.cpu_resnet import CpuEmbedding
    from simple_spk.models.fbank import Fbank
    from simple_spk.models.resnet import ResNet

    torch.manual_seed(0)
    embed = CpuEmbedding(Fbank().eval(), ResNet(width=4, stem_stride=2, embedding_dim=8).eval())
    embed(torch.randn(1, 16000))
    in_use = (
        int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        * resource.getpagesize()
    )
    resource.setrlimit(resource.RLIMIT_AS, (in_use + SPARE_BYTES, in_use + SPARE_BYTES))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    originals = sorted((folder / "originals").iterdir())
    for number in range(start, start + count):
        path = write_case(originals, folder / f"case{number}", number, seed)
        try:
            outcome = judge(path, embed)
        except Exception as error:
            outcome = f"BAD {type(error).__name__}: {error}"
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        if growth > GROWTH_MIB:
            before += round(growth * 1024)
            outcome = f"BAD memory grew by {growth:.0f} MiB ({outcome})"
        print(f"\n{MARK} {number} {' '.join(outcome.split())}", flush=True)
        if not outcome.startswith("BAD"):
            path.unlink()


def run(folder: Path, count: int, seed: int, at_once: int = 200) -> Iterator[tuple[int, str]]:
    """The number and the outcome of every case; bad ones stay in the folder."""
    (folder / "originals").mkdir(parents=True)
    write_sound_originals(folder / "originals")
    start = 0
    while start < count:
        some = min(at_once, count - start)
        command = [sys.executable, __file__, "--folder", folder, "--start", start]
        command += ["--count", some, "--seed", seed, "--work"]
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        done = 0
        try:
            output, _ = process.communicate(timeout=60.0 + some * SECONDS_ALLOWED / 10)
            verdict = f"BAD crash, code {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            verdict = "BAD hang"
        for line in output.splitlines():
            if line.startswith(MARK):
                number, outcome = line.removeprefix(MARK).split(maxsplit=1)
                yield int(number), outcome
                done += 1
        if done < some:  # the case after the last answer is to blame
            yield start + done, verdict
            done += 1
        start += done


def main() -> None:
    """Run, show what is bad, and count the outcomes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="damaged files (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="(default 1)")
    parser.add_argument("--folder", type=Path, help="where to keep bad files")
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.folder, options.start, options.count, options.seed)
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fuzz_audio"))
    outcomes: Counter[str] = Counter()
    for number, outcome in run(folder, options.count, options.seed):
        outcomes[outcome] += 1
        if outcome.startswith("BAD"):
            print(f"{folder}/case{number}: {outcome}")
    for outcome, times in outcomes.most_common():
        print(f"{times:6d} {outcome}")
    sys.exit(any(outcome.startswith("BAD") for outcome in outcomes))


if __name__ == "__main__":
    main()
