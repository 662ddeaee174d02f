"""Cuts of lhotse (JSON lines) as a manifest. They are read as data: lhotse is not needed.

A cut that is a whole mono file stays where it is. Of a part or a channel of a recording, a FLAC
file is written, unless an earlier run has written it.
"""

import gzip
import hashlib
import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import soundfile
from tqdm import tqdm

from simple_spk.corpora.inspection import length_fault
from simple_spk.corpora.speaker_folder import UNFIT_FOR_TABLES
from simple_spk.corpora.tables import (
    PreparedCorpus,
    Quarantined,
    count_kinds,
    write_quarantine,
)
from simple_spk.corpora.trial_lists import plain_id
from simple_spk.data.audio import SHORTEST_SECONDS, AudioError, read_header
from simple_spk.data.manifest import write_manifest
from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import open_file

SUFFIXES = (".jsonl", ".jsonl.gz")
CUTS_AT_ONCE = 10_000  # in memory: a set may have millions
LONGEST_LINE = 2**24  # bytes: a cut with its words takes some kilobytes


class CutError(ValueError):
    """Why a cut cannot be used: the kind of fault in a word or two, and details."""


class _Cut(NamedTuple):
    """A row of the manifest to be: a part of a channel of a file, by seconds."""

    name: str
    path: Path
    start: float
    seconds: float
    channel: int  # its place among those of the file
    speaker: str
    session: str


class _Row(NamedTuple):
    """A row of the manifest."""

    name: str
    path: str
    seconds: float
    speaker: str
    session: str


