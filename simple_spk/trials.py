"""Trial lists: which recording is to be compared with which, and whether they share a speaker."""

import codecs
import gzip
import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Trials:
    """A list of n trials over the recordings ``ids``; both sides are indexes into ``ids``.

    Millions of trials name few recordings: each is embedded once, and looked up by its index.
    """

    ids: list[str]  # distinct, in order of first appearance
    enrol: NDArray[np.int32]  # (n,)
    test: NDArray[np.int32]  # (n,)
    is_target: NDArray[np.bool_] | None = None  # (n,); None if the list has no labels
    path: Path | None = None
    sha256: str | None = None  # of the text, so a list and its .gz have the same

    def __post_init__(self) -> None:
        for name, side in (("enrol", self.enrol), ("test", self.test)):
            if side.shape != (len(self),):
                raise ValueError(f"{name} has shape {side.shape}; expected ({len(self)},)")
            if len(side) and not 0 <= side.min() <= side.max() < len(self.ids):
                raise ValueError(
                    f"{name} has indexes from {side.min()} to {side.max()}; "
                    f"expected 0 to {len(self.ids) - 1}, as there are {len(self.ids)} ids"
                )
        if self.is_target is not None and self.is_target.shape != (len(self),):
            raise ValueError(f"is_target has shape {self.is_target.shape}; expected ({len(self)},)")

    def __len__(self) -> int:
        return len(self.enrol)


class _Format(NamedTuple):
    """How a line is laid out: the columns of both recordings, and of the label if there is one."""

    example: str
    enrol: int
    test: int
    label: int | None
    labels: tuple[bytes, bytes]  # non-target, target

    @property
    def columns(self) -> int:
        return len(self.example.split())

    def fits(self, fields: list[bytes]) -> bool:
        return len(fields) == self.columns and (
            self.label is None or fields[self.label] in self.labels
        )


# In order of preference: a word after two names tells more about the format than a leading 0 or 1.
_FORMATS = (
    _Format("enrol test target|nontarget", 0, 1, 2, (b"nontarget", b"target")),
    _Format("0|1 enrol test", 1, 2, 0, (b"0", b"1")),
    _Format("enrol test", 0, 1, None, (b"", b"")),
)


def read_trials(path: str | Path) -> Trials:
    """The trials of a text file, plain or gzipped, in the order of its lines.

    One trial per line, in one of three formats, recognised from the first line and then required
    of all: ``0|1 enrol test`` (VoxCeleb), ``enrol test target|nontarget`` (Kaldi, WeSpeaker), and
    ``enrol test`` (no labels). Fields are separated by spaces or tabs.
    """
    path = Path(path)
    text = _read_text(path)
    content = text.removeprefix(codecs.BOM_UTF8).rstrip()
    if not content:
        raise ValueError(f"{path} is empty; expected one trial per line, such as {_examples()}")
    first = content.split(b"\n", 1)[0]
    layout = next((layout for layout in _FORMATS if layout.fits(first.split())), None)
    if layout is None:
        raise ValueError(
            f"{path}, line 1: found {_shown(first)}; expected a trial, such as {_examples()}"
        )
    # A single split is far faster than one per line. Marking the line ends keeps the lines apart:
    # if all have the same number of fields, and only then, the marks stand at regular distances.
    lines, stride = content.count(b"\n") + 1, layout.columns + 1
    fields = content.replace(b"\n", b" \0 ").split()
    marks = fields[layout.columns :: stride]
    is_regular = len(fields) == lines * stride - 1 and marks.count(b"\0") == lines - 1
    labels = [] if layout.label is None else fields[layout.label :: stride]
    if not is_regular or not set(labels) <= set(layout.labels):
        raise ValueError(_first_misfit(path, content, layout))
    sides: list[bytes] = [b""] * (2 * lines)
    sides[0::2] = fields[layout.enrol :: stride]
    sides[1::2] = fields[layout.test :: stride]
    index: defaultdict[bytes, int] = defaultdict(lambda: len(index))
    pairs = np.fromiter(map(index.__getitem__, sides), dtype=np.int32, count=2 * lines)
    return Trials(
        ids=[name.decode() for name in index],
        enrol=pairs[0::2].copy(),
        test=pairs[1::2].copy(),
        is_target=None if layout.label is None else np.array(labels) == layout.labels[1],
        path=path,
        sha256=hashlib.sha256(text).hexdigest(),
    )


def write_scores(path: str | Path, trials: Trials, scores: ArrayLike) -> None:
    """A text file of ``enrol test score [target|nontarget]`` lines, in the order of the list.

    Scores (n,) are written with as many digits as it takes to read back the same numbers; a path
    that ends in .gz is compressed. The file appears under its name only once it is complete.
    """
    path = Path(path)
    values = np.asarray(scores)
    if values.shape != (len(trials),):
        raise ValueError(
            f"scores have shape {values.shape}; expected ({len(trials)},), one score per trial"
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"{len(bad)} of {len(values)} scores are not finite, the first at index {bad[0]}: "
            f"{values[bad[0]]}; every trial needs a finite score"
        )
    digits = 9 if values.dtype == np.float32 else 17
    enrol = map(trials.ids.__getitem__, trials.enrol.tolist())
    test = map(trials.ids.__getitem__, trials.test.tolist())
    labels: Iterable[str] = repeat("")
    if trials.is_target is not None:
        labels = (" target" if same else " nontarget" for same in trials.is_target.tolist())
    partial = path.with_name(path.name + ".partial")
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(partial, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(
            f"{left} {right} {score:.{digits}g}{label}\n"
            for left, right, score, label in zip(enrol, test, values.tolist(), labels, strict=False)
        )
    partial.replace(path)


def _read_text(path: Path) -> bytes:
    """The bytes of a text file, unpacked if they are gzipped, and known to be UTF-8."""
    if not path.exists():
        raise FileNotFoundError(
            f"trial list {path} does not exist; check the spelling, and that a relative path "
            f"starts from the current directory, {Path.cwd()}"
        )
    text = path.read_bytes()
    if text.startswith(b"\x1f\x8b"):  # by content, as some lists lose or keep .gz on the way
        try:
            text = gzip.decompress(text)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
    try:
        bad = text.find(b"\0")  # valid UTF-8, but a sign of UTF-16, and our mark of line ends
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        bad = error.start
    if bad >= 0:
        line = text.count(b"\n", 0, bad) + 1
        raise ValueError(
            f"{path}, line {line}: found the byte {text[bad]:#04x}; expected text in UTF-8"
        )
    return text


def _first_misfit(path: Path, content: bytes, layout: _Format) -> str:
    """What to say about the first line that breaks the format of the list."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not layout.fits(line.split()):
            return (
                f"{path}, line {number}: found {_shown(line)}; expected {layout.example!r}, "
                "the format of line 1"
            )
    raise AssertionError("called on a list without a malformed line")


def _shown(line: bytes) -> str:
    """The line as it is shown in a message: quoted, and cut if it is long."""
    text = line.decode().strip()
    return repr(text if len(text) <= 200 else text[:200] + "...") if text else "a blank line"


def _examples() -> str:
    """The known formats, for a message."""
    return ", ".join(repr(layout.example) for layout in _FORMATS)
