"""Pictures of ```mermaid blocks, as those of arrows between names (`graph TD`), drawn in layers."""

from html import escape
from itertools import pairwise
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

WIDTH, HEIGHT, LETTER = 130, 62, 7.4


def layers(arrows: list[tuple[str, str]]) -> list[list[str]]:
    """The names, each below all that have an arrow to it; beside those that it hangs from."""
    names = dict.fromkeys(name for arrow in arrows for name in arrow)
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for one, other in arrows:
            depth[other] = max(depth[other], depth[one] + 1)
    found = [[name for name in names if depth[name] == row] for row in range(len(names))]
    rows = [row for row in found if row]
    for above, row in pairwise(rows):
        place = {name: position for position, name in enumerate(above)}
        hung = {
            name: [place.get(one, len(above)) for one, other in arrows if other == name]
            for name in row
        }
        row.sort(key=lambda name: sum(hung[name]) / max(len(hung[name]), 1))
    return rows


def svg(text: str) -> str:
    """The drawing, in the colour of the text around it."""
    arrows = [
        (one.strip(), other.strip())
        for one, arrow, other in (line.partition("-->") for line in text.splitlines())
        if arrow
    ]
    rows = layers(arrows)
    across = max(map(len, rows)) * WIDTH
    at = {
        name: ((column + 0.5) * across / len(row), (level + 0.5) * HEIGHT)
        for level, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    lines = [
        f'<path d="M{at[one][0]:.0f},{at[one][1] + 14:.0f} '
        f'L{at[other][0]:.0f},{at[other][1] - 15:.0f}" marker-end="url(#tip)"/>'
        for one, other in arrows
    ]
    boxes = [
        f'<rect x="{x - wide / 2:.0f}" y="{y - 14:.0f}" width="{wide:.0f}" height="28" rx="6"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}">{escape(name)}</text>'
        for name, (x, y) in at.items()
        for wide in [LETTER * len(name) + 16]
    ]
    return (
        f'<svg class="diagram" viewBox="0 0 {across} {len(rows) * HEIGHT}" role="img">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>'
        f"{''.join(lines)}{''.join(boxes)}</svg>"
    )


class Mermaid(Directive):
    has_content = True

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", svg("\n".join(self.content)), format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
