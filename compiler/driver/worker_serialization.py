"""Generation of modules in worker processes, which get pickled functions and return texts."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from typing import Any

from derivatrix.compiler.driver.pipeline import Generated, digest, generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.runtime.workers import Changed, Workers

Work = Sequence[tuple[Function, str]]
"""Functions and the targets to generate code for."""


def generate_in_workers(work: Work, workers: Workers, changed: Changed) -> list[Generated | None]:
    """Generate modules in workers; None for a function that this process has to generate: one with
    operations that a worker does not know, as the user's own, or one that raises there."""
    arguments = [_pickled(function, target) for function, target in work]
    answers = workers.map(f"{__name__}:generate_pickled", arguments, changed)
    return [
        Generated(**{**answer, "support": tuple(answer["support"])})
        if isinstance(answer, dict) and answer["digest"] == digest(function, target)
        else None
        for (function, target), answer in zip(work, answers, strict=True)
    ]


def generate_pickled(pickled: str) -> dict[str, Any] | None:
    """Generate a module as plain data: the task of a worker."""
    if not pickled:
        return None
    return vars(generate(*pickle.loads(base64.b64decode(pickled))))


def _pickled(function: Function, target: str) -> str:
    """Pickle a function and a target to text, since workers exchange JSON; "" if a part cannot be
    pickled."""
    try:
        contents = pickle.dumps((function, target))
    except (AttributeError, pickle.PicklingError, RecursionError, TypeError):
        return ""
    return base64.b64encode(contents).decode()
