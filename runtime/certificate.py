"""The certificate of a directory of modules: the reports of their verification, as files.

`certificate.json` is for programs, `certificate.md` and, with plots, `certificate.html` for people.
None holds a date or a path.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from derivatrix.runtime.certificate_page import certificate_page
from derivatrix.runtime.errors import LoadError
from derivatrix.runtime.report import Report, ratio_text, table
from derivatrix.runtime.simulated import has_device
from derivatrix.runtime.text_file import write_text
from derivatrix.version import VERSION

JSON = "certificate.json"
TEXT = "certificate.md"
PAGE = "certificate.html"
FORMAT = 2
"""Version of the structure of `certificate.json`; others cannot be read."""
REMARK = "Written by derivatrix; `derivatrix verify --write` renews it."


def write_certificate(directory: str | os.PathLike[str], reports: Iterable[Report]) -> None:
    """Write the files, each atomically, with the modules sorted by name.

    The same reports give the same files, whether new or read from a certificate."""
    for name, text in _texts(reports, made_with()).items():
        write_text(Path(directory) / name, text)


def _texts(reports: Iterable[Report], versions: dict[str, str]) -> dict[str, str]:
    """Make the text of each file of the certificate; `versions` are those of `made_with`."""
    modules = sorted((report.to_dict() for report in reports), key=lambda entry: entry["function"])
    ordered = [Report.from_dict(entry) for entry in modules]
    record = {
        "format": FORMAT,
        "passed": all(report.passed for report in ordered),
        "made_with": versions,
        "modules": modules,
    }
    return {
        JSON: json.dumps(record, indent=1, allow_nan=False) + "\n",
        TEXT: _text(ordered),
        PAGE: certificate_page(ordered, versions, REMARK),
    }


def certificate_states(
    directory: str | os.PathLike[str], digests: Mapping[str, str]
) -> dict[str, str]:
    """Check the certificate against the digests of modules; return the files that are wrong, each
    with its state: "missing"; "damaged", if it cannot be read; "failing", if a module has not
    passed; "stale", if it is of other modules, or its text not that of its reports. Without any
    file, as for a package that was built without verification, nothing is wrong."""
    root = Path(directory)
    files = (JSON, TEXT, PAGE)
    states = {name: "missing" for name in files if not (root / name).is_file()}
    if len(states) == len(files):
        return {}
    if JSON in states:
        return states
    try:
        record, reports = _reports(root)
        texts = _texts(reports, dict(record["made_with"]))
    except (KeyError, LoadError, TypeError, ValueError):
        return {**states, JSON: "damaged"}
    if record.get("passed") is not True or not all(report.passed for report in reports):
        return {**states, JSON: "failing"}
    if {report.function: report.digest for report in reports} != digests:
        return {**states, JSON: "stale"}
    for name, text in texts.items():
        if name not in states and (root / name).read_bytes() != text.encode():
            states[name] = "stale"
    return states


def read_certificate(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Read `certificate.json`: "format", "passed", "made_with", and "modules", a list of reports as
    of `Report.to_dict`. Raises LoadError if it cannot be read."""
    path = Path(directory) / JSON
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise LoadError(
            f"{path}: no certificate ({error.strerror}); write one with `derivatrix verify --write`"
        ) from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path}: not a certificate: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise LoadError(f"{path}: not a certificate of this version; write it again")
    return record


def certified(directory: str | os.PathLike[str]) -> dict[str, str]:
    """Return the DIGEST of each module that passed, by name, from the certificate. Raises LoadError
    if that cannot be read."""
    _, reports = _reports(directory)
    return {report.function: report.digest for report in reports if report.passed}


def standing_reports(directory: str | os.PathLike[str]) -> dict[str, Report]:
    """Return the certificate's reports of modules that passed, by name, if verification would be
    the same now: the same code, kind of machine and packages, and a device only if the report is of
    one. Without a readable certificate, or with another `made_with`, there is no such report."""
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
    """Read `certificate.json`, and the reports in it."""
    record = read_certificate(directory)
    try:
        return record, [Report.from_dict(entry) for entry in record["modules"]]
    except (KeyError, TypeError, ValueError) as error:
        path = Path(directory) / JSON
        raise LoadError(
            f"{path}: damaged; write it again with `derivatrix verify --write`"
        ) from error


@cache
def made_with() -> dict[str, str]:
    """Return the versions that the result of a verification depends on, apart from the module."""
    packages = {name: version(name) for name in ("numba", "numpy", "scipy")}
    with suppress(PackageNotFoundError):  # only modules for CUDA devices need it
        packages["numba_cuda"] = version("numba-cuda")
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return {
        "derivatrix": VERSION,
        "verification": digest.hexdigest(),
        "platform": sysconfig.get_platform(),
        "python": platform.python_version(),
        **packages,
    }


def _text(reports: list[Report]) -> str:
    """Format the reports as Markdown."""
    head = ("module", "result", "checks", "worst error of allowed", "digest", "place")
    cells: list[tuple[str, ...]] = [head]
    for report in reports:
        count, worst = str(len(report.rows)), ratio_text(report.worst)
        cells.append((report.function, report.result, count, worst, report.digest, report.place))
    if not any(report.place for report in reports):
        cells = [line[:-1] for line in cells]
    parts = ["# Verification certificate", "", REMARK]
    parts += ["", "```text", table(cells), "```"]
    for report in reports:
        parts += ["", f"## {report.function}", "", "```text", str(report), "```"]
    return "\n".join(parts) + "\n"
