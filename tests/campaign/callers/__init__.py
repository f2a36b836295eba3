"""Programs that call kernels in every way there is: many threads of Python, copies of a process and
pools of them, Ctrl-C and the end of the process in the midst of a call, very many calls.

Each trial has one use, draws how many threads kernels and OpenBLAS have, and runs in a process of
its own, which has to end by itself with status 0 and no traceback.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence

import derivatrix as dx
from tests import ROOT
from tests.campaign import Outcome
from tests.campaign.callers.functions import FUNCTIONS, QUICK

USES = (
    "threads:together",
    "processes:forks",
    "memory:steady",
    "ends:interrupted",
    "processes:pools",
    "ends:exiting",
    "processes:executors",
)
"""The uses: functions in the files of this folder, which are called with a `Scene`."""
LONGEST = 200
"""Seconds after which a use is taken to hang."""
SIGNS = ("Traceback", "Exception ignored", "Fatal Python error", "terminate called")
"""Words on the standard error of a program that failed, whatever its status."""


def trial(seed: int, number: int) -> Outcome:
    """One use. The first trial has few functions, since their kernels have to be compiled."""
    functions = QUICK if number == 0 else FUNCTIONS
    paths = [str(dx.compile(function).__file__) for function in functions]
    return used(USES[number % len(USES)], paths, random.Random(f"{seed} {number}").getrandbits(32))


def used(use: str, paths: Sequence[str], seed: int) -> Outcome:
    """Run a use of the modules in files in a process of its own; return the problems."""
    draw = random.Random(seed)
    threads = {
        "NUMBA_NUM_THREADS": draw.choice("24"),
        "OPENBLAS_NUM_THREADS": draw.choice("12"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.campaign.callers", use, str(seed), *paths]
    about = f"{use} {threads}"
    try:
        process = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **threads, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired as error:
        return Outcome(1, [f"{about}: has not ended after {LONGEST} s; {error.stderr!r}"])
    if process.returncode or any(sign in process.stderr for sign in SIGNS):
        return Outcome(1, [f"{about}: status {process.returncode}: {process.stderr[-3000:]}"])
    outcome = Outcome(**json.loads(process.stdout))
    return Outcome(outcome.tried, [f"{about}: {failure}" for failure in outcome.failures])
