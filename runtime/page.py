"""The parts that all pages share: the HTML document, its style, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_name("page.css")


def document(title: str, body: str, style: str = "", remark: str = "") -> str:
    """Make a page of HTML that loads no other file. style: CSS after STYLE. remark: a comment."""
    comment = f"<!--\n{remark}\n-->\n" if remark else ""
    return f"""<!doctype html>
{comment}<html lang="en" class="derivatrix">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{STYLE.read_text("utf-8")}{style}</style>
</head>
<body>
<main class="document">
{body}
</main>
</body>
</html>
"""


def folded(title: str, body: str) -> str:
    """Make a part of a page that is closed until the reader opens it."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Make a table of cells, the first row its head."""
    head, *body = [[escape(cell) for cell in row] for row in rows]
    lines = ["".join(f'<th scope="col">{cell}</th>' for cell in head)]
    lines += ["".join(f"<td{_css_class(cell)}>{cell}</td>" for cell in row) for row in body]
    content = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="report"><table>{content}</table></div>'


def _css_class(cell: str) -> str:
    """Return the attribute `class` of a cell that holds a verdict."""
    name = {"passed": "passed", "FAILED": "bad", "WEAK": "bad"}.get(cell.partition(" ")[0])
    return f' class="{name}"' if name else ""
