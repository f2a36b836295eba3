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
REMARK = "Written by derivatrix; `derivatrix verify --write` renews it."


def write_certificate(directory: str | os.PathLike[str], reports: Iterable[Report]) -> None:
    """Write the files, in the order of the modules' names; each is complete or left as it was.

    They are the same whether reports are new or were read from a certificate."""
    for name, text in _texts(reports, made_with()).items():
        write_text(Path(directory) / name, text)


def _texts(reports: Iterable[Report], made: dict[str, str]) -> dict[str, str]:
    """The text of each file of the certificate; `made` is what the reports depend on."""
    modules = sorted((report.to_dict() for report in reports), key=lambda entry: entry["function"])
    ordered = [Report.from_dict(entry) for entry in modules]
    record = {
        "format": FORMAT,
        "passed": all(report.passed for report in ordered),
        "made_with": made,
        "modules": modules,
    }
    return {
        JSON: json.dumps(record, indent=1, allow_nan=False) + "\n",
        TEXT: _text(ordered),
        PAGE: certificate_page(ordered, made, REMARK),
    }


def certificate_states(
    directory: str | os.PathLike[str], digests: Mapping[str, str]
) -> dict[str, str]:
    """The files of the certificate that do not vouch for modules with these digests, each with its
    state: "missing"; "damaged", if it cannot be read; "failing", if a module has not passed;
    "stale", if it is of other modules, or not as its reports say. None where there is no
    certificate at all, as of a package that was built without verification."""
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
    """What `certificate.json` holds: "format", "passed", "made_with", and "modules", a list of
    reports as `Report.to_dict` gives them. Raises LoadError when there is none to be read."""
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
        raise LoadError(
            f"{path}: damaged; write it again with `derivatrix verify --write`"
        ) from error


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
    head = ("module", "result", "checks", "worst error of allowed", "digest", "place")
    cells: list[tuple[str, ...]] = [head]
    for report in reports:
        result = "passed" if report.passed else f"FAILED {len(report.failures)}"
        count = str(len(report.rows))
        worst = ratio_text(report.worst)
        cells.append((report.function, result, count, worst, report.digest, report.place))
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
