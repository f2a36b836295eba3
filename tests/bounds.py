"""Every kernel of a function, called with arrays that lie alone (`tests.guarded`) and compiled with
checks of all indices: whether it touches what is outside them, or reads what nobody has written.

    python -m tests.bounds [--from FIRST] [--to LAST]

does it for all identities and cases, as they are and with batches, for sizes from 0 to 40. It takes
hours; it says which one it is at, and can go on from there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.runtime.workers import Crash, Workers
from tests.cases import CASES, EVALUATED
from tests.identities import IDENTITIES
from tests.operations import test_root
from tests.plan import test_batch_last, test_symmetric_products

BATCHES = (0, 1, 5)
OPERATOR = "operator"
"""The kind of the kernel of Jacobians or Hessians as operators."""
TYPES = ("float64", "float32")
SKEWED = {"m": 1, "p": 2, "k": -1, "q": 3, "N": 5, "d": 1, "c": 2}
"""Numbers added to sizes, for points whose sizes differ."""
LARGEST = 1_000_000
"""Entries of arguments and results of a call; what has more is left out, and counted."""
TOGETHER = 10
"""Functions that one process does: it keeps all that it compiles."""
n = dx.dims("n")
A, L, x = dx.matrix("A", n, n), dx.matrix("L", n, n, "lower"), dx.vector("x", n)
OTHERS = {
    "triangular determinants": dx.function(
        "f", [L], dx.det(L) + dx.logdet(L @ L) * dx.log(abs(dx.det(L))), batch=[L]
    ),
    "triangular solution": dx.function("f", [L, x], dx.solve(L, x)),
    "batch last logarithms": dx.function(
        "f", [A], dx.logdet(A) * dx.log(abs(dx.det(A))), batch=[A]
    ),
    "batch last extrema": dx.function(
        "f", [A, x], dx.logsumexp(dx.solve(A, x)) * dx.max(dx.solve(A, x)), batch=[A, x]
    ),
    "batch last log softmax": dx.function(
        "f", [A, x], dx.log_softmax(dx.solve(A, x)), batch=[A, x]
    ),
    "maxima": dx.function("f", [A], dx.max(A, axis=1) * dx.logsumexp(A, axis=1)),
}
"""Functions of helper kernels that no other function here has."""
IDENTITY = {f"{identity.text} by {identity.wrt}": identity for identity in IDENTITIES}
ROOTS = (test_root.MATRIX_ROOT, test_root.SAMPLE, test_root.FIXED, test_root.LEAST)
DECLARED: dict[str, Function] = {
    **{case.name: case for case in (*CASES, *EVALUATED, *ROOTS)},
    **{f"batch last {name}": function for name, function in test_batch_last.FUNCTIONS.items()},
    "packed": test_symmetric_products.PACKED["weighted"],
}
DECLARED |= OTHERS
NAMES = (*IDENTITY, *DECLARED)


@dataclass(frozen=True)
class Task:
    """name: of a function, one of NAMES; batch: which inputs are stacks of samples; kinds: of
    kernels (none: all); sizes: what all sizes are, or about; planted: what is put into the
    module's text, or into its support, in place of what. without: the kernels (name and
    type) left out; place: the file that says what is called."""

    name: str
    batch: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    sizes: tuple[int, ...] = tuple(range(41))
    types: tuple[str, ...] = TYPES
    planted: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()
    place: str = ""


@dataclass
class Found:
    """calls: how many there were; refused: those that raised ValueError or LinAlgError; large:
    those left out; failures: a text each."""

    calls: int = 0
    refused: int = 0
    large: int = 0
    failures: list[str] = field(default_factory=list)


def function_of(task: Task) -> Function:
    """The function of a task, with its batch."""
    if task.name in DECLARED:
        return DECLARED[task.name]
    identity = IDENTITY[task.name]
    single = text_function(identity.text, identity.dims, identity.wrt.split())
    if not task.batch:
        return single
    inputs = [dx.Array(leaf) for leaf in single.inputs]
    expression, wrt = dx.Array(single.expression), identity.wrt.split()
    return dx.function("f", inputs, expression, batch=task.batch, wrt=wrt)


def check(workers: Workers, task: Task) -> Found:
    """Check a task in worker processes, which may crash during it."""
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        request = {**vars(task), "place": os.path.join(folder, "place")}
        while True:
            (answer,) = workers.map("tests.checked:run", [request], lambda *_: None)
            if not isinstance(answer, Crash):
                break
            place = Path(request["place"])
            if answer.trace or not place.exists():
                raise RuntimeError(f"{task}: {answer.reason}\n{answer.trace}")
            where = place.read_text().strip()
            failures.append(f"{where}: the process {answer.reason.removeprefix('its process ')}")
            request["without"] = [*request["without"], where.partition(" for ")[0]]
            place.unlink()
    if isinstance(answer, Exception):
        raise answer
    answer["failures"] += failures
    return Found(**answer)


def environment(folder: str) -> dict[str, str]:
    """Return the environment of the workers, with a cache of their own. Most of LLVM's
    optimisations are switched off, as they take most of the time and indices are checked before
    them."""
    return {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1", "NUMBA_CACHE_DIR": folder}


def batches(name: str) -> list[tuple[str, ...]]:
    """List the inputs of an identity to be stacks: none; those to differentiate by; the others."""
    if name in DECLARED:
        return [()]
    function = function_of(Task(name))
    others = tuple(leaf.name for leaf in function.inputs if leaf.name not in function.wrt)
    return [(), tuple(function.wrt), *([others] if others else [])]


def timed(workers: Workers, number: int, task: Task) -> Found:
    """Check a task, and print the outcome."""
    start = time.perf_counter()
    result = check(workers, task)
    print(
        f"{number} {task.name} batch {' '.join(task.batch) or '-'}: {result.calls} calls, "
        f"{result.refused} refused, {result.large} too large, {time.perf_counter() - start:.0f} s",
        *(f"    {failure}" for failure in result.failures),
        sep="\n",
        flush=True,
    )
    return result


def main() -> int:
    """The whole campaign: 1 if something is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=len(NAMES))
    chosen = parser.parse_args()
    total = Found()
    numbered = list(enumerate(NAMES))[chosen.first : chosen.last]
    for start in range(0, len(numbered), TOGETHER):
        with tempfile.TemporaryDirectory() as folder, Workers(1, environment(folder)) as workers:
            for number, name in numbered[start : start + TOGETHER]:
                for batch in batches(name):
                    result = timed(workers, number, Task(name, batch))
                    total.calls += result.calls
                    total.failures += result.failures
    print(f"{total.calls} calls, {len(total.failures)} failures")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
