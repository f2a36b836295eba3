"""What verification found of a directory of modules, kept beside them.

`certificate.json` is for programs, `certificate.md` and, with plots, `certificate.html` for people.
None holds a date or a path.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from derivatrix.runtime.certificate_page import certificate_page
from derivatrix.runtime.errors import LoadError
from derivatrix.runtime.report import Report, table
from derivatrix.runtime.simulated import has_device
from derivatrix.runtime.text_file import write_text
from derivatrix.version import VERSION

JSON = "certificate.json"
TEXT = "certificate.md"
PAGE = "certificate.html"
FORMAT = 2
REMARK = "Written by derivatrix; `derivatrix verify` renews it."


def write_certificate(directory: str | os.PathLike[str], reports: Iterable[Report]) -> None:
    """Write the files, in the order of the modules' names; each is complete or left as it was.

    They are the same whether reports are new or were read from a certificate."""
    modules = sorted((report.to_dict() for report in reports), key=lambda entry: entry["function"])
    ordered = [Report.from_dict(entry) for entry in modules]
    record = {
        "format": FORMAT,
        "passed": all(report.passed for report in ordered),
        "made_with": made_with(),
        "modules": modules,
    }
    root = Path(directory)
    write_text(root / JSON, json.dumps(record, indent=1, allow_nan=False) + "\n")
    write_text(root / TEXT, _text(ordered))
    write_text(root / PAGE, certificate_page(ordered, made_with(), REMARK))


def read_certificate(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """What `certificate.json` holds: "format", "passed", "made_with", and "modules", a list of
    reports as `Report.to_dict` gives them. Raises LoadError when there is none to be read."""
    path = Path(directory) / JSON
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise LoadError(
            f"{path}: no certificate ({error.strerror}); write one with `derivatrix verify`"
        ) from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path}: not a certificate: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise LoadError(f"{path}: not a certificate of this version; write it again")
    return record


def certified(directory: str | os.PathLike[str]) -> dict[str, str]:
    """The DIGEST that the certificate vouches for, by module name, of the modules that passed.
    Raises LoadError when there is none to be read."""
    _, reports = _reports(directory)
    return {report.function: report.digest for report in reports if report.passed}


def standing_reports(directory: str | os.PathLike[str]) -> dict[str, Report]:
    """By module name the reports of the certificate that modules have passed, if verification
    would be the same today: by this version of it, on this kind of machine, with the packages
    that are here, and on a device if there is one. None where there is no certificate, or one that
    is damaged."""
    try:
        record, reports = _reports(directory)
    except LoadError:
        return {}
    if record.get("made_with") != made_with():
        return {}
    return {
        report.function: report
        for report in reports
        if report.passed and not (report.place and has_device())
    }


def _reports(directory: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Report]]:
    """What the certificate holds, and the reports in it."""
    record = read_certificate(directory)
    try:
        return record, [Report.from_dict(entry) for entry in record["modules"]]
    except (KeyError, TypeError, ValueError) as error:
        path = Path(directory) / JSON
        raise LoadError(f"{path}: damaged; write it again with `derivatrix verify`") from error


@cache
def made_with() -> dict[str, str]:
    """What the outcome of a verification depends on, apart from the module."""
    packages = {name: version(name) for name in ("numba", "numpy", "scipy")}
    with suppress(PackageNotFoundError):  # only modules for CUDA devices need it
        packages["numba_cuda"] = version("numba-cuda")
    state = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        state.update(path.read_bytes())
    return {
        "derivatrix": VERSION,
        "verification": state.hexdigest(),
        "platform": sysconfig.get_platform(),
        "python": platform.python_version(),
        **packages,
    }


def _text(reports: list[Report]) -> str:
    cells: list[tuple[str, ...]] = [("module", "result", "checks", "digest", "place")]
    for report in reports:
        result = "passed" if report.passed else f"FAILED {len(report.failures)}"
        count = str(len(report.rows))
        cells.append((report.function, result, count, report.digest, report.place))
    if not any(report.place for report in reports):
        cells = [line[:-1] for line in cells]
    parts = [
        "# Verification certificate",
        "",
        REMARK,
    ]
    parts += ["", *_block(table(cells))]
    for report in reports:
        parts += ["", f"## {report.function}", "", *_block(str(report))]
    return "\n".join(parts) + "\n"


def _block(text: str) -> list[str]:
    return ["```text", text, "```"]
