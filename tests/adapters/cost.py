"""Cost of calls through the adapters: `python -m tests.adapters.cost [jax torch scipy ...]`. Each
call is timed in turns with the same call in the other program alone, and with the module's function
alone, in double precision. The table has microseconds a call, the least, median and most of the
rounds, and the ratio of the least to that of the other program: other processes distort the
rest."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.timing import block, calibrate

NAMES = ("jax", "torch", "scipy", "pytensor", "dask")
SIZES = (4, 512)
HEADING = (
    "| | n | way | least | median | most | ratio |\n| --- | --- | --- | --- | --- | --- | --- |"
)

Ways = dict[str, Callable[[], Any]]


def measured(ways: Ways, rounds: int) -> dict[str, list[float]]:
    """Microseconds a call, by way, one for each round."""
    loops = {name: calibrate(call) for name, call in ways.items()}
    result: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, call in ways.items():
            result[name].append(block(call, loops[name]) * 1e6)
    return result


def rows(group: str, n: int, times: dict[str, list[float]]) -> list[str]:
    """The lines of a group in the table."""
    own = min(next(iter(times.values())))
    return [
        f"| {group} | {n} | {name} | {min(each):,.1f} | {median(each):,.1f} | {max(each):,.1f} "
        f"| {min(each) / own:.2g} |"
        for name, each in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    names = asked.names or NAMES
    if not {*names} <= {*NAMES}:
        parser.error(f"choose from {', '.join(NAMES)}")
    print(f"{os.cpu_count()} cores; load before: {os.getloadavg()[0]:.1f}\n\n{HEADING}")
    for name in names:
        calls = import_module(f"tests.adapters.{name}.cost").calls
        for n in SIZES:
            for group, ways in calls(n, np.random.default_rng(n)).items():
                print(*rows(f"{name}: {group}", n, measured(ways, asked.rounds)), sep="\n")


if __name__ == "__main__":
    main()
