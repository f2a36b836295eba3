"""Campaigns: `python -m tests.campaign NAME [--minutes M] [--seed S]` goes on with one for so long,
from where it was left; `python -m tests.campaign` prints what all of them have found."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.campaign import NAMES, Progress, run, so_far


def table(rows: list[Progress]) -> Table:
    result = Table("campaign", "seed", "trials", "tried", "failed", "minutes")
    for row in rows:
        cells = (row.name, row.seed, row.trials, row.tried, row.failed, f"{row.seconds / 60:.0f}")
        result.add_row(*map(str, cells))
    return result


def main() -> int:
    """1 if the campaign has found anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--records", type=Path, default=Path("campaigns"), help="the folder of what was found"
    )
    chosen = parser.parse_args()
    if chosen.name is None:
        rows = [so_far(path) for path in sorted(chosen.records.glob("*.jsonl"))]
    else:
        importlib.import_module(f"tests.campaign.{chosen.name}")  # says what is not installed
        rows = [run(chosen.records, chosen.name, chosen.seed, chosen.minutes, print)]
    Console().print(table(rows))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