def prepare_lhotse(cuts: Path, target: Path, workers: int = 8) -> PreparedCorpus:
    """Write target/NAME.csv of NAME.jsonl.gz, with crops in target/cuts where they are needed.

    The session of an utterance is its recording. Unusable cuts are in NAME_quarantine.csv.
    """
    stem = next((cuts.name.removesuffix(s) for s in SUFFIXES if cuts.name.endswith(s)), None)
    if not stem:
        raise ValueError(
            f"{cuts} does not have the name of a cut manifest: expected NAME.jsonl or .jsonl.gz"
        )
    rows: dict[str, _Row] = {}
    faults: list[Quarantined] = []

    def row_of(numbered: tuple[int, bytes]) -> _Row | Quarantined:
        number, line = numbered
        try:
            return _written(_read_cut(line, cuts.parent), target)
        except CutError as error:
            return Quarantined(f"line {number}", *error.args)

    numbered = enumerate(_lines(cuts), 1)
    with ThreadPoolExecutor(workers) as pool, tqdm(desc="cuts", unit="cut") as bar:
        while some := list(islice(numbered, CUTS_AT_ONCE)):
            for (number, _), row in zip(some, pool.map(row_of, some), strict=True):
                if isinstance(row, Quarantined):
                    faults.append(row)
                elif row.name in rows:
                    details = f"the id {row.name} came before"
                    faults.append(Quarantined(f"line {number}", "duplicate", details))
                else:
                    rows[row.name] = row
                bar.update()
    manifest, quarantine = target / f"{stem}.csv", target / f"{stem}_quarantine.csv"
    write_quarantine(quarantine, faults)
    if not rows:
        kinds = count_kinds(faults) or "it is empty"
        raise ValueError(f"{cuts} has no cuts that can be used ({kinds}): see {quarantine}")
    write_manifest(manifest, *map(list, zip(*rows.values(), strict=True)))
    hours = sum(row.seconds for row in rows.values()) / 3600
    speakers = len({row.speaker for row in rows.values()})
    return PreparedCorpus(manifest, speakers, len(rows), hours, quarantine, faults, Counter())


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, which may be packed."""
    file: IO[bytes] = open_file(path, "cut manifest")
    with file, gzip.open(file) if path.suffix == ".gz" else file as unpacked:
        try:
            while line := unpacked.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise ValueError(f"{path} has a line of over {LONGEST_LINE} bytes: no cut has")
                if line.strip():
                    yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged ({error}): copy it again") from error


def _read_cut(line: bytes, folder: Path) -> _Cut:
    """The cut of a line; relative paths are relative to the folder, or else to the current one."""
    try:
        cut = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CutError("not JSON", str(error)[:200]) from error
    if not isinstance(cut, dict) or cut.get("type", "MonoCut") != "MonoCut":
        kind = cut.get("type") if isinstance(cut, dict) else type(cut).__name__
        raise CutError("no MonoCut", f"is a {kind!r:.50}: save its audio with lhotse first")
    try:
        recording = cut["recording"]
        (source,) = recording["sources"]
        name, session, place = str(cut["id"]), str(recording["id"]), source["source"]
        start, seconds = float(cut["start"]), float(cut["duration"])
        kind, changes = source["type"], recording.get("transforms")
        channel = source["channels"].index(cut["channel"])
        speakers = {one.get("speaker") for one in cut.get("supervisions", ())} - {None, ""}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        details = f"lacks a field, or has several files ({error!r:.100})"
        raise CutError("no recording", details) from error
    if not (math.isfinite(start + seconds) and start >= 0 and seconds > 0):
        raise CutError("bad times", f"lasts {seconds} s from {start} s on")
    if kind != "file" or not isinstance(place, str):
        raise CutError(
            "no file", f"is a {kind!r:.50}, not a file: save its audio with lhotse first"
        )
    if changes:
        raise CutError("changed", "its recording has transforms: save its audio with lhotse first")
    if len(speakers) != 1:
        raise CutError("no speaker" if not speakers else "several speakers", f"has {len(speakers)}")
    (speaker,) = map(str, speakers)
    if UNFIT_FOR_TABLES.search("".join((name, session, speaker, place))):
        raise CutError("unfit name", "has a name with control characters or not in UTF-8")
    beside = folder / place
    path = Path(os.path.abspath(beside if os.path.exists(beside) else place))
    return _Cut(plain_id(name), path, start, seconds, channel, plain_id(speaker), session)


def _written(cut: _Cut, target: Path) -> _Row:
    """The row of a cut, whose crop is written if it needs one."""
    try:
        header = read_header(cut.path)
        rate = header.sample_rate
        first, count = round(cut.start * rate), round(cut.seconds * rate)
        total = round(header.seconds * rate)
        fault = length_fault(cut.seconds, SHORTEST_SECONDS)
        if fault is not None:
            raise CutError(*fault)
        if first + count > total + 1:  # rounding apart
            raise CutError(
                "bad times", f"ends after {cut.path}, which lasts {header.seconds:.3f} s"
            )
        count = min(count, total - first)
        path = str(cut.path)
        if (first, count) != (0, total) or header.channels > 1:
            path = _cropped(cut, first, count, target)
    except (AudioError, OSError) as error:
        raise CutError("unreadable", str(error)) from error
    return _Row(cut.name, path, count / rate, cut.speaker, cut.session)


def _cropped(cut: _Cut, first: int, count: int, target: Path) -> str:
    """The path, relative to the target, of a crop; its name tells what it was made of."""
    state = cut.path.stat()
    made_of = [str(cut.path), state.st_size, state.st_mtime_ns, first, count, cut.channel]
    digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]
    name = f"cuts/{digest[:2]}/{digest}.flac"
    if (target / name).is_file():
        return name
    try:
        with soundfile.SoundFile(cut.path) as file:
            file.seek(first)
            kind = "float32" if file.subtype in ("FLOAT", "DOUBLE") else "int16"
            samples = file.read(count, dtype=kind, always_2d=True)[:, cut.channel]
            if kind == "float32":
                samples = np.clip(samples, -1.0, 1.0)
            rate = file.samplerate
    except (soundfile.LibsndfileError, IndexError) as error:
        raise CutError("unreadable", f"{cut.path}: {error}: convert it to FLAC first") from error
    if len(samples) != count:
        raise CutError("truncated", f"{cut.path} ends before its header says")
    with atomic_write(target / name, durable=False) as partial:
        soundfile.write(partial, samples, rate, "PCM_16", format="FLAC")
    return name
