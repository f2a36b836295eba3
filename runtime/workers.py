"""Worker processes, by default as many as there are cores.

They are new interpreters: not forks, as threads may be running here, and not those of
`multiprocessing`, which run the user's script again.
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
"""Called with the positions of the running requests and the number of finished ones."""

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from derivatrix.runtime.worker import main
main()
"""

_ONE_THREAD = dict.fromkeys(
    ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Environment of workers with one BLAS thread each: BLAS threads of several processes wait for each
other, far longer than they work."""

_processes: set[subprocess.Popen[bytes]] = set()
"""All running workers of this process."""


@dataclass(frozen=True)
class Crash:
    """The end of a process during a request, or an error that is not one of derivatrix.

    reason: a sentence about it. trace: the traceback, if there is one."""

    reason: str
    trace: str = ""


def cores() -> int:
    """Count the cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """A pool of at most `jobs` processes (None: as many as cores), started on demand and ended with
    the `with` block. environment: their additional environment variables."""

    def __init__(
        self, jobs: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment or {}
        self.jobs = cores() if jobs is None else jobs
        if not sys.executable:  # an embedded Python has no interpreter to start
            self.jobs = 1
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._started: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def map(self, call: str, arguments: Sequence[object], changed: Changed) -> list[Any]:
        """Call the function `call`, "module:function", with each argument. Return for each the
        result, the DerivatrixError that was raised, or a Crash. Arguments and results are JSON."""
        answers: list[Any] = [None] * len(arguments)
        pending = list(range(len(arguments)))
        width = min(self.jobs, len(arguments))
        with ThreadPoolExecutor(max(1, width)) as threads:
            try:
                positions = {threads.submit(self._ask, call, arguments[i]): i for i in pending}
                changed(pending[:width], 0)
                for future in as_completed(positions):
                    position = positions[future]
                    answers[position] = future.result()
                    pending.remove(position)
                    changed(pending[:width], len(answers) - len(pending))
            except BaseException:
                self.end()  # else the threads would wait for answers
                raise
        return answers

    def end(self) -> None:
        """Kill the processes."""
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
        with suppress(OSError):  # the process has ended already
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
        """Take an idle process, or start one; None after `end`."""
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
        _processes.add(process)
        if self._ended:
            self.end()
        return process


def end_workers() -> None:
    """Kill all workers of this process, which is about to end itself."""
    _end({*_processes})


def _end(processes: set[subprocess.Popen[bytes]]) -> None:
    for process in [*processes]:
        with suppress(OSError):
            process.kill()
    for process in [*processes]:
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        _processes.discard(process)


def _ending(status: int) -> str:
    """Say how a process ended."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
