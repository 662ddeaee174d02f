"""Prepare faces: python recipes/Face/prepare.py {folder,records,bin,pairs,align,orl} ...

    folder   FOLDER DATA            a folder per person (VGGFace2, MS1MV2, CASIA) -> DATA/train.csv
    records  train.rec DATA         InsightFace's RecordIO, not unpacked -> DATA/train.csv
    bin      lfw.bin ... DATA       InsightFace's validation sets -> DATA/lfw.csv, lfw_pairs.txt
    pairs    FOLDER LIST DATA NAME  aligned images and a list of pairs -> NAME.csv, NAME_pairs.txt
    align    FOLDER NEW             crops of 112 x 112 by five landmarks
    orl      FOLDER DATA            the ORL faces: 30 persons train, 10 test

Images must be aligned; they are not copied.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.Face.alignment import align_folder, named_detector
from recipes.Face.face_tables import (
    prepare_orl,
    write_bin_set,
    write_folder_set,
    write_folder_table,
    write_record_table,
)
from simple_spk.cli.errors import exit_code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    folder = commands.add_parser("folder", help="a folder per person")
    folder.add_argument("source", type=Path, metavar="FOLDER", help="aligned images")
    records = commands.add_parser("records", help="a .rec file, with its .idx beside it")
    records.add_argument("source", type=Path, metavar="REC", help="such as train.rec")
    for command in (folder, records):
        command.add_argument("data_folder", type=Path, metavar="DATA", help="folder of the tables")
        command.add_argument("--name", default="train", help="of the table")

    bins = commands.add_parser("bin", help="validation sets of InsightFace")
    bins.add_argument("bins", type=Path, nargs="+", metavar="BIN", help="such as lfw.bin")
    bins.add_argument("data_folder", type=Path, metavar="DATA", help="folder of the tables")

    pairs = commands.add_parser("pairs", help="aligned images and a published list of pairs")
    pairs.add_argument("folder", type=Path, metavar="FOLDER", help="aligned images")
    pairs.add_argument("list", type=Path, metavar="LIST", help="such as pairs.txt")
    pairs.add_argument("data_folder", type=Path, metavar="DATA", help="folder of the tables")
    pairs.add_argument("name", metavar="NAME", help="of the set, such as lfw")

    align = commands.add_parser("align", help="crops by five landmarks")
    align.add_argument("folder", type=Path, metavar="FOLDER", help="original images")
    align.add_argument("target", type=Path, metavar="TARGET", help="folder of the crops")
    source = align.add_mutually_exclusive_group(required=True)
    source.add_argument("--landmarks", type=Path, metavar="CSV", help="a name and ten numbers")
    source.add_argument("--detector", metavar="MODULE:FUNCTION", help="from image to landmarks")
    align.add_argument(
        "--width", type=int, default=112, choices=(112, 96), help="in pixels (default 112)"
    )
    align.add_argument("--workers", type=int, default=4, metavar="N", help="threads (default 4)")

    orl = commands.add_parser("orl", help="the ORL faces")
    orl.add_argument("folder", type=Path, metavar="FOLDER", help="with s1, s2, ...")
    orl.add_argument("data_folder", type=Path, metavar="DATA", help="folder of the tables")
    return top


def run(options: argparse.Namespace) -> None:
    """Prepare, and print what was written."""
    if options.command == "align":
        detector = None if options.detector is None else named_detector(options.detector)
        done = align_folder(
            options.folder,
            options.target,
            options.landmarks,
            detector,
            options.width,
            options.workers,
        )
        print(", ".join(f"{count} {outcome}" for outcome, count in done.items()))
        return
    data_folder = options.data_folder
    if options.command in ("folder", "records"):
        write_table = write_folder_table if options.command == "folder" else write_record_table
        table = data_folder / f"{options.name}.csv"
        print(f"{table}: {write_table(options.source, table)} images")
    elif options.command == "bin":
        for path in options.bins:
            print(f"{path.stem}: {write_bin_set(path, data_folder)} pairs")
    elif options.command == "pairs":
        count = write_folder_set(options.folder, options.list, data_folder, options.name)
        print(f"{options.name}: {count} pairs")
    else:
        done = prepare_orl(options.folder, data_folder)
        print(", ".join(f"{name} {count}" for name, count in done.items()))


def main() -> int:
    """The command, and its exit code."""
    options = parser().parse_args()
    return exit_code("prepare.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
