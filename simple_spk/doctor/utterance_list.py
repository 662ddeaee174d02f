"""Lists of utterances with their seconds, against which a copy of a corpus is checked."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.audio import AUDIO_SUFFIXES
from simple_spk.data.text_table import first_line, misfit, number_of, open_text, read_fields


class UtteranceList(NamedTuple):
    """Names (n,), without suffix, and their seconds (n,), nan where the list has none."""

    names: list[str]
    seconds: NDArray[np.float64]


def read_utterance_list(path: str | Path) -> UtteranceList:
    """The utterances of a text file, plain or gzipped: a name per line, or a name and seconds."""
    path = Path(path)
    with open_text(path, "utterance list") as file:
        first = first_line(file, path)
        if first is None:
            raise ValueError(f"{path} is empty; expected lines of 'utterance [seconds]'")
        columns = min(len(first.split()), 2)
        table = read_fields(file, path, columns, range(1, columns))
    if table is not None and columns == 2 and not (table.numbers(1) >= 0.0).all():
        table = None
    if table is None:
        raise misfit(
            path,
            "utterance list",
            lambda fields: len(fields) == columns and (columns == 1 or number_of(fields[1]) >= 0.0),
            "'utterance [seconds]'",
        )
    distinct, (indexes,) = table.index(0)
    seconds = table.numbers(1) if columns == 2 else np.full(len(indexes), np.nan)
    names = list(map(without_suffix, distinct))
    if len(set(names)) < len(seconds):
        ((name, count),) = Counter(names[index] for index in indexes).most_common(1)
        raise ValueError(f"{path} names {name} {count} times; expected each utterance once")
    return UtteranceList(names, seconds)


def without_suffix(name: str) -> str:
    """A name without the suffix of an audio file, which a conversion changes.

    >>> without_suffix("id10270/5r0dWxy17C8/00001.wav"), without_suffix("dr.smith/1")
    ('id10270/5r0dWxy17C8/00001', 'dr.smith/1')
    """
    stem, _, suffix = name.rpartition(".")
    return stem if f".{suffix.lower()}" in AUDIO_SUFFIXES else name
