"""The results, for a terminal and as Markdown: rows that lose first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.table import Table

from tests.benchmarks.contestants import FRAMEWORKS
from tests.benchmarks.race import Entry, Outcome

OURS, SPECIALIST = "derivatrix", "specialist"


def best(outcome: Outcome) -> tuple[str, Entry] | None:
    """The framework that took least; None where none did the row."""
    done = {
        name: entry
        for name, entry in outcome.entries.items()
        if name in FRAMEWORKS and not entry.reason
    }
    return min(done.items(), key=lambda item: item[1].least) if done else None


def ratio(outcome: Outcome) -> float | None:
    """The best framework's time over derivatrix's, both the least of all blocks, which what else
    runs on the machine disturbs least: above 1 derivatrix is faster."""
    ours, other = outcome.entries.get(OURS), best(outcome)
    if ours is None or ours.reason or other is None:
        return None
    return other[1].least / ours.least


def specialist_ratio(outcome: Outcome) -> float | None:
    """Return the ratio of the specialist's time: below 1 the generated kernel is slower than the
    one written by hand."""
    ours, other = outcome.entries.get(OURS), outcome.entries.get(SPECIALIST)
    if ours is None or ours.reason or other is None or other.reason:
        return None
    return other.least / ours.least


def median_ratio(outcome: Outcome) -> float | None:
    """Return the ratio of medians."""
    ours, other = outcome.entries.get(OURS), best(outcome)
    if ours is None or ours.reason or other is None:
        return None
    return other[1].median / ours.median


def ordered(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Order outcomes: failures of derivatrix, then losses, the largest first, then gains, the least
    first; outcomes without a ratio last."""

    def key(outcome: Outcome) -> float:
        ours = outcome.entries.get(OURS)
        if ours is not None and ours.reason:
            return -1.0
        result = ratio(outcome)
        return math.inf if result is None else result

    return sorted(outcomes, key=key)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of one or more ratios."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def duration(seconds: float) -> str:
    """Print a time with three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g}{unit}"
    return f"{seconds * 1e9:.3g}ns"


def size(nbytes: int | None) -> str:
    """Print a size in MB."""
    return "" if nbytes is None else f"{nbytes / 1e6:.3g} MB"


class Notes:
    """Reasons, each once, with the number it is referred to by."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def mark(self, reason: str) -> str:
        number = self.numbers.setdefault(reason, len(self.numbers) + 1)
        return f"- [{number}]"

    def lines(self) -> list[str]:
        return [f"[{number}] {reason}" for reason, number in self.numbers.items()]


def times(outcomes: Sequence[Outcome], names: Sequence[str], notes: Notes) -> list[list[str]]:
    """The cells of the main table, the header first."""
    header = [
        "row",
        "sizes",
        "threads",
        "ratio",
        "of medians",
        "best",
        "specialist",
        "floor",
        *names,
    ]
    return [header, *(_time_cells(outcome, names, notes) for outcome in ordered(outcomes))]


def _time_cells(outcome: Outcome, names: Sequence[str], notes: Notes) -> list[str]:
    other = best(outcome)
    cells = [outcome.row, outcome.label, str(outcome.threads)]
    for found in (ratio(outcome), median_ratio(outcome)):
        cells.append("-" if found is None else f"{found:.2f}")
    cells.append(other[0] if other else "-")
    by_specialist = specialist_ratio(outcome)
    cells.append("-" if by_specialist is None else f"{by_specialist:.2f}")
    cells.append(duration(outcome.floor))
    return cells + [_time(outcome.entries.get(name), notes) for name in names]


def _time(entry: Entry | None, notes: Notes) -> str:
    if entry is None:
        return ""
    if entry.reason:
        return notes.mark(entry.reason)
    return f"{duration(min(entry.times))} / {duration(entry.median)} / {duration(max(entry.times))}"


