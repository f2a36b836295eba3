"""Pictures of ```mermaid blocks of arrows between names (`graph TD`), drawn in layers."""

from html import escape
from itertools import pairwise
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

WIDTH, HEIGHT, LETTER = 130, 62, 7.4


def layers(arrows: list[tuple[str, str]]) -> list[list[str]]:
    """Arrange names in rows: each below all names with an arrow to it, near the middle of these."""
    names = dict.fromkeys(name for arrow in arrows for name in arrow)
    depth = dict.fromkeys(names, 0)
    for _ in names:  # so often that the longest chain of arrows has its depth
        for source, target in arrows:
            depth[target] = max(depth[target], depth[source] + 1)
    levels = range(max(depth.values()) + 1)
    rows = [[name for name in names if depth[name] == level] for level in levels]
    for above, row in pairwise(rows):
        place = {name: position for position, name in enumerate(above)}
        source_places = {
            name: [place.get(source, len(above)) for source, target in arrows if target == name]
            for name in row
        }
        row.sort(key=lambda name: sum(source_places[name]) / max(len(source_places[name]), 1))
    return rows


def svg(text: str) -> str:
    """Draw the arrows of a text such as "a --> b" as an element `svg`."""
    arrows = [
        (source.strip(), target.strip())
        for source, arrow, target in (line.partition("-->") for line in text.splitlines())
        if arrow
    ]
    rows = layers(arrows)
    page_width = max(map(len, rows)) * WIDTH
    centre = {
        name: ((column + 0.5) * page_width / len(row), (level + 0.5) * HEIGHT)
        for level, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    lines = [
        f'<path d="M{centre[source][0]:.0f},{centre[source][1] + 14:.0f} '
        f'L{centre[target][0]:.0f},{centre[target][1] - 15:.0f}" marker-end="url(#tip)"/>'
        for source, target in arrows
    ]
    boxes = [
        f'<rect x="{x - width / 2:.0f}" y="{y - 14:.0f}" width="{width:.0f}" height="28" rx="6"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}">{escape(name)}</text>'
        for name, (x, y) in centre.items()
        for width in [LETTER * len(name) + 16]
    ]
    return (
        f'<svg class="diagram" viewBox="0 0 {page_width} {len(rows) * HEIGHT}" role="img">'
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
