"""Embeddings of audio files, or of all audio files below folders, as one file."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.audio import AUDIO_SUFFIXES
from simple_spk.commands.options import add_model, add_workers
from simple_spk.embeddings_file import write_embeddings
from simple_spk.extractor import Extractor


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of embed."""
    add_model(parser)
    add_workers(parser)
    parser.add_argument("audio", nargs="+", help="audio files, or folders of them")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="to write: .npz, .safetensors, or .ark (with an .scp)",
    )


def run(options: Namespace) -> None:
    """Embed, and write the file."""
    ids, paths = [], []
    for source in map(Path, options.audio):
        found = [source]
        if source.is_dir():
            found = sorted(p for p in source.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
            if not found:
                raise ValueError(f"{source}: no audio files below this folder")
        base = source if source.is_dir() else source.parent
        ids += [path.relative_to(base).as_posix() for path in found]
        paths += found
    if len(set(ids)) < len(ids):
        raise ValueError("two recordings would get one id: embed their folders one at a time")
    extractor = Extractor.load(options.model, options.device)
    embeddings = extractor.embed(paths, workers=options.workers, progress=True)
    write_embeddings(options.output, ids, embeddings)
    print(f"{len(ids)} embeddings of dimension {embeddings.shape[1]} in {options.output}")
