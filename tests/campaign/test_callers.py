"""The campaign of callers notices faults that are planted in what it calls."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

from tests.campaign.callers import memory, used
from tests.campaign.callers.calls import Call
from tests.campaign.callers.memory import grows
from tests.campaign.callers.scene import Scene
from tests.campaign.callers.threads import callers


def scene_of(*calls: Call) -> Scene:
    scene = Scene((), 0, random.Random(0))
    scene.__dict__["calls"] = [*calls]
    return scene


def test_a_result_that_threads_share() -> None:
    room = np.zeros(1)

    def shared(x: Any, out: Any = room) -> Any:
        out[0] = x[0]
        time.sleep(1e-4)
        return out

    calls = [Call(shared, f"shared {x}", (np.array([x]),), (np.array([x]),)) for x in (1.0, 2.0)]
    scene = scene_of(*calls)
    callers(scene, calls, 1, 0.05)
    assert scene.outcome.tried and not scene.outcome.failures
    callers(scene, calls, 4, 0.2)
    assert any("off by 1.0" in failure for failure in scene.outcome.failures)


def test_an_error_that_is_not_raised_and_one_that_is() -> None:
    def refuses(x: Any) -> Any:
        raise np.linalg.LinAlgError("no")

    x = np.ones(1)
    assert Call(refuses, "f", (x,), (x,)).problem() == "f: no"
    assert Call(refuses, "f", (x,), None).problem() == ""
    assert "no LinAlgError" in Call(np.copy, "f", (x,), None).problem()


@pytest.mark.parametrize("leaks", [True, False])
def test_memory_that_is_kept(monkeypatch: pytest.MonkeyPatch, leaks: bool) -> None:
    monkeypatch.setattr(memory, "CALLS", 2000)
    monkeypatch.setattr(memory, "TRACED", 1000)
    kept: list[Any] = []

    def value(x: Any, out: Any = None) -> Any:
        if leaks:
            kept.append(np.ones(1000))
        return x if out is None else out

    x = np.ones(5)
    scene = scene_of(Call(value, "value", (x,), (x,)))
    grows(scene, scene.calls, 1)
    assert len(scene.outcome.failures) == (2 if leaks and memory.STATUS.exists() else leaks)


def test_a_process_that_fails() -> None:
    (failure,) = used("nowhere:nothing", [], 0).failures
    assert "No module named 'tests.campaign.callers.nowhere'" in failure
