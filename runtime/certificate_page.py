"""The certificate as a page: checks, points, errors, and errors of differences by their step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from derivatrix.runtime.page import document, folded, html_table
from derivatrix.runtime.plot import Axes, Line, plot
from derivatrix.runtime.report import LEGEND, STEPS, Curve, Report, Row, cells, describe, ratio_text

CHECKS = {
    "functions": "the module has the functions that it lists",
    "call": "functions can be called",
    "value": "the value and NumPy's of the declaration",
    "differences": "derivatives and five-point central differences",
    "control": "a derivative off by 1e-4 would have failed that (its error is above the tolerance)",
    "digits": "derivatives and those of the declaration in 50 digits",
    "adjoint": "⟨Ȳ, J Ẋ⟩ and ⟨Jᵀ Ȳ, Ẋ⟩: JVP and VJP",
    "products": "Jacobian or Hessian times tangents and cotangents, and JVP, VJP or HVP",
    "linearity": "VJP, JVP and HVP along scaled, zero and unit directions, and their linearity",
    "empty batch": "results for a batch of no samples, and zeros",
    "batch axes": "results for two batch axes, for none and for axes that broadcast, and for one",
    "symmetry": "the Hessian and its transpose",
    "structure": "derivatives and their projection on the structure of the input",
    "repeat": "a second run and the first, bit for bit",
    "out": "results in arrays that are given, and new ones",
    "formula": "the module's arrays and the formulas' texts in NumPy",
    "float32": "float32 and float64",
    "layout": "arguments in other layouts of memory and of other types",
    "kernel": "kernels called directly, and functions",
    "operator": "products with the operator and with the dense array",
    "todense": "the operator as an array, and the dense array",
    "tosparse": "the operator as a sparse matrix, and the dense array",
    "solve": "solutions with the operator, and with the dense array",
}
"""The two sides that each check compares."""

POINTS = (
    (r"point \d", "random, inside the domains of the inputs"),
    (r"50 digits", "random, with 50 digits"),
    (r"\w+=\d|the declared", "random, at sizes that take other branches of the kernels"),
    (
        r"",
        "sizes of 1, zeros, ones, equal rows, large and negative entries, as the domains have them",
    ),
)
"""Kinds of points, by the beginnings of their labels as patterns."""

COLOURS = ("first", "second", "third")
"""CSS classes of the lines of a plot, one for each point."""


def certificate_page(reports: Sequence[Report], made_with: Mapping[str, str], remark: str) -> str:
    """Make the page, which needs neither scripts nor other files."""
    versions = [f"{name} {text}" for name, text in made_with.items() if name != "verification"]
    counts = ("checks", "points", "thresholds")
    head = ("module", "result", *counts, "worst error of allowed", "digest")
    body = [
        "<h1>Verification certificate</h1>",
        f'<p class="note">{escape(remark)} Made with {escape(", ".join(versions))}.</p>',
        f'<section class="card">{html_table([head, *map(_summary, reports)])}</section>',
        *map(_module_card, reports),
        folded("What the checks compare", html_table([("check", "compared"), *CHECKS.items()])),
    ]
    return document("Verification certificate", "\n".join(body), remark=remark)


def _summary(report: Report) -> tuple[str, ...]:
    reach = report.reach
    points = len({row.point for row in report.rows if row.point})
    thresholds = f"{reach.reached} of {reach.total}" if reach.total else ""
    counts = (str(len(report.rows)), str(points), thresholds)
    return (report.function, report.result, *counts, ratio_text(report.worst), report.digest)


def _module_card(report: Report) -> str:
    verdict = "passed" if report.passed else "bad"
    points = list(dict.fromkeys(row.point for row in report.rows if row.point))
    failures = [f'<p class="bad">{escape(describe(row))}</p>' for row in report.failures[:10]]
    reach = [f"<p>{escape(line)}</p>" for line in (str(report.reach), *report.reach.missed) if line]
    parts = [
        f'<h2 class="{verdict}">{escape(report.title)}</h2>',
        *failures,
        html_table(cells(report.rows)),
        f'<p class="note">{LEGEND}</p>',
        *_plots(report.curves),
        folded("Errors and what is allowed", html_table([_HEAD, *_worst_rows(report.rows)])),
        folded(
            "Points", html_table([("point", "kind"), *((point, _kind(point)) for point in points)])
        ),
        folded("Sizes beyond the thresholds of the kernels", "".join(reach)) if reach else "",
    ]
    return f'<section class="card">{"".join(parts)}</section>'


_HEAD = ("check", "of", "by", "points", "error", "allowed", "error of allowed", "at", "result")


def _worst_rows(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each check of a derivative: its worst row."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.check, row.function, row.input), []).append(row)
    for (check, function, name), group in groups.items():
        worst = max(group, key=lambda row: (not row.passed, row.decides, row.error_ratio))
        numbers = [f"{number:.1e}" if number else "0" for number in (worst.error, worst.tolerance)]
        result = "passed" if worst.decides else "decides nothing"
        result = result if worst.passed else "FAILED"
        count = str(len(group))
        yield (check, function, name, count, *numbers, ratio_text(worst), worst.point, result)


def _kind(point: str) -> str:
    return next(kind for pattern, kind in POINTS if re.match(pattern, point))


def _plots(curves: Sequence[Curve]) -> Iterator[str]:
    """Yield a heading, and a plot for each derivative, with a line for each point."""
    colours = dict(zip(dict.fromkeys(curve.point for curve in curves), COLOURS, strict=False))
    if not colours:
        return
    keys = [
        f'<span class="{kind}-mark">● {escape(point)}</span>' for point, kind in colours.items()
    ]
    yield "<h3>Central differences against the derivative, over their step h</h3>"
    yield f'<p class="note">{NOTE}</p><p class="note keys">{" ".join(keys)}</p>'
    groups: dict[tuple[str, str], list[Line]] = {}
    for curve in curves:
        steps = zip(STEPS, curve.errors, strict=True)
        points = {step: error for step, error in steps if math.isfinite(error)}
        line = Line(colours[curve.point], "", points)
        groups.setdefault((curve.function, curve.input), []).append(line)
    figures = []
    for (function, name), lines in groups.items():
        title = f"{function} by {name}" if name else function
        ticks = _powers(-10, -1, 3), _powers(-16, 0, 4)
        axes = Axes(*ticks, "h", f"Errors of {title}", "step {:.0e}, error {:.1e}".format)
        drawing = plot(lines, axes, 330, 190)
        figures.append(f"<figure><figcaption><b>{escape(title)}</b></figcaption>{drawing}</figure>")
    yield f'<div class="plot plots">{"".join(figures)}</div>'


NOTE = (
    "A larger step is off by h², a smaller one by rounding, which grows as 1/h: a right derivative "
    "gives a V (half of one where the differences are exact but for rounding), and one that is off "
    "by 1e-4 a line that stays at 10⁻⁴."
)


def _powers(low: int, high: int, step: int) -> dict[float, str]:
    names = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return {
        10.0**power: f"10{str(power).translate(names)}" if power else "1"
        for power in range(low, high + 1, step)
    }
