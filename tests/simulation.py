"""Tests that run in a process in which Numba simulates a device: it reads at its import whether it
is to."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from derivatrix.runtime.workers import Crash, Workers
from derivatrix.templates.support.internals.verification import memory_as_on_device

Simulator = Callable[[str, dict[str, Any]], None]


def simulated(test: Callable[..., None]) -> Callable[..., None]:
    """A test that runs in the process of the fixture `simulator`. Its own arguments, from
    parameters, are plain data; it uses no other fixtures."""

    @functools.wraps(test)
    def elsewhere(simulator: Simulator, **arguments: Any) -> None:
        simulator(f"{test.__module__}:{test.__name__}", arguments)

    own = inspect.signature(test)
    first = inspect.Parameter("simulator", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    elsewhere.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    return elsewhere


def run(piece: tuple[str, dict[str, Any]]) -> None:
    """Run the test "module:function" in this process."""
    module, _, name = piece[0].partition(":")
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        for change in memory_as_on_device():
            patch.setattr(*change)
        getattr(importlib.import_module(module), name).__wrapped__(**piece[1])


def ask(workers: Workers, name: str, arguments: dict[str, Any]) -> None:
    """Run a test in another process; it fails here if it does there."""
    (answer,) = workers.map(f"{__name__}:run", [(name, arguments)], lambda at_work, done: None)
    if isinstance(answer, Crash):
        pytest.fail(answer.trace or answer.reason, pytrace=False)
    if isinstance(answer, Exception):
        raise answer
