"""What is done with the compiled module: verified, and built as a package to take away."""

from __future__ import annotations

import base64
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from derivatrix.compiler.driver.build import BuildResult, build, compile
from derivatrix.compiler.frontends.function import Function
from derivatrix.runtime import Report, verify
from derivatrix.runtime.errors import DerivatrixError

R = TypeVar("R")


def verified(function: Function) -> Iterator[str | Report]:
    """What is being checked, and at last the report."""
    yield "Generating the module"
    module = compile(function)
    yield "Compiling the kernels"
    yield from _lines(lambda say: verify(module, progress=say))


def report_html(report: Report) -> str:
    """The report as the page shows it."""
    verdict = "passed" if report.passed else "bad"
    points = len({row.point for row in report.rows if row.point})
    reach = f"; {escape(str(report.reach))}" if str(report.reach) else ""
    title = f"{len(report.rows)} checks at {points} points{reach}"
    word = "Passed" if report.passed else "Failed"
    table = report._repr_html_().partition("</p>")[2]
    return f'<p><span class="{verdict}">{word}</span>: {title}</p>{table}'


def packaged(function: Function) -> Iterator[str | bytes]:
    """What is being done, and at last the archive of a verified package."""
    folder = Path("generated")

    def work(say: Callable[[str], None]) -> BuildResult:
        return build(function, folder, progress=lambda text, done, total: say(text), jobs=1)

    for found in _lines(work):
        if isinstance(found, str):
            yield found
    files = sorted(path for path in folder.rglob("*") if _belongs(path))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for path in files:
            entry = zipfile.ZipInfo(path.as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            written.writestr(entry, path.read_bytes())
    yield archive.getvalue()


def encoded(contents: bytes) -> str:
    """Bytes as letters."""
    return base64.b64encode(contents).decode()


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")


def _lines(work: Callable[[Callable[[str], None]], R]) -> Iterator[str | R]:
    """What a work says while it is done in a thread, and what it returns; raises what it raises."""
    said: SimpleQueue[str | None] = SimpleQueue()
    found: list[R] = []
    errors: list[DerivatrixError | MemoryError] = []

    def run() -> None:
        try:
            found.append(work(said.put))
        except (DerivatrixError, MemoryError) as error:
            errors.append(error)
        finally:
            said.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    while (line := said.get()) is not None:
        yield line
    thread.join()
    if errors:
        raise errors[0]
    yield from found
