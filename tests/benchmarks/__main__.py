"""The command: `python -m tests.benchmarks`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from tests.benchmarks import machine, race, table
from tests.benchmarks.contestants import CONTESTANTS, ON_DEVICE
from tests.benchmarks.record import Case, cases, device_cases
from tests.benchmarks.rows import ROWS

QUICK = ("derivatrix", "by-hand", "jax", "torch")


@click.command()
@click.option("--rows", "patterns", multiple=True, help="Rows whose name has this in it.")
@click.option("--contestants", help=f"Of {', '.join(CONTESTANTS)}; all by default.")
@click.option("--threads", default="1,2", show_default=True, help="Numbers of threads.")
@click.option("--seconds", default=0.3, show_default=True, help="For each measurement.")
@click.option("--quick", is_flag=True, help="Two sizes, four contestants, one type, little time.")
@click.option("--device", type=click.Choice(["cuda"]), default=None, help="Not the processor.")
@click.option("--list", "listing", is_flag=True, help="Name the rows and stop.")
@click.option(
    "--output",
    default="benchmarks",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results.md, results.json, times.png and the contestants' logs are written.",
)
def main(
    patterns: tuple[str, ...],
    contestants: str | None,
    threads: str,
    seconds: float,
    quick: bool,
    device: str | None,
    listing: bool,
    output: Path,
) -> None:
    """Compare derivatrix's derivatives with other packages' and with closed forms by hand."""
    rows = [row for row in ROWS if _matches(row.name, patterns)]
    chosen = list(device_cases(rows) if device else cases(rows, quick))
    if listing or not chosen:
        names = dict.fromkeys(case.row.name for case in chosen) or [row.name for row in ROWS]
        click.echo("\n".join(names))
        return
    names = _names(contestants, quick, ON_DEVICE if device else CONTESTANTS)
    seconds = min(seconds, 0.1) if quick else seconds
    output.mkdir(parents=True, exist_ok=True)
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else 200)
    outcomes: list[race.Outcome] = []
    facts = machine.describe()
    for variable in machine.UNSET:
        if variable in os.environ:
            console.print(f"{variable} is set here; the contestants run without it")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        for count in [_counts(threads)[-1]] if device else _counts(threads):
            outcomes += _threads(
                console, chosen, names, count, seconds, output, Path(scratch), facts, device or ""
            )
            _write(outcomes, names, facts, output)
    console.print(table.terminal(table.times(outcomes, names, notes := table.Notes()), names))
    for line in notes.lines():
        console.print(line, highlight=False, markup=False)
    for name, value in facts.items():
        console.print(f"{name}: {value}", highlight=False, markup=False)
    console.print(table.summary(outcomes))
    console.print(f"Tables, pictures and logs are in {output}")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(pattern.casefold() in name.casefold() for pattern in patterns)


def _names(contestants: str | None, quick: bool, known: Collection[str]) -> list[str]:
    if contestants is None:
        return list(QUICK if quick else known)
    wanted = [name.strip() for name in contestants.split(",")]
    for name in wanted:
        if name not in known:
            raise click.BadParameter(f"{name}: choose from {', '.join(known)}")
    return wanted


def _counts(threads: str) -> list[int]:
    try:
        counts = [int(text) for text in threads.split(",")]
    except ValueError:
        raise click.BadParameter(f"--threads {threads}: numbers like 1,2") from None
    available = int(machine.describe()["processors"])
    return [count for count in counts if 1 <= count <= available] or [available]


def _threads(
    console: Console,
    chosen: Sequence[Case],
    names: Sequence[str],
    threads: int,
    seconds: float,
    output: Path,
    scratch: Path,
    facts: dict[str, str],
    device: str,
) -> list[race.Outcome]:
    """All cases with a number of threads."""

    def log(name: str) -> Path:
        return output / f"{name}-{threads}.log"

    rates = race.rates(threads, scratch, log("rates"), device)
    facts[f"rates, threads={threads}"] = str(rates)
    settings = machine.blas_settings(machine.environment(threads, scratch, device))
    facts[f"settings, threads={threads}"] = ", ".join(f"{k}={v}" for k, v in settings.items())
    outcomes = []
    with race.workers(names, threads, scratch, log, device) as (rivals, missing):
        facts["versions"] = ", ".join(f"{name} {rival.version}" for name, rival in rivals.items())
        for name, reason in missing.items():
            facts[f"{name} left out"] = reason
        started, work = time.monotonic(), machine.busy()
        for position, case in enumerate(chosen, 1):
            outcome = race.run(case, rivals, seconds, threads, rates)
            outcomes.append(outcome)
            console.print(_progress(position, len(chosen), outcome), markup=False, highlight=False)
        facts[f"idle after a block, threads={threads}"] = ", ".join(
            f"{name} {rival.longest * 1e3:.0f} ms" for name, rival in rivals.items()
        )
        own = sum(machine.work(rival.process.pid) for rival in rivals.values())
        others = (machine.busy() - work - own) / (time.monotonic() - started)
        facts[f"other work, threads={threads}"] = f"{max(0.0, others):.2f} processors on average"
    return outcomes


def _progress(position: int, count: int, outcome: race.Outcome) -> str:
    ratio = table.ratio(outcome)
    medians = [
        f"{name} {'-' if entry.reason else table.duration(entry.least)}"
        for name, entry in outcome.entries.items()
    ]
    text = "" if ratio is None else f"{ratio:.2f}x: "
    head = f"[{position}/{count}] {outcome.row} {outcome.label}, {outcome.threads} threads: "
    return head + text + ", ".join(medians)


def _write(
    outcomes: Sequence[race.Outcome], names: Sequence[str], facts: Mapping[str, str], output: Path
) -> None:
    """Write the outcomes so far, so that an interrupted run keeps them."""
    from tests.benchmarks import plot  # which needs matplotlib

    record = {"facts": dict(facts), "outcomes": [outcome.record() for outcome in outcomes]}
    (output / "results.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    (output / "results.md").write_text(table.report(outcomes, names, facts), encoding="utf-8")
    plot.pictures(outcomes, names, output / "times.png")


if __name__ == "__main__":
    main()
