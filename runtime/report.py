"""What verification found: rows, and a report of them as a table, a dict or an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from derivatrix.runtime.errors import VerificationError

ADVICE = (
    "Do not use this module. Build it again with `derivatrix build`; if it fails again, the fault "
    "is derivatrix's own: report it with the declaration."
)
WEAK_ADVICE = (
    "Rows of `control` and `point` mean that nothing could be proven there: declare the domains "
    'of the inputs ("positive", "spd", ...), or pass other `sizes` or another `seed`.'
)
UNDECIDED = ("control", "point")
"""The checks whose failure says that the test, not the module, falls short."""

_HEADER = ("check", "function", "input", "points", "error", "tolerance", "")


@dataclass(frozen=True)
class Row:
    """One check of one function's result by one input at one point.

    `error` and `tolerance` are those of the worst entry, relative to the array's largest; a
    `control` row has to be the other way round, the error of a wrong result above the tolerance.
    `note` says what was found where the row has not passed.
    """

    check: str
    function: str
    input: str
    point: str
    error: float
    tolerance: float
    passed: bool
    note: str = ""


@dataclass(frozen=True)
class Report:
    """The rows of one module. `function` is its name, `digest` its DIGEST."""

    function: str
    digest: str
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        """True when there are rows and every one has passed."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that have not passed, the worst first."""
        failed = [row for row in self.rows if not row.passed]
        return tuple(sorted(failed, key=_severity, reverse=True))

    def __str__(self) -> str:
        points = list(dict.fromkeys(row.point for row in self.rows if row.point))
        verdict = "passed" if self.passed else f"FAILED {len(self.failures)} of"
        title = f"{self.function}: {verdict} {len(self.rows)} checks"
        if points:
            title += f" at {len(points)} points: {'; '.join(points)}"
        lines = [title, "", *_aligned([_HEADER, *(_line(group) for group in _groups(self.rows))])]
        if not self.passed:
            lines += ["", *map(describe, self.failures[:10]), "", *self._advice()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """Plain data that `json` writes; errors have two digits, and null where not finite."""
        rows = [asdict(row) for row in self.rows]
        for row in rows:
            row["error"] = _rounded(row["error"])
            row["tolerance"] = _rounded(row["tolerance"])
        return {
            "function": self.function,
            "digest": self.digest,
            "passed": self.passed,
            "rows": rows,
        }

    def raise_for_failure(self) -> None:
        """Raise VerificationError, with the worst rows, unless the module has passed."""
        if self.passed:
            return
        worst = [f"  {describe(row)}" for row in self.failures[:5]]
        more = len(self.failures) - len(worst)
        if more > 0:
            worst.append(f"  and {more} more")
        title = f"{self.function}: verification failed"
        raise VerificationError("\n".join([title, *worst, *self._advice()]))

    def _advice(self) -> list[str]:
        undecided = [row.check in UNDECIDED for row in self.failures]
        return [ADVICE] * (not all(undecided)) + [WEAK_ADVICE] * any(undecided)


def describe(row: Row) -> str:
    """The row as one line of text."""
    of = f" by {row.input}" if row.input else ""
    at = f" at {row.point}" if row.point else ""
    return f"{row.check} of {row.function}{of}{at}: {row.note}"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells as text with aligned columns, a rule under the first row."""
    return "\n".join(_aligned(list(rows)))


def _severity(row: Row) -> tuple[bool, float]:
    ratio = row.error / row.tolerance if row.tolerance > 0 else math.inf
    return row.check not in UNDECIDED, math.inf if math.isnan(ratio) else ratio


def _rounded(number: float) -> float | None:
    return float(f"{number:.1e}") if math.isfinite(number) else None


def _groups(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each check, function and input, one group for all points."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.check, row.function, row.input), []).append(row)
    return list(groups.values())


def _line(group: list[Row]) -> tuple[str, ...]:
    worst = max(group, key=lambda row: (not row.passed, _severity(row)))
    if worst.check == "control" and worst.passed:
        worst = min(group, key=_severity)
    return (
        worst.check,
        worst.function,
        worst.input,
        str(len(group)),
        f"{worst.error:.1e}",
        f"{worst.tolerance:.1e}",
        "ok" if worst.passed else "FAILED",
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [lines[0], "  ".join("-" * width for width in widths if width), *lines[1:]]
