"""Processes that work beside this one, as many as there are cores.

They are new interpreters, not forks (threads may be running here) and not those of
`multiprocessing` (which run the user's script again).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from derivatrix.runtime import errors
from derivatrix.runtime.errors import DerivatrixError

Changed = Callable[[list[int], int], None]
"""Called with the positions of the pieces at work and how many pieces are done."""

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from derivatrix.runtime.worker import main
main()
"""

_ONE_THREAD = dict.fromkeys(
    ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Threads of BLAS in several processes wait for each other, far longer than they work."""

_living: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Crash:
    """A process ended in the midst of its work, or the function called raised what is no error of
    derivatrix. `reason` says it; `trace` is the traceback, if there is one."""

    reason: str
    trace: str = ""


def cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """At most `jobs` processes (as many as there are cores, if it is None), started when they are
    needed and ended with the `with` block. environment: variables that they have besides."""

    def __init__(
        self, jobs: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment or {}
        self.jobs = cores() if jobs is None else jobs
        if not sys.executable:  # Python is part of another program, which is no interpreter
            self.jobs = 1
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._started: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def map(self, call: str, arguments: Sequence[object], changed: Changed) -> list[Any]:
        """What the function called "module:function" returns for each argument, or else the
        DerivatrixError that it raised, or a Crash. Arguments and results are plain data of JSON.
        """
        found: list[Any] = [None] * len(arguments)
        waiting = list(range(len(arguments)))
        width = min(self.jobs, len(arguments))
        with ThreadPoolExecutor(max(1, width)) as threads:
            try:
                pieces = {threads.submit(self._ask, call, arguments[i]): i for i in waiting}
                changed(waiting[:width], 0)
                for piece in as_completed(pieces):
                    found[pieces[piece]] = piece.result()
                    waiting.remove(pieces[piece])
                    changed(waiting[:width], len(found) - len(waiting))
            except BaseException:
                self.end()  # the threads wait for what the processes would say
                raise
        return found

    def end(self) -> None:
        """End the processes, whatever they are at."""
        self._ended = True
        _end(self._started)
        for process in [*self._started]:
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # a request that was never read
                    if pipe is not None:
                        pipe.close()

    def _ask(self, call: str, argument: object) -> Any:
        try:
            process = self._process()
        except OSError as error:
            return Crash(f"no process could be started for it: {error.strerror}")
        if process is None or process.stdin is None or process.stdout is None:
            return Crash("its process was ended")
        with suppress(OSError):  # it has ended already
            process.stdin.write(json.dumps([call, argument]).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            return Crash(f"its process {_ending(process.wait())}")
        self._idle.put(process)
        answer = json.loads(line)
        if "error" not in answer:
            return answer["value"]
        kind = getattr(errors, answer["error"], None)
        if isinstance(kind, type) and issubclass(kind, DerivatrixError):
            return kind(answer["text"])
        return Crash(answer["text"], answer.get("trace", ""))

    def _process(self) -> subprocess.Popen[bytes] | None:
        """A process that has nothing to do; None where all are to end."""
        with suppress(Empty):
            return self._idle.get_nowait()
        if self._ended:
            return None
        options: dict[str, Any] = {"process_group": 0}  # Ctrl-C is for this process alone
        if sys.platform == "win32":
            options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        path = [entry for entry in sys.path if isinstance(entry, str)]
        process = subprocess.Popen(
            [sys.executable or "", "-c", _START, json.dumps(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_ONE_THREAD, **os.environ, **self._environment},
            **options,
        )
        self._started.add(process)
        _living.add(process)
        if self._ended:
            self.end()
        return process


def end_workers() -> None:
    """End every process of this one, which is about to end itself."""
    _end({*_living})


def _end(processes: set[subprocess.Popen[bytes]]) -> None:
    for process in [*processes]:
        with suppress(OSError):
            process.kill()
    for process in [*processes]:
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        _living.discard(process)


def _ending(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
