"""Requests that compile a module: verification, and a package to download."""

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


def verification_steps(function: Function) -> Iterator[str | Report]:
    """Yield the steps of verification, and finally the report."""
    yield "Generating the module"
    module = compile(function)
    yield "Compiling the kernels"
    yield from _progress_and_result(lambda say: verify(module, progress=say))


def report_html(report: Report) -> str:
    """Write a report as the page shows it."""
    verdict = "passed" if report.passed else "bad"
    points = len({row.point for row in report.rows if row.point})
    reach = f"; {escape(str(report.reach))}" if str(report.reach) else ""
    title = f"{len(report.rows)} checks at {points} points{reach}"
    word = "Passed" if report.passed else "Failed"
    table = report._repr_html_().partition("</p>")[2]
    return f'<p><span class="{verdict}">{word}</span>: {title}</p>{table}'


def package_steps(function: Function) -> Iterator[str | bytes]:
    """Yield the steps of a build, and finally the archive of the verified package."""
    folder = Path("generated")

    def work(say: Callable[[str], None]) -> BuildResult:
        return build(function, folder, progress=lambda text, finished, total: say(text), jobs=1)

    for step in _progress_and_result(work):
        if isinstance(step, str):
            yield step
    files = sorted(path for path in folder.rglob("*") if _is_packaged(path))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for path in files:
            # the earliest date of a ZIP: equal packages are equal archives
            entry = zipfile.ZipInfo(path.as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            zip_file.writestr(entry, path.read_bytes())
    yield archive.getvalue()


def base64_text(contents: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(contents).decode()


def _is_packaged(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")


def _progress_and_result(work: Callable[[Callable[[str], None]], R]) -> Iterator[str | R]:
    """Run `work` in a thread; yield the lines that it reports, and its result. Raise its errors."""
    lines: SimpleQueue[str | None] = SimpleQueue()
    results: list[R] = []
    errors: list[DerivatrixError | MemoryError] = []

    def run() -> None:
        try:
            results.append(work(lines.put))
        except (DerivatrixError, MemoryError) as error:
            errors.append(error)
        finally:
            lines.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    while (line := lines.get()) is not None:
        yield line
    thread.join()
    if errors:
        raise errors[0]
    yield from results
