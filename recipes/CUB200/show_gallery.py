"""Some images and their nearest neighbours as one HTML page, right and wrong ones marked."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.outputs import check_outputs
from simple_spk.io.atomic_file import write_text


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of gallery."""
    parser.add_argument(
        "rankings",
        type=Path,
        metavar="RANKINGS",
        help="what a test of retrieval wrote: RUN/scores_X.txt",
    )
    parser.add_argument(
        "table", type=Path, metavar="TABLE", help="the CSV file of the tested images"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="HTML", help="the page to write"
    )
    parser.add_argument(
        "--queries", type=int, default=20, metavar="N", help="images to look for (default 20)"
    )
    parser.add_argument(
        "--neighbours", type=int, default=8, metavar="N", help="nearest of each (default 8)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the choice of queries (default 0)"
    )
    parser.add_argument(
        "--title",
        default="Nearest images",
        metavar="TEXT",
        help="(default %(default)s)",
    )


def run(options: Namespace) -> None:
    """Choose, draw and write."""
    # The images' libraries are an extra: only who asks for a gallery needs them.
    from recipes.CUB200.gallery import gallery_page
    from simple_spk.vision.image_table import read_image_table
    from simple_spk.vision.rankings import read_rankings

    check_outputs([options.output], [options.rankings, options.table])
    page = gallery_page(
        read_rankings(options.rankings),
        read_image_table(options.table),
        options.queries,
        options.neighbours,
        options.seed,
        options.title,
    )
    write_text(options.output, page)
    print(f"{options.output}: {options.queries} images and their neighbours")
