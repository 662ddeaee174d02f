"""Trial lists: which recording is to be compared with which, and whether they share a speaker."""

import codecs
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.field_table import cut_fields, first_misfit, read_text, shown


@dataclass(frozen=True, eq=False)
class Trials:
    """A list of n trials over the recordings ``ids``; both sides are indexes into ``ids``.

    Millions of trials name few recordings: each is embedded once, and looked up by its index.
    """

    ids: list[str]  # distinct, in order of first appearance
    enroll: NDArray[np.int32]  # (n,)
    test: NDArray[np.int32]  # (n,)
    is_target: NDArray[np.bool_] | None = None  # (n,); None if the list has no labels
    path: Path | None = None
    sha256: str | None = None  # of the text, so a list and its .gz have the same
    git_sha1: str | None = None  # of the text with \n as line ends, as git names a file's content

    def __post_init__(self) -> None:
        for name, side in (("enroll", self.enroll), ("test", self.test)):
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
        return len(self.enroll)


class _Layout(NamedTuple):
    """How a line is laid out: the columns of both recordings, and of the label if there is one."""

    example: str
    enroll: int
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
_LAYOUTS = (
    _Layout("enroll test target|nontarget", 0, 1, 2, (b"nontarget", b"target")),
    _Layout("0|1 enroll test", 1, 2, 0, (b"0", b"1")),
    _Layout("enroll test", 0, 1, None, (b"", b"")),
)


def read_trials(path: str | Path) -> Trials:
    """The trials of a text file, plain or gzipped, in the order of its lines.

    One trial per line, in one of three formats, recognized from the first line and then required
    of all: ``0|1 enroll test`` (VoxCeleb), ``enroll test target|nontarget`` (Kaldi, WeSpeaker), and
    ``enroll test`` (no labels). Fields are separated by spaces or tabs. No trial may stand there
    twice; its mirror image may, as in the VoxCeleb lists, if it has the same label.
    """
    path = Path(path)
    text = read_text(path, "trial list")
    content = text.removeprefix(codecs.BOM_UTF8).rstrip()
    if not content:
        raise ValueError(f"{path} is empty; expected one trial per line, such as {_examples()}")
    first = content.split(b"\n", 1)[0]
    layout = next((layout for layout in _LAYOUTS if layout.fits(first.split())), None)
    if layout is None:
        raise ValueError(
            f"{path}, line 1: found {shown(first)}; expected a trial, such as {_examples()}"
        )
    table = cut_fields(content, layout.columns)
    if table is None:
        raise ValueError(first_misfit(path, content, layout.fits, layout.example))
    is_target = None
    if layout.label is not None:
        is_nontarget, is_target = (table.are(layout.label, label) for label in layout.labels)
        if not (is_nontarget | is_target).all():
            raise ValueError(first_misfit(path, content, layout.fits, layout.example))
    ids, sides = table.index(layout.enroll, layout.test)
    trials = Trials(
        ids=ids,
        enroll=sides[:, 0].copy(),
        test=sides[:, 1].copy(),
        is_target=is_target,
        path=path,
        sha256=hashlib.sha256(text).hexdigest(),
        git_sha1=_git_sha1(text),
    )
    check_distinct(trials, path)
    return trials


def speakers_of_recordings(trials: Trials) -> NDArray[np.int64]:
    """A speaker's number (ids,) for every recording of a labeled list.

    The speaker is what stands before the first / of a name (VoxCeleb), or before the first -
    (Kaldi), if that explains every label of the list. If neither does, recordings that target
    trials join, directly or through others, have one speaker.
    """
    if trials.is_target is None:
        raise ValueError(f"{trials.path} has no labels, so they cannot tell its speakers")
    by_name = speakers_by_name(trials)
    if by_name is not None:
        return by_name
    return _connected(
        len(trials.ids), trials.enroll[trials.is_target], trials.test[trials.is_target]
    )


def speakers_by_name(trials: Trials) -> NDArray[np.int64] | None:
    """A speaker's number (ids,) as names tell it, if that explains every label; else None."""
    if trials.is_target is None:
        return None
    for mark in "/-":
        prefixes = [name.split(mark, 1)[0] for name in trials.ids]
        speakers = np.unique(np.array(prefixes), return_inverse=True)[1]
        if np.array_equal(speakers[trials.enroll] == speakers[trials.test], trials.is_target):
            return speakers
    return None


def check_distinct(trials: Trials, path: Path) -> None:
    """Raise if a pair of recordings stands in a list twice, or mirrored with the other label."""
    first, again = _repetition(pair_numbers(trials.enroll, trials.test, len(trials.ids)))
    if again:
        raise ValueError(
            f"{path}, lines {first + 1} and {again + 1}: found the trial {name_of(trials, first)} "
            "twice; expected every trial once: remove the repetitions"
        )
    if trials.is_target is None:
        return
    low, high = np.minimum(trials.enroll, trials.test), np.maximum(trials.enroll, trials.test)
    unordered = pair_numbers(low, high, len(trials.ids))
    # A mirrored pair comes twice at most, so any repetition below is one of opposite labels.
    mirrored = trials.enroll > trials.test
    opposite = np.where(mirrored, ~trials.is_target, trials.is_target)
    first, again = _repetition(2 * unordered + opposite)
    if again:
        raise ValueError(
            f"{path}, lines {first + 1} and {again + 1}: found the pair {name_of(trials, first)} "
            "as target and, the other way round, as non-target; expected one label: correct it"
        )


def pair_numbers(
    enroll: NDArray[np.signedinteger], test: NDArray[np.signedinteger], count: int
) -> NDArray[np.int64]:
    """One number (n,) for each pair of indexes below ``count``, different for different pairs."""
    return enroll.astype(np.int64) * count + test


def name_of(trials: Trials, index: int) -> str:
    """A trial's recordings, for a message."""
    return f"{trials.ids[trials.enroll[index]]} {trials.ids[trials.test[index]]}"


def _git_sha1(text: bytes) -> str:
    """What git calls a file of this text with plain line feeds."""
    unix_text = text.replace(b"\r\n", b"\n") if b"\r" in text else text
    digest = hashlib.sha1(b"blob %d\0" % len(unix_text))
    digest.update(unix_text)
    return digest.hexdigest()


def _repetition(numbers: NDArray[np.int64]) -> tuple[int, int]:
    """Where the first number that repeats an earlier one stands, after that one; else (0, 0)."""
    ordered = np.sort(numbers)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return 0, 0
    places = np.flatnonzero(np.isin(numbers, repeated))
    _, firsts = np.unique(numbers[places], return_index=True)
    again = int(np.delete(places, firsts)[0])
    return int(np.argmax(numbers == numbers[again])), again


def _connected(count: int, starts: NDArray[np.int32], ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """The number (count,) of the component that each node of a graph belongs to.

    Every node takes over the smallest label of its neighbors, and then that label's own label,
    which doubles the reach of each round; so few rounds do.
    """
    labels = np.arange(count)
    while True:
        smaller = np.minimum(labels[starts], labels[ends])
        joined = labels.copy()
        for side in (starts, ends):
            np.minimum.at(joined, labels[side], smaller)
        joined = joined[joined]
        if np.array_equal(joined, labels):
            return np.unique(labels, return_inverse=True)[1]
        labels = joined


def _examples() -> str:
    """The known formats, for a message."""
    return ", ".join(repr(layout.example) for layout in _LAYOUTS)
