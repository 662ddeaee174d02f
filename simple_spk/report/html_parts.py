"""The pieces of HTML that reports are made of: they escape texts, and take only HTML of ours."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple


class Cell(NamedTuple):
    """A cell of a table: text, a smaller line below it, the classes of its look, and a drawing."""

    text: str
    note: str = ""
    look: str = "number"
    svg: str = ""


def document(title: str, style: str, body: str) -> str:
    """A whole page that needs nothing else, from its title, its style sheet and its body."""
    # Should a name ever slip through unescaped, the browser still runs and loads nothing.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            f"<body>\n<main>\n{body}\n</main>\n</body>",
            "</html>",
            "",
        ]
    )


def facts_list(facts: Mapping[str, str]) -> str:
    """Names and values, side by side."""
    entries = (
        # Paths may break where folders end.
        f"<div><dt>{escape(name)}</dt><dd>{escape(text).replace('/', '/<wbr>')}</dd></div>"
        for name, text in facts.items()
    )
    return f'<dl class="facts">{"".join(entries)}</dl>'


def measure(
    figures: Mapping[str, Any],
    intervals: Mapping[str, Any] | None,
    keys: Sequence[str],
    decimals: int = 4,
    look: str = "number",
) -> Cell:
    """The cell of the figure under ``keys``, with the interval under the same keys below it."""
    value, bounds = under(figures, keys), under(intervals, keys)
    note = "" if bounds is None else f"{bounds[0]:.{decimals}f} to {bounds[1]:.{decimals}f}"
    return Cell("-" if value is None else f"{value:.{decimals}f}", note, look)


def under(data: Any, keys: Sequence[str]) -> Any:
    """What nested mappings hold under keys; None if it is not there."""
    for key in keys:
        data = None if data is None else data.get(key)
    return data


def card(title: str, content: str, note: str = "") -> str:
    """A titled box, with a remark in a quiet voice."""
    remark = f'<p class="how">{escape(note)}</p>' if note else ""
    return f'<div class="card"><h3>{escape(title)}</h3>{remark}{content}</div>'


def figure(title: str, chart: str, caption: str, legend: str = "") -> str:
    """A chart in a titled box with its legend and caption."""
    return (
        f'<figure class="card"><h3>{escape(title)}</h3>{chart}{legend}'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table that scrolls in its own box; every text in it is escaped here."""
    looks = [cell.look for cell in rows[0]]
    titles = "".join(
        f'<th scope="col" class="{"number" if "number" in look else ""}">{escape(text)}</th>'
        for text, look in zip(head, looks, strict=True)
    )
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return (
        f'<div class="box" role="region" tabindex="0" aria-label="{escape(title)}"><table>\n'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>\n{lines}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    """One cell of the body of a table."""
    note = f'<span class="note">{escape(cell.note)}</span>' if cell.note else ""
    return f'<td class="{cell.look}">{cell.svg}{escape(cell.text)}{note}</td>'
