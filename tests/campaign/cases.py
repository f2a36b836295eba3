"""The tests that the default suite leaves out, in an order that the seed says, some in a trial."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import cache

from tests import ROOT
from tests.campaign import Outcome

TESTS = 10
"""Tests of one trial, which one process runs."""


def trial(seed: int, number: int) -> Outcome:
    """Some of the tests that are left out; after the last of them the first come again."""
    names = left_out()
    order = random.Random(seed).sample(names, len(names))
    chosen = [order[place % len(order)] for place in range(number * TESTS, (number + 1) * TESTS)]
    process = run_pytest("-rfE", *dict.fromkeys(chosen))
    failures = [
        line for line in process.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
    ]
    if process.returncode and not failures:
        failures = [f"pytest ended with {process.returncode}: {process.stdout}{process.stderr}"]
    return Outcome(TESTS, failures)


@cache
def left_out() -> list[str]:
    """List the tests of `pytest --rest` by name."""
    lines = run_pytest("--rest", "--collect-only").stdout.splitlines()
    return [line for line in lines if line.startswith("tests/") and "::" in line]


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in this checkout, by one process, with lines that are not cut."""
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "0", *arguments]
    environment = {**os.environ, "COLUMNS": "1000"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
