"""Results of verification: rows, and a report of them as a table, a dict or an error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, TypeVar

from derivatrix.runtime.errors import VerificationError
from derivatrix.runtime.interface import SCALAR_KINDS
from derivatrix.runtime.page import html_table
from derivatrix.runtime.workers import Crash

ADVICE = (
    "Do not use this module. Build it again with `derivatrix build`; if it fails again, the fault "
    "is derivatrix's own: report it with the declaration."
)
WEAK_ADVICE = (
    "Rows of `control` and `point` mean that nothing could be verified there: declare the domains "
    'of the inputs ("positive", "spd", ...), or pass other `sizes` or another `seed`.'
)
UNDECIDED = ("control", "point")
"""Checks that fail where the test is too weak to decide, not where the module is wrong."""

MODULE = "module"
"""The function of rows that are about the module as a whole."""

T = TypeVar("T", "Row", "Curve")

LEGEND = (
    "Numbers are the worst errors, in parts of what is allowed; - where no row decides anything."
)
LARGEST_ENTRY = "decides nothing: as much as the largest entry is allowed"
"""Note of a row that every result of the right magnitude passes."""


@dataclass(frozen=True)
class Row:
    """One check of one function's result by one input at one point.

    `error` and `tolerance` are those of the worst entry, relative to the array's largest. A
    `control` row is the other way round: it passes if the error of a wrong result is above the
    tolerance. `note` describes a failure, or why a row that has passed decides nothing.
    """

    check: str
    function: str
    input: str
    point: str
    error: float
    tolerance: float
    passed: bool
    note: str = ""

    @classmethod
    def failure(cls, check: str, function: str, note: str, input: str = "", point: str = "") -> Row:
        """Make the row of a check that failed without numbers to compare."""
        return cls(check, function, input, point, math.inf, 0.0, False, note)

    @property
    def decides(self) -> bool:
        """True if the row has failed or could have."""
        return not (self.passed and self.note)

    @property
    def error_ratio(self) -> float:
        """The error over the tolerance, above 1 for a failure; of a `control` row the inverse."""
        small, large = self.error, self.tolerance
        if self.check == "control":
            small, large = large, small
        return small / large if large else math.inf if small else 0.0


@dataclass(frozen=True)
class Reach:
    """The thresholds of a module's kernels: the number that sizes of verification pass, the number
    of all, a line for each that is missed, and a note on parts left out."""

    reached: int = 0
    total: int = 0
    missed: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        if not self.total:
            return self.note
        text = f"sizes beyond {self.reached} of {self.total} thresholds"
        return f"{text}; {self.note}" if self.note else text

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "missed": list(self.missed)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Reach:
        """Read the data of `to_dict`; raises KeyError, TypeError or ValueError for other data."""
        reached, total = (_checked(record[name], int) for name in ("reached", "total"))
        missed = tuple(_checked(line, str) for line in _checked(record["missed"], list))
        return cls(reached, total, missed, _checked(record["note"], str))


STEPS = tuple(10.0**-power for power in range(1, 11))
"""The steps of the central differences of `Curve`."""


@dataclass(frozen=True)
class Curve:
    """The distance of central differences from one derivative by one input at one point, for each
    of `STEPS`: relative to the largest entry, infinite where a point is outside the domain."""

    function: str
    input: str
    point: str
    errors: tuple[float, ...]


@dataclass(frozen=True, repr=False)
class Report:
    """The results of verifying one module; `str` and notebooks show them as a table.

    function, digest: the module's name and its DIGEST. place: where its kernels ran, if simulated.
    reach: the thresholds that were passed. curves: errors of differences by their step."""

    function: str
    digest: str
    rows: tuple[Row, ...]
    place: str = ""
    reach: Reach = Reach()
    curves: tuple[Curve, ...] = ()

    @property
    def passed(self) -> bool:
        """True if there are rows and all have passed."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    @property
    def result(self) -> str:
        """The verdict as a cell of a table."""
        return "passed" if self.passed else f"FAILED {len(self.failures)}"

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that have not passed, the worst first."""
        failed = [row for row in self.rows if not row.passed]
        return tuple(sorted(failed, key=_severity, reverse=True))

    def __str__(self) -> str:
        points = list(dict.fromkeys(row.point for row in self.rows if row.point))
        lines = [self.title]
        lines += [f"  {point}" for point in points]
        lines += ["", table(cells(self.rows)), "", LEGEND]
        lines += ["", str(self.reach)] if str(self.reach) else []
        if self.reach.missed:
            lines += ["thresholds not reached:", *(f"  {text}" for text in self.reach.missed)]
        if not self.passed:
            lines += ["", *map(describe, self.failures[:10]), "", *self._advice()]
        return "\n".join(lines)

    @property
    def title(self) -> str:
        """The verdict as a line of text."""
        count, failed = len(self.rows), len(self.failures)
        verdict = f"passed {count} checks" if self.passed else f"FAILED {failed} of {count} checks"
        place = f" in {self.place}" if self.place else ""
        undecided = f", {self.undecided} of which decide nothing" if self.undecided else ""
        worst = f"; worst error {ratio_text(self.worst)} of what is allowed" if self.worst else ""
        return f"{self.function}: {verdict}{place}{undecided}{worst if self.passed else ''}"

    @property
    def worst(self) -> Row | None:
        """The row with the largest error over its tolerance, failures first; not of `control`."""
        rows = [row for row in self.rows if row.check != "control" and row.decides]
        return max(rows, key=lambda row: (not row.passed, row.error_ratio), default=None)

    @property
    def undecided(self) -> int:
        """The number of rows that decide nothing."""
        return sum(not row.decides for row in self.rows)

    def __repr__(self) -> str:
        return f"<report on {self.title}>"

    def _repr_html_(self) -> str:
        failures = [f"<p>{escape(describe(row))}</p>" for row in self.failures[:10]]
        title = f"<p><b>{escape(self.title)}</b></p>"
        return f"{title}{html_table(cells(self.rows))}<p>{LEGEND}</p>{''.join(failures)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON; errors have two digits, None if not finite."""
        rows = [
            {**asdict(row), "error": _rounded(row.error), "tolerance": _rounded(row.tolerance)}
            for row in self.rows
        ]
        return {
            "function": self.function,
            "digest": self.digest,
            "passed": self.passed,
            "place": self.place,
            "reach": self.reach.to_dict(),
            "rows": rows,
            "steps": list(STEPS),
            "curves": [
                {**asdict(curve), "errors": [_rounded(error) for error in curve.errors]}
                for curve in self.curves
            ],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Report:
        """Read the data of `to_dict`, with rounded errors, infinite for None. Raises KeyError,
        TypeError or ValueError for other data."""
        rows = tuple(_read(Row, entry) for entry in record["rows"])
        names = ("function", "digest", "place")
        function, digest, place = (_checked(record[name], str) for name in names)
        curves = tuple(_read(Curve, entry) for entry in record["curves"])
        return cls(function, digest, rows, place, Reach.from_dict(record["reach"]), curves)

    def raise_for_failure(self) -> None:
        """Raise VerificationError, with the worst rows, unless the module has passed."""
        if self.passed:
            return
        worst = [f"  {describe(row)}" for row in self.failures[:5]]
        further = len(self.failures) - len(worst)
        if further > 0:
            worst.append(f"  and {further} more")
        title = f"{self.function}: verification failed"
        raise VerificationError("\n".join([title, *worst, *self._advice()]))

    def _advice(self) -> list[str]:
        undecided = [row.check in UNDECIDED for row in self.failures]
        return [ADVICE] * (not all(undecided)) + [WEAK_ADVICE] * any(undecided)


def reported(name: str, answer: Any) -> Report:
    """Read a module's report from the answer of a worker (see `Workers.map`). Raises the error that
    was raised there, VerificationError if the process crashed."""
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, Crash):
        error = VerificationError(f"{name}: verification broke off: {answer.reason}")
        if answer.trace:
            error.add_note(answer.trace)
        raise error
    return Report.from_dict(answer)


