"""Copies of a process that has called kernels, and pools of processes and threads of all kinds."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec

from tests.campaign.callers.calls import calls_of, checked
from tests.campaign.callers.scene import PATIENCE, Scene

FORKS = 5
PIECES = 6
Mapped = Callable[[Callable[[int], list[str]], Iterable[int]], Iterable[list[str]]]


def checked_elsewhere(paths: Sequence[str], seed: int) -> list[str]:
    """Check calls of modules in files in another process or thread; return the problems."""
    return checked(calls_of(paths, seed))


def forks(scene: Scene) -> None:
    """Copies of this process call kernels while threads of it do, and the copy of a copy does."""
    if not hasattr(os, "fork"):
        return
    for number in range(FORKS):
        with scene.busy(scene.random.choice((0, 1, 3))):
            _fork(scene, number)
        scene.check(f"after fork {number}")


def _fork(scene: Scene, number: int) -> None:
    """A copy that calls everything, and, where its number is even, a copy of that in turn."""
    child = os.fork()
    if not child:
        signal.alarm(int(PATIENCE))
        status = _status(scene)
        if not status and number % 2 == 0:
            grandchild = os.fork()
            if not grandchild:
                os._exit(_status(scene))
            status = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        os._exit(status)
    scene.check(f"in the parent, {number}")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    wrong = f"a copy ended with {status} (-14 is a hang, 3 a wrong result)"
    scene.add(2 * len(scene.calls), [wrong] if status else [], f"fork {number}")


def _status(scene: Scene) -> int:
    """3 where calls in this copy are wrong, which go to the standard error."""
    problems = checked(scene.calls)
    print("\n".join(problems), file=sys.stderr, flush=True)
    return 3 if problems else 0


def pools(scene: Scene) -> None:
    """A pool of `multiprocessing` by each way to start its processes, some while threads call."""
    for method in multiprocessing.get_all_start_methods():
        count = scene.random.choice((0, 2))
        with scene.busy(count), multiprocessing.get_context(method).Pool(2) as pool:
            _map(scene, f"{method} under {count} busy threads", pool.map)
        scene.check(f"after a pool by {method}")


def executors(scene: Scene) -> None:
    """`concurrent.futures` with threads and processes, and joblib where it is installed."""
    method = scene.random.choice(multiprocessing.get_all_start_methods())
    context = multiprocessing.get_context(method)
    makers: dict[str, Callable[[], Executor]] = {
        "threads": partial(ThreadPoolExecutor, scene.random.choice((2, 16))),
        method: partial(ProcessPoolExecutor, 2, context),
    }
    for name, make in makers.items():
        with make() as executor:
            _map(scene, f"executor of {name}", executor.map)
        scene.check(f"after an executor of {name}")
    if find_spec("joblib"):
        for backend in ("threading", scene.random.choice(("loky", "multiprocessing"))):
            _map(scene, f"joblib's {backend}", partial(_by_joblib, backend))
            scene.check(f"after joblib's {backend}")


def _by_joblib(
    backend: str, work: Callable[[int], list[str]], pieces: Iterable[int]
) -> Iterable[list[str]]:
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    result: Iterable[list[str]] = Parallel(2, backend)(delayed(work)(piece) for piece in pieces)
    return result


def _map(scene: Scene, where: str, mapped: Mapped) -> None:
    work = partial(checked_elsewhere, tuple(scene.paths))
    for problems in mapped(work, range(PIECES)):
        scene.add(2 * len(scene.calls), problems, where)
