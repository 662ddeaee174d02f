"""What commands write: files that are checked before long work, tables and JSON."""

import tempfile
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simple_spk.cli.messages import counted, say, warn
from simple_spk.io.atomic_file import write_text

if TYPE_CHECKING:  # commands about two recordings read no lists
    from simple_spk.data.trials import Trials

STANDARD_OUTPUT = Path("-")
OUTPUT_OPTIONS = ("output", "json", "report", "det", "save_embeddings")


def check_outputs(files: Iterable[Path | None], inputs: Sequence[Path]) -> None:
    """Create the folders of output files; raise if one is not writable, named twice, or an input.

    An existing recording is not overwritten either. This comes before the work, which may take
    hours.
    """
    from simple_spk.data.audio import RECORDING_SUFFIXES  # not for commands that write nothing

    seen: set[Path] = set()
    for path in files:
        if path is None or path == STANDARD_OUTPUT:
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name a file in it")
        is_input = path.exists() and any(i.exists() and path.samefile(i) for i in inputs)
        if is_input or path in seen:
            other = "is an input" if is_input else "would be written twice"
            raise ValueError(f"{path} {other}, and would be overwritten: name another output")
        if path.is_file() and path.name.lower().endswith(RECORDING_SUFFIXES):
            raise ValueError(
                f"{path} is a recording, and would be overwritten: name another output"
            )
        seen.add(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            message = f"{path} cannot be written ({error.strerror}): name another output"
            raise OSError(message) from error


def inputs_of(options: Namespace) -> list[Path]:
    """All paths in the options of a command except its outputs."""
    values = [value for name, value in vars(options).items() if name not in OUTPUT_OPTIONS]
    flat = (one for value in values for one in (value if isinstance(value, list) else [value]))
    return [one for one in flat if isinstance(one, Path)]


def score_files(output: Path | None, lists: "Sequence[Trials]") -> list[Path | None]:
    """The score file of each list: ``output``, or with several lists, a file in that folder."""
    if output is None or len(lists) == 1:
        return [output] * len(lists)
    names = [trials.path.name.removesuffix(".gz") for trials in lists if trials.path is not None]
    if len(set(names)) < len(names):
        raise ValueError(f"two lists of one name would share a file in {output}: rename one")
    return [output / name for name in names]


def warn_of_other_files(files: Sequence[Path]) -> None:
    """Name the first few files of folders that were left out, if there are any."""
    if files:
        first = ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")
        left_out = f"left out {counted(len(files), 'file')} without a suffix of audio ({first})"
        warn(f"{left_out}: name those that are audio")


def print_results(table: str, json_text: str, json_file: Path | None) -> None:
    """Print a table and write the JSON to a file, if one is named; or print only the JSON."""
    if json_file == STANDARD_OUTPUT:
        print(json_text)
        return
    say(table)
    if json_file is not None:
        write_text(json_file, json_text + "\n")
