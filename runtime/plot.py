"""Lines over two logarithmic axes as an element `svg`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

LEFT, TOP, BOTTOM = 64, 14, 34
NAMED, NARROW = 110, 34
"""The margin at the right where lines are named, and where they are not."""


@dataclass(frozen=True)
class Line:
    """One line: the class of its elements, its name at its end (none for ""), and its points."""

    kind: str
    name: str
    points: Mapping[float, float]


@dataclass(frozen=True)
class Axes:
    """What the axes say: the names of places on the one across and the one up, by their values,
    all above 0; what goes across; what the drawing shows; and each point in words."""

    across: Mapping[float, str]
    up: Mapping[float, str]
    variable: str
    label: str
    point: Callable[[float, float], str]


def plot(lines: Sequence[Line], axes: Axes, width: int = 640, height: int = 300) -> str:
    """The drawing; values beyond the ends of the axes lie at their ends."""
    right = width - (NAMED if any(line.name for line in lines) else NARROW)
    across = _scale(axes.across, LEFT, right)
    up = _scale(axes.up, height - BOTTOM, TOP)
    parts = []
    for value, text in axes.up.items():
        y = up(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for value, text in axes.across.items():
        place = f'x="{across(value):.1f}" y="{height - 14}"'
        parts.append(f'<text {place} text-anchor="middle">{text}</text>')
    parts.append(f'<text x="{right + 22}" y="{height - 14}">{axes.variable}</text>')
    drawn = [line for line in lines if line.points]
    ends = _apart([up([*line.points.values()][-1]) for line in drawn])
    for line, end in zip(drawn, ends, strict=True):
        places = {(x, y): f"{across(x):.1f} {up(y):.1f}" for x, y in line.points.items()}
        parts.append(f'<path class="line {line.kind}" d="M{"L".join(places.values())}"/>')
        for point, place in places.items():
            centre = 'cx="{}" cy="{}"'.format(*place.split())
            title = f"<title>{escape(axes.point(*point))}</title>"
            parts.append(f'<circle class="{line.kind}-mark" {centre} r="3.2">{title}</circle>')
        if line.name:
            place = f'x="{across(max(line.points)) + 9:.1f}" y="{end + 4:.1f}"'
            parts.append(f'<text class="{line.kind}-mark" {place}>{escape(line.name)}</text>')
    label = escape(axes.label, quote=True)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _scale(ticks: Mapping[float, str], start: float, end: float) -> Callable[[float], float]:
    """Where on an axis between two places a value is."""
    low, high = min(ticks), max(ticks)
    span = math.log(high / low) or 1.0

    def place(value: float) -> float:
        return start + math.log(min(max(value, low), high) / low) / span * (end - start)

    return place


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights for the names of lines, so that none hides another."""
    found = [*heights]
    order = sorted(range(len(found)), key=found.__getitem__)
    for above, below in pairwise(order):
        found[below] = max(found[below], found[above] + 14)
    return found
