"""What all pages have: the document around them, and their style."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_name("page.css")


def document(title: str, body: str, style: str = "", remark: str = "") -> str:
    """A page of HTML that loads nothing from elsewhere. style: besides STYLE; remark: a comment."""
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
    """A part of a page that opens on demand."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """A table of cells, the first row its head."""
    head, *body = [[escape(cell) for cell in row] for row in rows]
    lines = ["".join(f'<th scope="col">{cell}</th>' for cell in head)]
    lines += ["".join(f"<td{_verdict(cell)}>{cell}</td>" for cell in row) for row in body]
    filled = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="report"><table>{filled}</table></div>'


def _verdict(cell: str) -> str:
    """The class of a cell that says how something went."""
    word = cell.partition(" ")[0]
    return {"passed": ' class="passed"', "FAILED": ' class="bad"', "WEAK": ' class="bad"'}.get(
        word, ""
    )
