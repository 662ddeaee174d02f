"""Embeddings of audio files, or of all audio files below folders, as one file."""

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path

from simple_spk.audio import AUDIO_SUFFIXES
from simple_spk.commands.options import add_model, add_workers
from simple_spk.commands.outputs import check_outputs
from simple_spk.embeddings_file import check_format, write_embeddings
from simple_spk.extractor import Extractor


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of embed."""
    add_model(parser)
    add_workers(parser)
    parser.add_argument("audio", type=Path, nargs="+", help="audio files, or folders of them")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="to write: .npz, .safetensors, or .ark (with an .scp)",
    )


def run(options: Namespace) -> None:
    """Embed, and write the file."""
    ids: list[str] = []
    paths: list[Path] = []
    for source in options.audio:
        found = _audio_below(source) if source.is_dir() else [source]
        base = source if source.is_dir() else source.parent
        ids += [path.relative_to(base).as_posix() for path in found]
        paths += found
    name, count = Counter(ids).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{count} recordings would get one id, {name}: embed their folders one at a time"
        )
    check_outputs([options.output], paths)
    check_format(options.output, ids)
    extractor = Extractor.load(options.model, options.device)
    embeddings = extractor.embed(paths, workers=options.workers, progress=True)
    write_embeddings(options.output, ids, embeddings)
    print(f"{len(ids)} embeddings of dimension {embeddings.shape[1]} in {options.output}")


def _audio_below(folder: Path) -> list[Path]:
    """All audio files in a folder and those within, links followed."""

    def fail(error: OSError) -> None:
        raise error  # which os.walk would pass over

    found: list[Path] = []
    seen: dict[str, str] = {}  # where a folder really is -> where it was found first
    for place, _, names in os.walk(folder, onerror=fail, followlinks=True):
        twin = seen.setdefault(os.path.realpath(place), place)
        if twin != place:  # perhaps in a circle
            raise ValueError(f"{place} is the same folder as {twin}: remove one of the links")
        found += [Path(place, name) for name in names if name.lower().endswith(AUDIO_SUFFIXES)]
    if not found:
        raise ValueError(f"{folder}: no audio files below this folder")
    return sorted(found)