def firsts(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[list[str]]:
    """The cells of the table of first calls and peak memory."""
    header = ["row", "sizes", "threads", *(f"{name}: first call, peak" for name in names)]
    return [header, *(_first_cells(outcome, names) for outcome in ordered(outcomes))]


def _first_cells(outcome: Outcome, names: Sequence[str]) -> list[str]:
    cells = [outcome.row, outcome.label, str(outcome.threads)]
    for name in names:
        entry = outcome.entries.get(name)
        done = entry is not None and not entry.reason
        parts = [duration(entry.first), size(entry.peak)] if entry and done else ["-"]
        cells.append(", ".join(part for part in parts if part))
    return cells


def stages(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The cells of the table of derivatrix's compilation times, where it compiled something."""
    rows = [
        [
            outcome.row,
            duration(entry.stages["module"]) if "module" in entry.stages else "known",
            duration(entry.stages["kernels"]),
        ]
        for outcome in outcomes
        if (entry := outcome.entries.get(OURS)) and entry.stages.get("kernels", 0) > 0.05
    ]
    return [["row", "derive and write the module", "compile the kernel"], *rows]


def markdown(cells: Sequence[Sequence[str]]) -> str:
    """Print a table in Markdown."""
    escaped = [[cell.replace("|", "\\|").replace("*", "\\*") for cell in row] for row in cells]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([lines[0], "|" + " --- |" * len(cells[0]), *lines[1:]])


def terminal(cells: Sequence[Sequence[str]], names: Sequence[str]) -> Table:
    """Make a table for rich; of the times only the least."""
    fixed = len(cells[0]) - len(names)
    title = "least time of a call; rows that lose first"
    table = Table(title=title, title_justify="left", padding=(0, 0, 0, 1))
    for position, title in enumerate(cells[0]):
        words = title.replace("-", "\n").replace(" ", "\n")
        table.add_column(words, justify="left" if position < 2 else "right", no_wrap=position > 1)
    for row in cells[1:]:
        shown = [cell.partition(" / ")[0] for cell in row[fixed:]]
        loses = row[3] != "-" and float(row[3]) < 1
        table.add_row(*row[:fixed], *shown, style="red" if loses else None)
    return table


def report(outcomes: Sequence[Outcome], names: Sequence[str], facts: Mapping[str, str]) -> str:
    """Everything, as Markdown."""
    notes = Notes()
    main = markdown(times(outcomes, names, notes))
    parts = [
        "# Benchmark",
        "\n".join(f"- {name}: {value}" for name, value in facts.items()),
        summary(outcomes),
        "## Time of a call: min / median / max\n\nRows that lose first; ratio: the best "
        "framework's least time over derivatrix's; specialist: the specialist's over derivatrix's; "
        "floor: see docs/developers/benchmarks.md.",
        main,
        "\n".join(f"- {line}" for line in notes.lines()) or "Every contestant did every row.",
        "## First calls, and peak memory of Jacobians and Hessians",
        markdown(firsts(outcomes, names)),
        "## What derivatrix's first calls consist of",
        markdown(stages(outcomes)),
    ]
    return "\n\n".join(parts) + "\n"


def summary(outcomes: Sequence[Outcome]) -> str:
    """A sentence on all rows, and one on those that the specialist did."""
    ratios = [found for outcome in outcomes if (found := ratio(outcome)) is not None]
    if not ratios:
        text = "No case was done by derivatrix and a framework both."
    else:
        lost = sum(found < 1 for found in ratios)
        unable = sum(bool(o.entries[OURS].reason) for o in outcomes if OURS in o.entries)
        text = (
            f"derivatrix is faster than the best framework by {geometric_mean(ratios):.2f} "
            f"(geometric mean of {len(ratios)} cases); it loses {lost} of them, and failed in "
            f"{unable} cases."
        )
    by_hand = [found for outcome in outcomes if (found := specialist_ratio(outcome)) is not None]
    if not by_hand:
        return text
    return (
        f"{text} The specialist's time over derivatrix's is {geometric_mean(by_hand):.2f} "
        f"(geometric mean of {len(by_hand)} cases); it is below 1 in "
        f"{sum(found < 1 for found in by_hand)} of them."
    )
