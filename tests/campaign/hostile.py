"""Hostile declarations and texts: names that are code, numbers that no array has, objects that are
no arrays, texts with letters exchanged, expressions that are very deep or very long.

Each has to end in an error of derivatrix's own, short and about what came, or in a function whose
module is Python and whose value is right; soon, in little memory, and without anything done that a
name or text says.
"""

from __future__ import annotations

import builtins
import os
import random
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.runtime.errors import DerivatrixError
from tests.campaign import Outcome
from tests.campaign import hostile_large as large
from tests.campaign import hostile_names as names
from tests.campaign import hostile_texts as texts
from tests.campaign import hostile_values as values
from tests.campaign.hostile_case import PLANTED, Case
from tests.points import numbers

SECONDS = 10.0
"""Most processor time of a case, unless the case says more itself."""
MEMORY = 500
"""Most MB that a case may add to the peak memory of the process."""
LONGEST = 2000
"""Most characters of an error's message."""


class Overtime(BaseException):
    """Raised in the midst of a case that takes too long; nothing that handles errors stops it."""


def trial(seed: int, number: int) -> Outcome:
    """Some cases of each kind."""
    generator = random.Random(f"{seed}/{number}")
    cases = [
        *names.cases(generator, 12),
        *values.cases(generator, 16),
        *texts.cases(generator, 60),
        *large.cases(number),
    ]
    outcome = Outcome()
    with elsewhere():
        for case in cases:
            outcome.tried += 1
            wrong = verdict(case)
            if wrong:
                outcome.failures.append(f"{case.label}: {wrong}")
    return outcome


def verdict(case: Case) -> str:
    """Run a case; return the problem, or ""."""
    before = most_memory()
    files = {*os.listdir()}
    try:
        with limited(case.seconds):
            wrong = outcome_of(case)
    except Overtime:
        wrong = f"takes more than {case.seconds or SECONDS:.0f} seconds"
    if hasattr(builtins, PLANTED):
        delattr(builtins, PLANTED)
        wrong += "; the text was run"
    for name in {*os.listdir()} - files:
        Path(name).unlink()
        wrong += f"; the file {name!r} was made"
    grown = most_memory() - before
    return wrong + (f"; {grown} MB more of memory" if grown > MEMORY else "")


def most_memory() -> int:
    """The most memory that the process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def outcome_of(case: Case) -> str:
    """Check the error or the function in which a case ends; return the problem."""
    try:
        made = case.make()
        if not isinstance(made, Function):
            return ""
        if case.generates:
            generated = generate(made)
            for text in generated.texts.values():
                compile(text, made.name, "exec")
        compile(made.declaration, made.name, "eval")
    except DerivatrixError as error:
        return unclear(str(error))
    except Exception as error:  # whatever it is, it is found
        return f"{type(error).__name__}: {str(error)[:300]} at {place(error)}"
    return different(made, case.expected) if case.expected else ""


def unclear(message: str) -> str:
    """Check the message of an error; return the problem."""
    if not message.strip():
        return "the error says nothing"
    if len(message) > LONGEST:
        return f"the error's message has {len(message)} letters: {message[:100]}"
    return ""


def different(function: Function, expected: Callable[..., Any]) -> str:
    """Compare the value, simplified, and the declaration's text with what NumPy makes."""
    generator = np.random.default_rng(0)
    shapes = [leaf.shape for leaf in function.inputs]
    sizes = {size.name: 3 for shape in shapes for axis in shape for size in axis.free_symbols}
    points = {
        leaf.name: generator.uniform(0.5, 1.5, numbers(leaf.shape, sizes))
        for leaf in function.inputs
    }
    known = expected(*points.values())
    simplified = evaluate(function.derivatives.results("value")[()], points, sizes)
    text = eval(function.declaration, {"np": np}, dict(points))
    for what, found in (("value", simplified), ("declaration", text)):
        if not np.allclose(found, known, rtol=1e-9, equal_nan=True):
            return f"the {what} is {found}, not {known}"
    return ""


def place(error: Exception) -> str:
    """The last lines of the product that an error came through."""
    lines = []
    step = error.__traceback__
    while step is not None:
        lines.append(f"{Path(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno}")
        step = step.tb_next
    return " ".join(lines[-4:])


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise Overtime after so many seconds of the processor's time."""

    def stop(*_: object) -> None:
        raise Overtime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds or SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Change to an empty folder, in which every new file is noticed."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
