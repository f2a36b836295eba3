"""Plots of lines over two logarithmic axes, as SVG elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

LEFT_MARGIN, TOP_MARGIN, BOTTOM_MARGIN = 64, 14, 34
NAMES_MARGIN, RIGHT_MARGIN = 110, 34
"""Margins at the right with the lines' names, and without."""
NAME_HEIGHT = 14


@dataclass(frozen=True)
class Line:
    """A line: the CSS class of its elements, the name at its end (none for ""), and its points."""

    kind: str
    name: str
    points: Mapping[float, float]


@dataclass(frozen=True)
class Axes:
    """The axes: tick labels by value, all above 0; the name of the horizontal variable; a
    description of the plot; and a function that describes a point."""

    across: Mapping[float, str]
    up: Mapping[float, str]
    variable: str
    label: str
    point: Callable[[float, float], str]


def plot(lines: Sequence[Line], axes: Axes, width: int = 640, height: int = 300) -> str:
    """Draw lines; values beyond the ends of an axis are drawn at its ends."""
    has_names = any(line.name for line in lines)
    right = width - (NAMES_MARGIN if has_names else RIGHT_MARGIN)
    across = _scale(axes.across, LEFT_MARGIN, right)
    up = _scale(axes.up, height - BOTTOM_MARGIN, TOP_MARGIN)
    parts = []
    for value, text in axes.up.items():
        y = up(value)
        parts.append(f'<path class="grid" d="M{LEFT_MARGIN} {y:.1f}H{right}"/>')
        anchor = f'x="{LEFT_MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end"'
        parts.append(f"<text {anchor}>{text}</text>")
    for value, text in axes.across.items():
        anchor = f'x="{across(value):.1f}" y="{height - 14}" text-anchor="middle"'
        parts.append(f"<text {anchor}>{text}</text>")
    parts.append(f'<text x="{right + 22}" y="{height - 14}">{axes.variable}</text>')
    lines = [line for line in lines if line.points]
    name_heights = _without_overlap([up([*line.points.values()][-1]) for line in lines])
    for line, name_height in zip(lines, name_heights, strict=True):
        positions = {(x, y): f"{across(x):.1f} {up(y):.1f}" for x, y in line.points.items()}
        parts.append(f'<path class="line {line.kind}" d="M{"L".join(positions.values())}"/>')
        for point, position in positions.items():
            centre = 'cx="{}" cy="{}"'.format(*position.split())
            title = f"<title>{escape(axes.point(*point))}</title>"
            parts.append(f'<circle class="{line.kind}-mark" {centre} r="3.2">{title}</circle>')
        if line.name:
            anchor = f'x="{across(max(line.points)) + 9:.1f}" y="{name_height + 4:.1f}"'
            parts.append(f'<text class="{line.kind}-mark" {anchor}>{escape(line.name)}</text>')
    label = escape(axes.label, quote=True)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _scale(ticks: Mapping[float, str], start: float, end: float) -> Callable[[float], float]:
    """Map values logarithmically to coordinates between `start` and `end`."""
    low, high = min(ticks), max(ticks)
    span = math.log(high / low) or 1.0

    def coordinate(value: float) -> float:
        return start + math.log(min(max(value, low), high) / low) / span * (end - start)

    return coordinate


def _without_overlap(heights: Sequence[float]) -> list[float]:
    """Move the names of lines down until none overlaps another."""
    moved = [*heights]
    order = sorted(range(len(moved)), key=moved.__getitem__)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + NAME_HEIGHT)
    return moved
