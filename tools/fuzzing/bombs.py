"""Small files that promise, or unpack to, far more than they hold, or take long to refuse."""

import gzip
import io
import json
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from recipes.Face.lfw_bin import read_validation_bin
from simple_spk.data.audio import read_recording
from simple_spk.data.manifest import read_manifest
from simple_spk.data.recording_lists import find_recordings
from simple_spk.data.trials import read_trials
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.score_files import read_scores
from simple_spk.export.training_run import find_model, load_trained
from simple_spk.export.wespeaker import import_wespeaker
from simple_spk.inference.model_folder import load_model
from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.io.tensor_file import read_tensors
from simple_spk.vision.image_files import read_image
from tools.fuzzing import audio, checkpoint, model_folder, trial_list
from tools.fuzzing.npz import unzipped, zipped

GIGABYTE = 2**30
REPEATED = 2**24  # bytes that are packed once, and repeated in packed form
# From the name of a bomb to its writer and its reader.
BOMBS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {}


def bomb(name: str, reader: Callable[[Path], object]) -> Callable[[Callable[[Path], None]], None]:
    """Decorator of the writer of a bomb."""

    def keep(writer: Callable[[Path], None]) -> None:
        BOMBS[name] = (writer, reader)

    return keep


def write_originals(folder: Path) -> None:
    """A sound model and a sound run, of which bombs are made."""
    model_folder.write_originals(folder)
    checkpoint.write_originals(folder)


