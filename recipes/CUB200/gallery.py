"""Images and their nearest neighbours as one HTML page that needs nothing else."""

import base64
import io
from collections.abc import Mapping
from html import escape
from typing import NamedTuple

import numpy as np

from simple_spk.report.html_parts import document
from simple_spk.report.style import STYLE
from simple_spk.vision.image_files import read_image, to_pillow
from simple_spk.vision.image_table import ImageTable
from simple_spk.vision.rankings import Ranking

THUMBNAIL_PIXELS = 128  # of the longer side; shown at most this large
JPEG_QUALITY = 80

# Right and wrong differ in sign, word and border, not in colour alone.
GALLERY_STYLE = """
.rank { display: grid; gap: 8px; grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); }
.rank figure { padding: 6px; border-radius: 8px; border: 3px solid var(--rule); min-width: 0; }
.rank img {
  display: block; width: 100%; height: 96px; object-fit: contain; background: var(--grid);
}
.rank figcaption { margin-top: 4px; font-size: 12px; line-height: 1.3; }
.rank .right { border-color: var(--c0); } .rank .wrong { border: 3px dashed var(--c1); }
.rank b { color: var(--text); } .right b { color: var(--c0); } .wrong b { color: var(--c1); }
.card { break-inside: avoid; }
"""


class Shown(NamedTuple):
    """An image on the page."""

    row: int
    mark: str  # HTML of ours
    look: str
    note: str


def gallery_page(
    rankings: Mapping[str, Ranking],
    table: ImageTable,
    queries: int = 20,
    neighbours: int = 8,
    seed: int = 0,
    title: str = "Nearest images",
) -> str:
    """A page with random queries, each followed by its nearest images."""
    if queries < 1 or neighbours < 1:
        raise ValueError(f"queries {queries} and neighbours {neighbours} must be at least 1")
    names = list(rankings)
    chosen = np.random.default_rng(seed).permutation(len(names))[:queries]
    cards = [_card(names[number], rankings[names[number]][:neighbours], table) for number in chosen]
    body = (
        f"<h1>{escape(title)}</h1>\n"
        f'<p class="quiet">{len(cards)} of {len(names):,} images of {escape(table.path.name)}, '
        f"chosen at random (seed {seed}), each with the images that the model finds most similar, "
        "nearest first. ✓ right: of the same class. ✗ wrong: of another one.</p>\n"
        f"{''.join(cards)}"
    )
    return document(title, STYLE + GALLERY_STYLE, body)


def _card(query: str, ranking: Ranking, table: ImageTable) -> str:
    """A query and its neighbours."""
    row_of_id = table.row_of_id
    unknown = [name for name in (query, *(name for name, _ in ranking)) if name not in row_of_id]
    if unknown:
        raise ValueError(
            f"the rankings name {unknown[0]}, which is not an ID of {table.path}: give the table "
            f"that was tested with"
        )
    row = row_of_id[query]
    label = table.class_of_row[row]
    shown = [Shown(row, "query", "query", table.classes[label])]
    right = 0
    for name, score in ranking:
        found = row_of_id[name]
        is_right = table.class_of_row[found] == label
        right += is_right
        mark, look = ("✓ right", "right") if is_right else ("✗ wrong", "wrong")
        note = f"{table.classes[table.class_of_row[found]]}, score {score:.3f}"
        shown.append(Shown(found, mark, look, note))
    return (
        f'<section class="card"><h3>{escape(table.classes[label])}</h3>'
        f'<p class="how">{escape(query)}: {right} of {len(ranking)} right</p>'
        f'<div class="rank">{"".join(_figure(one, table) for one in shown)}</div></section>\n'
    )


def _figure(one: Shown, table: ImageTable) -> str:
    """An image with its mark."""
    return (
        f'<figure class="{one.look}"><img alt="{escape(one.mark)}: {escape(one.note)}" '
        f'src="{_thumbnail(one.row, table)}"><figcaption><b>{one.mark}</b><br>{escape(one.note)}'
        "</figcaption></figure>"
    )


def _thumbnail(row: int, table: ImageTable) -> str:
    """A small JPEG of an image as the text of a data address."""
    image = to_pillow(read_image(table.image(row)))
    image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=JPEG_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
