"""Times over sizes as a drawing, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from derivatrix.compiler.playground.measure import Curve

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 300, 64, 110, 14, 34
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def plot(curves: Sequence[Curve]) -> str:
    """The curves as an element `svg`, and a table of them for those who do not see it."""
    points = [(n, t) for curve in curves for n, t in curve.times.items()]
    sizes = sorted({n for n, _ in points})
    low = math.floor(math.log10(min(t for _, t in points)))
    high = max(math.ceil(math.log10(max(t for _, t in points))), low + 1)
    first, span = math.log2(sizes[0]), math.log2(sizes[-1] / sizes[0]) or 1.0

    def across(n: int) -> float:
        return LEFT + (math.log2(n) - first) / span * (WIDTH - LEFT - RIGHT)

    def up(seconds: float) -> float:
        return TOP + (high - math.log10(seconds)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for power in range(low, high + 1):
        y = up(10.0**power)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_time(10.0**power)}</text>'
        )
    for n in sizes:
        parts.append(f'<text x="{across(n):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{n}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT + 26}" y="{HEIGHT - 14}">n</text>')
    ends = _apart([up(list(curve.times.values())[-1]) if curve.times else 0.0 for curve in curves])
    for curve, end in zip(curves, ends, strict=True):
        if not curve.times:
            continue
        places = [f"{across(n):.1f} {up(t):.1f}" for n, t in curve.times.items()]
        parts.append(f'<path class="line {curve.name}" d="M{"L".join(places)}"/>')
        for place in places:
            parts.append(
                '<circle class="{}-mark" cx="{}" cy="{}" r="3.2"/>'.format(
                    curve.name, *place.split()
                )
            )
        place = f'x="{across(max(curve.times)) + 9:.1f}" y="{end + 4:.1f}"'
        parts.append(f'<text class="{curve.name}-mark" {place}>{escape(curve.title)}</text>')
    drawing = "".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Times over n">'
        f"{drawing}</svg>{_table(curves, sizes)}"
    )


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights for the names of the curves, so that none hides another."""
    found = [*heights]
    order = sorted(range(len(found)), key=found.__getitem__)
    for above, below in pairwise(order):
        found[below] = max(found[below], found[above] + 14)
    return found


def _table(curves: Sequence[Curve], sizes: Sequence[int]) -> str:
    head = "".join(f'<th scope="col">{n}</th>' for n in sizes)
    rows = []
    for curve in curves:
        cells = "".join(
            f"<td>{_time(curve.times[n]) if n in curve.times else ''}</td>" for n in sizes
        )
        rows.append(f'<tr><th scope="row">{escape(curve.title)}</th>{cells}</tr>')
    notes = "".join(f"<p>{escape(c.title)}: {escape(c.note)}</p>" for c in curves if c.note)
    return (
        f'<div class="report"><table><tr><th scope="col">n</th>{head}</tr>{"".join(rows)}</table>'
        f"{notes}</div>"
    )


def _time(seconds: float) -> str:
    size, unit = next((own for own in UNITS if seconds >= own[0] * 0.9995), UNITS[-1])
    return f"{seconds / size:.3g} {unit}"