def describe(row: Row) -> str:
    """Describe a row in a line of text."""
    by = f" by {row.input}" if row.input else ""
    at = f" at {row.point}" if row.point else ""
    return f"{row.check} of {row.function}{by}{at}: {row.note}"


def ratio_text(row: Row | None) -> str:
    """Format the error of a row over its tolerance; "-" where the row decides nothing."""
    return f"{row.error_ratio:.2g}" if row is not None and row.decides else "-"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of cells as text with aligned columns, a rule under the first row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """Tabulate the worst error over its tolerance, of all inputs and points: a line for each check,
    a column for each function, with headings."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.check, row.function), []).append(row)
    checks = dict.fromkeys(check for check, name in groups if name != MODULE)
    functions = [kind for kind in SCALAR_KINDS if any(kind == name for _, name in groups)]
    lines = [[_cell(groups.get((check, name), [])) for name in functions] for check in checks]
    heads = zip(checks, lines, strict=True)
    return [["check", *functions], *([check, *line] for check, line in heads)]


def _cell(group: list[Row]) -> str:
    if not group:
        return ""
    if not all(row.passed for row in group):
        return "WEAK" if group[0].check == "control" else "FAILED"
    decisive = [row for row in group if row.decides]
    exact = all(row.tolerance == 0 for row in decisive)
    if decisive and (exact or group[0].check == "control"):
        return "ok"
    return ratio_text(max(decisive, key=lambda row: row.error_ratio, default=None))


def _severity(row: Row) -> tuple[bool, float]:
    return row.check not in UNDECIDED, math.inf if math.isnan(row.error) else row.error


def _read(kind: type[T], entry: Mapping[str, Any]) -> T:
    """Read a row or a curve from plain data."""
    kinds = {"error": float, "tolerance": float, "passed": bool, "errors": tuple}
    values = {
        name: _checked(entry[name], kinds.get(name, str)) for name in kind.__dataclass_fields__
    }
    return kind(**values)


def _checked(value: Any, kind: type) -> Any:
    if kind is float:
        return math.inf if value is None else float(value)
    if kind is tuple:
        return tuple(_checked(error, float) for error, _ in zip(value, STEPS, strict=True))
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _rounded(number: float) -> float | None:
    return float(f"{number:.1e}") if math.isfinite(number) else None
