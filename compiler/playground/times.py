"""Plots of times over sizes, with logarithmic axes, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from derivatrix.compiler.playground.measure import Curve
from derivatrix.runtime.plot import Axes, Line, plot

COLOURS = ("first", "second", "third")
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def times(curves: Sequence[Curve]) -> str:
    """Draw curves as an element `svg`, and as a table for those who do not see it."""
    points = [(n, t) for curve in curves for n, t in curve.times.items()]
    sizes = sorted({n for n, _ in points})
    low = math.floor(math.log10(min(t for _, t in points)))
    high = max(math.ceil(math.log10(max(t for _, t in points))), low + 1)
    powers = [10.0**power for power in range(low, high + 1)]
    axes = Axes(
        {float(n): str(n) for n in sizes},
        {seconds: _time(seconds) for seconds in powers},
        "n",
        "Times over n",
        lambda n, seconds: f"n = {n:g}: {_time(seconds)}",
    )
    lines = [
        Line(colour, curve.title, {float(n): seconds for n, seconds in curve.times.items()})
        for colour, curve in zip(COLOURS, curves, strict=False)
    ]
    return plot(lines, axes) + _table(curves, sizes)


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
    rounded_up = seconds / 0.9995  # 0.9996 ms is written as 1 ms
    scale, unit = next((unit for unit in UNITS if rounded_up >= unit[0]), UNITS[-1])
    return f"{seconds / scale:.3g} {unit}"
