"""What verification found of a directory of modules, kept beside them.

`certificate.json` is for programs and `certificate.md` for people. Neither holds a date or a path.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from derivatrix.runtime.errors import LoadError
from derivatrix.runtime.report import Report, table

JSON = "certificate.json"
TEXT = "certificate.md"
FORMAT = 1


def write_certificate(directory: str | os.PathLike[str], reports: Iterable[Report]) -> None:
    """Write both files, in the order of the modules' names; each is complete or left as it was."""
    ordered = sorted(reports, key=lambda report: report.function)
    record = {
        "format": FORMAT,
        "passed": all(report.passed for report in ordered),
        "modules": [report.to_dict() for report in ordered],
    }
    root = Path(directory)
    _write(root / JSON, json.dumps(record, indent=1, allow_nan=False) + "\n")
    _write(root / TEXT, _text(ordered))


def read_certificate(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """What `certificate.json` holds: "format", "passed", and "modules", a list of reports as
    `Report.to_dict` gives them. Raises LoadError when there is none or it cannot be read."""
    path = Path(directory) / JSON
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise LoadError(
            f"{path}: no certificate ({error.strerror}); write one with `derivatrix verify`"
        ) from error
    except ValueError as error:
        raise LoadError(f"{path}: not a certificate: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise LoadError(f"{path}: not a certificate of this version; write it again")
    return record


def certified(directory: str | os.PathLike[str]) -> dict[str, str]:
    """The DIGEST that the certificate vouches for, by module name, of the modules that passed."""
    modules = read_certificate(directory)["modules"]
    return {entry["function"]: entry["digest"] for entry in modules if entry["passed"]}


def _text(reports: list[Report]) -> str:
    cells: list[tuple[str, ...]] = [("module", "result", "checks", "digest")]
    for report in reports:
        result = "passed" if report.passed else f"FAILED {len(report.failures)}"
        cells.append((report.function, result, str(len(report.rows)), report.digest))
    parts = [
        "# Verification certificate",
        "",
        "Written by derivatrix; `derivatrix verify` renews it.",
    ]
    parts += ["", *_block(table(cells))]
    for report in reports:
        parts += ["", f"## {report.function}", "", *_block(str(report))]
    return "\n".join(parts) + "\n"


def _block(text: str) -> list[str]:
    return ["```text", text, "```"]


def _write(path: Path, text: str) -> None:
    """Write a file through a temporary one beside it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)  # mkstemp's own mode is for its owner alone
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
