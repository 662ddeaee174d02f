"""Images and their nearest neighbors as one self-contained HTML page.

python recipes/CUB200/gallery.py RUN/scores_test.txt DATA/test.csv -o gallery.html
"""

import base64
import io
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.CUB200.rankings import Ranking, read_rankings
from simple_spk.cli.errors import exit_code
from simple_spk.cli.outputs import check_outputs
from simple_spk.io.atomic_file import write_text
from simple_spk.report.page import rendered
from simple_spk.vision.image_files import to_pillow
from simple_spk.vision.image_table import ImageTable, read_image_table

THUMBNAIL_PIXELS = 128  # of the longer side; shown at most this large
JPEG_QUALITY = 80


class Shown(NamedTuple):
    """An image on the page."""

    look: str  # query, right or wrong
    note: str
    thumbnail: str  # a data address


class Query(NamedTuple):
    """A query image and its neighbors."""

    id: str
    class_name: str
    images: list[Shown]  # the query first


def gallery_page(
    rankings: Mapping[str, Ranking],
    table: ImageTable,
    queries: int = 20,
    neighbors: int = 8,
    seed: int = 0,
    title: str = "Nearest images",
) -> str:
    """A page with random queries, each followed by its nearest images."""
    if queries < 1 or neighbors < 1:
        raise ValueError(f"queries {queries} and neighbors {neighbors} must be at least 1")
    names = list(rankings)
    chosen = np.random.default_rng(seed).permutation(len(names))[:queries]
    shown = [_query(names[number], rankings[names[number]][:neighbors], table) for number in chosen]
    return rendered(
        "gallery.html.j2",
        Path(__file__).parent,
        title=title,
        queries=shown,
        total=len(names),
        table_name=table.path.name,
        seed=seed,
    )


def _query(query: str, ranking: Ranking, table: ImageTable) -> Query:
    """A query and its neighbors, with their images."""
    row_of_id = table.row_of_id
    unknown = [name for name in (query, *(name for name, _ in ranking)) if name not in row_of_id]
    if unknown:
        raise ValueError(
            f"the rankings name {unknown[0]}, which is not an ID of {table.path}: give the table "
            f"that was tested with"
        )
    row = row_of_id[query]
    label = table.class_of_row[row]
    class_name = table.classes[label]
    images = [Shown("query", class_name, _thumbnail(row, table))]
    for name, score in ranking:
        row = row_of_id[name]
        found = table.class_of_row[row]
        note = f"{table.classes[found]}, score {score:.3f}"
        look = "right" if found == label else "wrong"
        images.append(Shown(look, note, _thumbnail(row, table)))
    return Query(query, class_name, images)


def _thumbnail(row: int, table: ImageTable) -> str:
    """A small JPEG of an image as the text of a data address."""
    image = to_pillow(table.read(row))
    image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=JPEG_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


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
        "--neighbors", type=int, default=8, metavar="N", help="nearest of each (default 8)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the choice of queries (default 0)"
    )
    parser.add_argument(
        "--title", default="Nearest images", metavar="TEXT", help="(default %(default)s)"
    )


def run(options: Namespace) -> None:
    """Choose, draw and write."""
    check_outputs([options.output], [options.rankings, options.table])
    rankings = read_rankings(options.rankings)
    page = gallery_page(
        rankings,
        read_image_table(options.table),
        options.queries,
        options.neighbors,
        options.seed,
        options.title,
    )
    write_text(options.output, page)
    print(f"{options.output}: {min(options.queries, len(rankings))} images and their neighbors")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, and return the exit code."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return exit_code("gallery.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