def _deflated(content: bytes, times: int) -> bytes:
    """What unpacks to repeated bytes, as a raw stream that need not be packed as a whole."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * times + packer.flush()


def _write_packed_member(archive: zipfile.ZipFile, name: str, head: bytes, size: int) -> None:
    """A member that begins with ``head`` and unpacks to ``size`` zeros more; its CRC is wrong."""
    times = size // REPEATED
    packer = zlib.compressobj(wbits=-15)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    info = zipfile.ZipInfo(name)
    with archive.open(info, "w", force_zip64=True) as member:
        member.write(start + _deflated(bytes(REPEATED), times))
    info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, len(head) + times * REPEATED
    file = archive.fp
    assert file is not None
    file.seek(info.header_offset)
    file.write(info.FileHeader(zip64=True))
    file.seek(0, io.SEEK_END)


def _npy_header(shape: tuple[int, ...], kind: str) -> bytes:
    header = io.BytesIO()
    what = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, what)
    return header.getvalue()


def _array(content: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, content)
    return file.getvalue()


@bomb("packed.npz", read_embeddings)
def _(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        size = 9 * GIGABYTE
        archive.writestr("ids.npy", _array(np.array(["a", "b"])))
        head = _npy_header((2, size // 8), "<f4")
        _write_packed_member(archive, "embeddings.npy", head, size)


@bomb("empty_names.npz", read_embeddings)
def _(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ids.npy", _npy_header((10**9,), "<U0"))
        archive.writestr("embeddings.npy", _npy_header((10**9, 0), "<f4"))


@bomb("many_names.safetensors", read_embeddings)
def _(path: Path) -> None:
    size = 2 * 10**8
    header = {
        "ids": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
        "embeddings": {"dtype": "F32", "shape": [1, 2], "data_offsets": [size, size + 8]},
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(size // 10**6):
            file.write(b"\n" * 10**6)
        file.write(bytes(8))


@bomb("huge_vector.ark", read_embeddings)
def _(path: Path) -> None:
    path.write_bytes(b"name \0BFM " + struct.pack("<bibi", 4, 2**30, 4, 2**30) + bytes(99))


@bomb("long_number.ark", read_embeddings)
def _(path: Path) -> None:
    path.write_bytes(b"name [ " + b"1" * 10**6 + b" ]\n")


@bomb("packed_scores.txt.gz", read_scores)
def _(path: Path) -> None:
    _write_packed_lines(path, b"a%d b%d 0.5 target\n")


@bomb("short_lines.txt.gz", read_scores)
def _(path: Path) -> None:
    with gzip.open(path, "wb", 1) as file:
        for _ in range(33):  # as long as is read at all
            file.write(b"a b 1\n" * 500_000)


@bomb("packed_trials.txt.gz", read_trials)
def _(path: Path) -> None:
    _write_packed_lines(path, b"a%d b%d target\n")


def _write_packed_lines(path: Path, line: bytes) -> None:
    """34 MB of gzip members, each of which unpacks to a hundred times as much."""
    text = b"".join(line % (n, n) for n in range(100)) * 5000
    packed = gzip.compress(text, 9)
    path.write_bytes(packed * (34 * 10**6 // len(packed)))


@bomb("endless_line.txt", read_trials)
def _(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)  # a sparse file, which takes no place


@bomb("endless_list.lst", lambda path: find_recordings([path]))
def _(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)


@bomb("long_field.txt", read_scores)
def _(path: Path) -> None:
    path.write_bytes(b"a b " + b"1" * 10**6 + b"\n")


@bomb("long_name.txt", trial_list.read)
def _(path: Path) -> None:
    lines = (b"1 a%d/x a%d/y\n" % (n, n) for n in range(5000))
    path.write_bytes(b"1 " + b"a" * 10**6 + b"/x b\n" + b"".join(lines))


@bomb("long_field.csv", read_manifest)
def _(path: Path) -> None:
    path.write_bytes(b"ID,wav,duration,spk_id\na,b," + b"1" * 10**6 + b",c\n")


@bomb("long_number.json", Calibration.load)
def _(path: Path) -> None:
    path.write_text('{"calibration_version": ' + "1" * 10**6 + ".0}")


@bomb("endless.json", Calibration.load)
def _(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)


@bomb("many_names.voices", lambda path: open_voices(path, "model"))
def _(path: Path) -> None:
    names = "[" + ",".join(f'"{n:x}"' for n in range(10**7)) + "]"
    metadata = {"format": "simple_spk voices 1", "fingerprint": "model", "names": names}
    text = json.dumps({"__metadata__": metadata}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


@bomb("huge_voices.voices", lambda path: open_voices(path, "model"))
def _(path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2**40, 2], "data_offsets": [0, 2**43]}
    text = json.dumps({"embeddings": entry}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


@bomb("huge_model", load_model)
def _(path: Path) -> None:
    model_folder.write_originals(path.with_suffix(".tmp"))
    path.with_suffix(".tmp").joinpath("model").rename(path)
    config = path / "config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("width: 4", "width: 4096"), encoding="utf-8")


@bomb("wide_run", lambda path: load_trained(find_model(path)))
def _(path: Path) -> None:
    _write_run(path, checkpoint.SETTINGS.replace("width: 4", "width: 3000"))


@bomb("many_mels_run", lambda path: load_trained(find_model(path)))
def _(path: Path) -> None:
    _write_run(path, checkpoint.SETTINGS.replace("num_mels: 24", "num_mels: 100000000"))


@bomb("nested_run", lambda path: load_trained(find_model(path)))
def _(path: Path) -> None:
    _write_run(path, checkpoint.SETTINGS + "x: " + "[" * 50_000)


@bomb("merged_run", lambda path: load_trained(find_model(path)))
def _(path: Path) -> None:
    lines = [f"b{n}: &b{n} {{<<: [*b{n - 1}, *b{n - 1}]}}\n" for n in range(1, 50)]
    _write_run(path, checkpoint.SETTINGS + "b0: &b0 {x: 1}\n" + "".join(lines))


@bomb("aliased_run", lambda path: load_trained(find_model(path)))
def _(path: Path) -> None:
    lines = [f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 30)]
    aliases = "b0: &b0 [1]\n" + "".join(lines)
    _write_run(path, aliases + checkpoint.SETTINGS.replace("width: 4", "width: *b29"))


def _write_run(path: Path, settings: str) -> None:
    checkpoint.write_originals(path.with_suffix(".tmp"))
    path.with_suffix(".tmp").joinpath("run").rename(path)
    (path / "hyperparams.yaml").write_text(settings, encoding="utf-8")


@bomb("many_blocks.pt", import_wespeaker)
def _(path: Path) -> None:
    tiny = torch.zeros(1)
    weights = {f"layer{n % 4 + 1}.{n}.x": tiny.clone() for n in range(3000)}
    weights |= {"conv1.weight": torch.zeros(32, 1), "layer4.0.conv2.weight": torch.zeros(256, 1)}
    weights |= {"seg_1.weight": torch.zeros(8, 5120)}
    torch.save(weights, path)


@bomb("expanded.pt", import_wespeaker)
def _(path: Path) -> None:
    many = {f"projection.{n}": torch.zeros(1).half().expand(10**6) for n in range(3000)}
    torch.save(many, path)


@bomb("packed.pt", read_tensors)
def _(path: Path) -> None:
    plain = path.with_suffix(".tmp")
    size = 9 * GIGABYTE
    torch.save({"x": torch.zeros(4)}, plain)
    with zipfile.ZipFile(plain) as read, zipfile.ZipFile(path, "w") as archive:
        for name in read.namelist():
            if "/data/0" in name:
                _write_packed_member(archive, name, b"", size)
            else:
                archive.writestr(name, read.read(name).replace(b"K\x04", b"J\0\0\0\x7f"))


def _nested(kind: Any, depth: int = 60) -> bytes:
    """Instructions of a pickle for lists or tuples, each of twice the one before it."""
    nested = kind()
    for _ in range(depth):
        nested = kind((nested, nested))
    return pickle.dumps(nested, protocol=2)[2:-1]


@bomb("nested_label.bin", read_validation_bin)
def _(path: Path) -> None:
    path.write_bytes(b"\x80\x02]U\1xa]" + _nested(list) + b"a\x86.")


@bomb("nested_key.pt", read_tensors)
def _(path: Path) -> None:
    _write_pickle(path, b"\x80\x02}" + _nested(tuple) + b"K\1s.")  # its hash takes 2 ** 60 steps


@bomb("nested_storage.pt", read_tensors)
def _(path: Path) -> None:
    _write_pickle(path, b"\x80\x02" + _nested(list) + b"\x85Q.")  # a message would repeat it


def _write_pickle(path: Path, content: bytes) -> None:
    """A file of PyTorch with this pickle."""
    torch.save({}, path)
    members = unzipped(path.read_bytes())
    pickles = [name for name in members if name.endswith("data.pkl")]
    path.write_bytes(zipped(members | dict.fromkeys(pickles, content)))


@bomb("day_of_silence.flac", audio.read)
def _(path: Path) -> None:
    with soundfile.SoundFile(path, "w", 2000, 1) as file:
        for _ in range(20):
            file.write(np.zeros(3600 * 2000, np.int16))


@bomb("whole_day_of_silence.flac", read_recording)
def _(path: Path) -> None:
    BOMBS["day_of_silence.flac"][0](path)


@bomb("huge.png", read_image)
def _(path: Path) -> None:
    size = 60_000
    rows = _deflated(bytes(REPEATED), size * (size * 3 + 1) // REPEATED)
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)), (b"IDAT", rows))
    with path.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, content in chunks:
            file.write(struct.pack(">I", len(content)) + name + content)
            file.write(struct.pack(">I", zlib.crc32(name + content)))


ROWS = list(BOMBS)  # of the table: there is one bomb of each


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """The bomb of a number, which ends the name of the place."""
    number = int("".join(filter(str.isdigit, place.name)))
    name = ROWS[number]
    path = place.with_name(f"{number}_{name}")
    BOMBS[name][0](path)
    return path


def read(path: Path) -> None:
    """Read a bomb with the reader of its kind."""
    BOMBS[path.name.partition("_")[2]][1](path)
