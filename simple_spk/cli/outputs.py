"""The files that a command writes: known to be possible before long work, whole once they exist."""

import tempfile
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from simple_spk.cli.options import STANDARD_OUTPUT
from simple_spk.io.atomic_file import write_text

WRITTEN = ("output", "json", "report", "det", "save_embeddings")  # options that name outputs


def check_outputs(files: Iterable[Path | None], inputs: Sequence[Path]) -> None:
    """Make the folders of the files to write; raise if one cannot be written or is an input.

    Hours of work must not end at a folder that is not there, nor scores replace their own list.
    """
    seen: set[Path] = set()
    for path in files:
        if path is None or path == STANDARD_OUTPUT:
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name a file in it")
        is_input = path.exists() and any(i.exists() and path.samefile(i) for i in inputs)
        if is_input or path in seen:
            other = "is read from" if is_input else "is to be written twice"
            raise ValueError(f"{path} {other}, and would be overwritten: name another output")
        seen.add(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise OSError(
                f"{path} cannot be written ({error.strerror}): name another output"
            ) from error


def inputs_of(options: Namespace) -> list[Path]:
    """All paths in the options of a command that do not name what it writes."""
    values = [value for name, value in vars(options).items() if name not in WRITTEN]
    flat = (one for value in values for one in (value if isinstance(value, list) else [value]))
    return [one for one in flat if isinstance(one, Path)]


def show_figures(table: str, json_text: str, json_file: Path | None) -> None:
    """Print a table, and write the JSON if a file is named for it; or print the JSON instead."""
    if json_file == STANDARD_OUTPUT:
        print(json_text)
        return
    print(table)
    if json_file is not None:
        write_text(json_file, json_text + "\n")
