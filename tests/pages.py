"""The code of pages: each block of Python is run, and what the fence after it shows is printed."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from tests import ROOT

HOW_TO = ROOT / "docs" / "how-to"
FENCE = re.compile(r"^ *```(\S+).*?\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def fences(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each fenced block of a page."""
    return FENCE.findall(page.read_text("utf-8"))


def blocks(name: str) -> list[str]:
    """The blocks of Python of docs/how-to/<name>.md."""
    result = [text for language, text in fences(HOW_TO / f"{name}.md") if language == "python"]
    assert result
    return result


def run_page(name: str) -> dict[str, Any]:
    """Run the blocks of docs/how-to/<name>.md, one after the other; what they define."""
    return run(HOW_TO / f"{name}.md")


def run(page: Path) -> dict[str, Any]:
    """Run the blocks of Python. One before a block of `output` or mathematics prints just that."""
    scope: dict[str, Any] = {"__name__": f"page_{page.stem}"}
    parts = fences(page)
    for (language, text), (after, shown) in zip(parts, [*parts[1:], ("", "")], strict=True):
        if language != "python":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, str(page), "exec"), scope)
        if after in ("output", "{math}"):
            assert _lines(printed.getvalue()) == _lines(shown), (
                f"{page.name} prints\n{printed.getvalue()}"
            )
    return scope


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]
