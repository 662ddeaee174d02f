"""Trial lists: which recording is to be compared with which, and whether they share a speaker."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.data import text_table
from simple_spk.data.text_table import FieldTable


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
                found = f"{name} has indexes from {side.min()} to {side.max()}"
                raise ValueError(f"{found}; expected 0 to {len(self.ids) - 1}")
        if self.is_target is not None and self.is_target.shape != (len(self),):
            raise ValueError(f"is_target has shape {self.is_target.shape}; expected ({len(self)},)")

    def __len__(self) -> int:
        return len(self.enroll)


class LineLayout(NamedTuple):
    """What the fields of a line are: the columns of recordings, label and score, if it has them."""

    example: str
    enroll: int = -1  # -1 in files of scores alone
    test: int = -1
    label: int | None = None
    labels: tuple[str, str] = ("0", "1")  # non-target, target
    score: int | None = None

    @property
    def columns(self) -> int:
        return len(self.example.split())

    def fits(self, fields: list[bytes]) -> bool:
        """Whether a line may have this layout."""
        return (
            len(fields) == self.columns
            and (self.label is None or fields[self.label].decode() in self.labels)
            and (self.score is None or text_table.is_number(fields[self.score]))
        )

    def is_target(self, table: FieldTable) -> NDArray[np.bool_] | None:
        """Which lines (n,) are target trials; None without labels."""
        return None if self.label is None else table.equals(self.label, self.labels[1])

    def has_labels(self, table: FieldTable) -> bool:
        """Whether every label of a table is one of this layout."""
        if self.label is None:
            return True
        is_nontarget, is_target = (table.equals(self.label, word) for word in self.labels)
        return bool((is_nontarget | is_target).all())


# In order of preference: a word after two names tells more about the format than a leading 0 or 1.
_LAYOUTS = (
    LineLayout("enroll test target|nontarget", 0, 1, 2, ("nontarget", "target")),
    LineLayout("0|1 enroll test", 1, 2, 0),
    LineLayout("enroll test", 0, 1),
)


def read_layouts(
    file: IO[bytes], path: Path, kind: str, layouts: Sequence[LineLayout], first_only: bool
) -> tuple[list[LineLayout], FieldTable]:
    """The layouts that every line of a text may have, and its fields.

    With ``first_only``, the first of those that the first line may have is required of all lines.
    """
    first = text_table.first_line(file, path)
    examples = ", ".join(repr(layout.example) for layout in layouts)
    if first is None:
        raise ValueError(f"{path} is empty; expected lines such as {examples}")
    candidates = [layout for layout in layouts if layout.fits(first.split())]
    if not candidates:
        found = text_table.shown(first, 1)
        raise ValueError(f"{path}, line 1: found {found}; expected a line such as {examples}")
    layout = candidates[0]
    if first_only:
        candidates = [layout]
    # Where names look like numbers, the column of scores is not known yet.
    numeric = [] if layout.score is None or len(candidates) > 1 else [layout.score]
    table = text_table.read_fields(file, path, layout.columns, numeric)
    fitting = [] if table is None else [one for one in candidates if one.has_labels(table)]
    if table is None or not fitting:
        raise text_table.misfit(
            path, kind, layout.fits, f"{layout.example!r}, the format of line 1"
        )
    return fitting, table


def read_trials(path: str | Path) -> Trials:
    """The trials of a text file, plain or gzipped, in the order of its lines.

    The first line tells the format of all: ``0|1 enroll test`` (VoxCeleb), ``enroll test
    target|nontarget`` (Kaldi, WeSpeaker), or ``enroll test``. No trial may stand there twice; its
    mirror image may, as in the VoxCeleb lists, if it has the same label.
    """
    path = Path(path)
    with text_table.open_text(path, "trial list") as file:
        (layout,), table = read_layouts(file, path, "trial list", _LAYOUTS, first_only=True)
        file.seek(0)
        text = file.read()  # known to be one by now, and not a terabyte of zeros
    unix_text = text.replace(b"\r\n", b"\n") if b"\r" in text else text
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(unix_text))
    git_sha1.update(unix_text)
    ids, (enroll, test) = table.index(layout.enroll, layout.test)
    trials = Trials(
        ids=ids,
        enroll=enroll,
        test=test,
        is_target=layout.is_target(table),
        path=path,
        sha256=hashlib.sha256(text).hexdigest(),
        git_sha1=git_sha1.hexdigest(),
    )
    check_distinct(trials, path)
    return trials


def speakers_of_recordings(trials: Trials) -> NDArray[np.int64]:
    """A speaker's number (ids,) for every recording of a labeled list.

    If names do not tell it, recordings that target trials join, directly or through others, have
    one speaker.
    """
    if trials.is_target is None:
        raise ValueError(f"{trials.path} has no labels, so they cannot tell its speakers")
    by_name = speakers_by_name(trials)
    if by_name is not None:
        return by_name
    from scipy.sparse import coo_array  # takes long to import, and few need it
    from scipy.sparse.csgraph import connected_components

    edges = trials.enroll[trials.is_target], trials.test[trials.is_target]
    graph = coo_array((np.ones(len(edges[0]), bool), edges), shape=2 * (len(trials.ids),))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def speakers_by_name(trials: Trials) -> NDArray[np.int64] | None:
    """A speaker's number (ids,), from the part of names before the first / (VoxCeleb) or - (Kaldi).

    None if neither explains every label.
    """
    if trials.is_target is None:
        return None
    for mark in "/-":
        prefixes = [name.split(mark, 1)[0] for name in trials.ids]
        # Not an array of names, in which each would take as many bytes as the longest.
        number_of = {prefix: number for number, prefix in enumerate(sorted(set(prefixes)))}
        speakers = np.array([number_of[prefix] for prefix in prefixes], dtype=np.int64)
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


def _repetition(numbers: NDArray[np.int64]) -> tuple[int, int]:
    """Where the first number that repeats an earlier one stands, after that one; else (0, 0)."""
    ordered = np.sort(numbers)
    if (ordered[1:] != ordered[:-1]).all():
        return 0, 0
    _, firsts = np.unique(numbers, return_index=True)
    again = int(np.delete(np.arange(len(numbers)), firsts)[0])
    return int(np.argmax(numbers == numbers[again])), again
