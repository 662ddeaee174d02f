"""A chart as SVG text: a frame with axes, and shapes in it, colored by the page around it, or by
a style of its own.

Written by hand rather than drawn by matplotlib: such a chart follows the page's colors in light
and dark, its text stays text, and it is a few kilobytes small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH = 400  # units of the drawing: about the pixels of a phone's screen, so text stays readable
LEFT, RIGHT, BOTTOM = 46, 10, 40
LABEL_HEIGHT = 14
KEY_HEIGHT = 18

# Outlines around (0, 0), by the name of the marker.
MARKERS = {
    "circle": "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
    "triangle": "M0,-5.5L5,4H-5z",
    "square": "M-4,-4H4V4H-4z",
    "inverted": "M0,5.5L5,-4H-5z",
    "cross": "M-5,-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z",
    "diamond": "M0,-6L6,0L0,6L-6,0z",
}


@dataclass
class Chart:
    """A drawing of data within limits: ``x_limits`` from left to right, ``y_limits`` upwards."""

    name: str  # unique in the page, of letters, digits and hyphens
    title: str
    description: str  # what a reader who cannot see the chart should know
    x_limits: tuple[float, float]
    y_limits: tuple[float, float]
    height: int = 300
    top: int = 10  # room above the frame, for labels of vertical lines
    below: int = 0  # room below the axes, for keys
    shapes: list[str] = field(default_factory=list)

    def x(self, values: ArrayLike) -> NDArray[np.float64]:
        """Horizontal positions of values."""
        low, high = self.x_limits
        return LEFT + (WIDTH - LEFT - RIGHT) * (np.asarray(values) - low) / (high - low)

    def y(self, values: ArrayLike) -> NDArray[np.float64]:
        """Vertical positions of values, which SVG counts downwards."""
        low, high = self.y_limits
        return self.bottom - (self.bottom - self.top) * (np.asarray(values) - low) / (high - low)

    @property
    def bottom(self) -> int:
        """Where the frame ends."""
        return self.height - BOTTOM - self.below

    def axes(
        self,
        x_ticks: Sequence[tuple[float, str]],
        y_ticks: Sequence[tuple[float, str]],
        x_label: str,
        y_label: str,
    ) -> None:
        """Grid lines, the labels of the ticks (value, text), and those of the axes."""
        right = WIDTH - RIGHT
        for value, text in x_ticks:
            at = f"{self.x(value):.1f}"
            self.shapes.append(f'<path class="grid" d="M{at},{self.top}V{self.bottom}"/>')
            self.shapes.append(
                f'<text x="{at}" y="{self.bottom + 14}" class="middle">{escape(text)}</text>'
            )
        for value, text in y_ticks:
            at = f"{self.y(value):.1f}"
            self.shapes.append(f'<path class="grid" d="M{LEFT},{at}H{right}"/>')
            self.shapes.append(
                f'<text x="{LEFT - 6}" y="{at}" dy="4" class="end">{escape(text)}</text>'
            )
        self.shapes.append(f'<path class="axis" d="M{LEFT},{self.top}V{self.bottom}H{right}"/>')
        middle = (LEFT + right) / 2, (self.top + self.bottom) / 2
        self.shapes.append(
            f'<text x="{middle[0]:.1f}" y="{self.bottom + BOTTOM - 6}" class="middle label">'
            f"{escape(x_label)}</text>"
            f'<text transform="translate(12,{middle[1]:.1f}) rotate(-90)" class="middle label">'
            f"{escape(y_label)}</text>"
        )

    def line(self, x: ArrayLike, y: ArrayLike, style: str) -> None:
        """A line through the points (k,), (k,), in the style of a class of the page."""
        self.shapes.append(
            f'<path class="line {style}" clip-path="url(#{self.name}-clip)" '
            f'd="{_path(self.x(x), self.y(y))}"/>'
        )

    def steps(self, edges: ArrayLike, heights: ArrayLike, style: str) -> None:
        """A filled outline of columns (k,) between edges (k + 1,)."""
        x = np.repeat(self.x(edges), 2)
        y = np.concatenate([[0.0], np.repeat(np.asarray(heights), 2), [0.0]])
        self.shapes.append(f'<path class="area {style}" d="{_path(x, self.y(y))}"/>')

    def whiskers(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, style: str) -> None:
        """Upright lines at x (k,), from low (k,) to high (k,)."""
        ends = zip(self.x(x), self.y(low), self.y(high), strict=True)
        path = "".join(f"M{at:.1f},{start:.1f}V{end:.1f}" for at, start, end in ends)
        self.shapes.append(
            f'<path class="whisker {style}" clip-path="url(#{self.name}-clip)" d="{path}"/>'
        )

    def marker(self, x: float, y: float, outline: str, style: str) -> None:
        """One of MARKERS at a point."""
        at = f"translate({self.x(x):.1f},{self.y(y):.1f})"
        self.shapes.append(
            f'<path class="marker {style}" transform="{at}" d="{MARKERS[outline]}"/>'
        )

    def uprights(self, lines: Sequence[tuple[float, str, str]]) -> None:
        """Vertical lines (x, text, style), each with its text on a row of its own above the frame.

        Lines beyond the limits are left out. ``top`` must leave LABEL_HEIGHT for each.
        """
        low, high = self.x_limits
        shown = sorted(line for line in lines if low <= line[0] <= high)
        for row, (value, text, style) in enumerate(shown):
            at = float(self.x(value))
            height = self.top - 4 - row * LABEL_HEIGHT
            # Left of its line, a text meets no other line: those further right are the taller ones.
            is_left = at > LEFT + 7 * len(text)
            self.shapes.append(
                f'<path class="upright {style}" d="M{at:.1f},{height - 8}V{self.bottom}"/>'
                f'<text x="{at + (-5 if is_left else 5):.1f}" y="{height}" '
                f'class="{"end" if is_left else "start"} halo">{escape(text)}</text>'
            )

    def key(self, row: int, column: int, text: str, style: str, outline: str | None = None) -> None:
        """What a line, or a marker of an outline, means: in one of two columns below the axes.

        ``below`` must leave KEY_HEIGHT for each row.
        """
        x = LEFT + column * (WIDTH - LEFT - RIGHT) / 2
        y = self.height - self.below + KEY_HEIGHT * (row + 0.5)
        if outline is None:
            self.shapes.append(f'<path class="line {style}" d="M{x:g},{y:g}h22"/>')
        else:
            at = f"translate({x + 11:g},{y:g})"
            self.shapes.append(
                f'<path class="marker {style}" transform="{at}" d="{MARKERS[outline]}"/>'
            )
        self.shapes.append(
            f'<text x="{x + 30:g}" y="{y:g}" dy="4" class="label">{escape(text)}</text>'
        )

    def svg(self, style: str | None = None) -> str:
        """The whole chart: a part of a page, or with a style sheet of its own, a file."""
        size = f'viewBox="0 0 {WIDTH} {self.height}"'
        own = []
        if style is not None:
            size += f' width="{WIDTH}" height="{self.height}" xmlns="http://www.w3.org/2000/svg"'
            own = [f"<style>{style}</style>", '<rect class="paper" width="100%" height="100%"/>']
        frame = (
            f'<rect x="{LEFT}" y="{self.top}" width="{WIDTH - LEFT - RIGHT}" '
            f'height="{self.bottom - self.top}"/>'
        )
        return "\n".join(
            [
                f'<svg {size} role="img" aria-labelledby="{self.name}-title {self.name}-text">',
                f'<title id="{self.name}-title">{escape(self.title)}</title>',
                f'<desc id="{self.name}-text">{escape(self.description)}</desc>',
                f'<clipPath id="{self.name}-clip">{frame}</clipPath>',
                *own,
                *self.shapes,
                "</svg>",
            ]
        )


def round_ticks(low: float, high: float, most: int = 7) -> list[tuple[float, str]]:
    """At most about ``most`` round values from low to high, with their texts."""
    rough = (high - low) / most
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = np.ceil(low / step), np.floor(high / step)
    values = np.arange(first, last + 1) * step
    decimals = max(0, int(-np.floor(np.log10(step) + 1e-9)))
    return [(float(value), f"{value + 0.0:.{decimals}f}") for value in values]


def _path(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """The path through points (k,), (k,), to a tenth, in steps: most are short to write."""
    tenths = np.rint(10.0 * np.stack([x, y], axis=1)).astype(np.int64)
    steps = np.diff(tenths, axis=0)
    places = np.concatenate([tenths[:1], steps[steps.any(axis=1)]]).tolist()
    # All digits: a line may begin far beyond the frame, and still must cross it at the right place.
    texts = (f"{a / 10:.15g},{b / 10:.15g}" for a, b in places)
    return f"M{'l'.join(texts)}"
