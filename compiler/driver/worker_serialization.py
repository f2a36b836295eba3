"""Modules generated in processes beside this one: functions go there pickled, texts come back."""

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


def generate_elsewhere(work: Work, workers: Workers, changed: Changed) -> list[Generated | None]:
    """The modules; None for those to be generated here.

    These are functions with operations that other processes do not know, as the user's own, and
    those that raise: an error is better raised here.
    """
    arguments = [_packed(function, target) for function, target in work]
    answers = workers.map(f"{__name__}:generated", arguments, changed)
    same = [
        isinstance(answer, dict) and answer["digest"] == digest(function, target)
        for (function, target), answer in zip(work, answers, strict=True)
    ]
    return [
        Generated(**{**answer, "support": tuple(answer["support"])}) if known else None
        for answer, known in zip(answers, same, strict=True)
    ]


def generated(packed: str) -> dict[str, Any] | None:
    """A generated module as plain data: what a worker does."""
    if not packed:
        return None
    return vars(generate(*pickle.loads(base64.b64decode(packed))))


def _packed(function: Function, target: str) -> str:
    """A function as text; "" where it has parts that cannot be written."""
    try:
        contents = pickle.dumps((function, target))
    except (AttributeError, pickle.PicklingError, RecursionError, TypeError):
        return ""
    return base64.b64encode(contents).decode()
