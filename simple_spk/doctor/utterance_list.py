"""Lists of utterances with their seconds, against which a copy of a corpus is checked."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.audio import AUDIO_SUFFIXES
from simple_spk.data.field_table import cut_fields, read_text, shown


class UtteranceList(NamedTuple):
    """Names (n,), without suffix, and their seconds (n,), nan where the list has none."""

    names: list[str]
    seconds: NDArray[np.float64]


def read_utterance_list(path: str | Path) -> UtteranceList:
    """The utterances of a text file, plain or gzipped: a name per line, or a name and seconds."""
    path = Path(path)
    content = read_text(path, "utterance list").strip()
    if not content:
        raise ValueError(f"{path} is empty; expected lines of 'utterance [seconds]'")
    columns = len(content.partition(b"\n")[0].split())
    table = cut_fields(content, columns) if columns in (1, 2) else None
    seconds = np.full(content.count(b"\n") + 1, np.nan)
    if table is not None and columns == 2:
        seconds = table.numbers(1)
    if table is None or (columns == 2 and not (seconds >= 0.0).all()):
        raise ValueError(_first_misfit(path, content, columns))
    distinct, indexes = table.index(0)
    names = list(map(without_suffix, distinct))
    if len(set(names)) < len(seconds):
        ((name, count),) = Counter(names[index] for index in indexes[:, 0]).most_common(1)
        raise ValueError(f"{path} names {name} {count} times; expected each utterance once")
    return UtteranceList(names, seconds)


def without_suffix(name: str) -> str:
    """A name without the suffix of an audio file, which a conversion changes.

    >>> without_suffix("id10270/5r0dWxy17C8/00001.wav"), without_suffix("dr.smith/1")
    ('id10270/5r0dWxy17C8/00001', 'dr.smith/1')
    """
    stem, _, suffix = name.rpartition(".")
    return stem if f".{suffix.lower()}" in AUDIO_SUFFIXES else name


def _first_misfit(path: Path, content: bytes, columns: int) -> str:
    """What to say about the first line that is not laid out as the first one is."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        table = cut_fields(line, columns) if columns in (1, 2) else None
        if table is None or (columns == 2 and not table.numbers(1)[0] >= 0.0):
            return f"{path}, line {number}: found {shown(line)}; expected 'utterance [seconds]'"
    raise AssertionError("called on a list without a malformed line")
