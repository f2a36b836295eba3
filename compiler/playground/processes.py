"""A process of its own for each request, which is killed when it exceeds its limits.

Requests that only need the compiler are forks of a process that has imported it, where the system
has forks; those that run generated code are new interpreters, with threads as usual.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

import anyio
from anyio import to_thread

from derivatrix.compiler.playground.worker import LIMITS, Limits, run

AT_ONCE = 4
"""How many requests are worked on at a time; further ones wait."""
LONGEST = 32 * 2**20
"""The most bytes of an answer."""
WAIT = 0.1
"""Seconds after which a request is looked after again."""

_PRELOADED = "derivatrix.compiler.playground.preloaded"


class Processes:
    """limits: of each kind of request. `running` are the processes at work, `folder` is where they
    may write; it is removed when this ends."""

    def __init__(self, limits: Mapping[str, Limits] = LIMITS) -> None:
        self.limits = limits
        self.running: set[BaseProcess] = set()
        self._free = anyio.Semaphore(AT_ONCE)
        self._folder = tempfile.TemporaryDirectory(prefix="derivatrix-playground-")
        self.folder = self._folder.name
        self._spawned = multiprocessing.get_context("spawn")
        self._forked: BaseContext = self._spawned
        if "forkserver" in multiprocessing.get_all_start_methods():
            self._forked = multiprocessing.get_context("forkserver")
            self._forked.set_forkserver_preload([_PRELOADED])

    def start(self) -> None:
        """Start the process whose forks answer, with no threads of BLAS in it."""
        if self._forked is not self._spawned:
            names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
            before = {name: os.environ.get(name) for name in names}
            os.environ.update(dict.fromkeys(names, "1"))
            forkserver.ensure_running()
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def end(self) -> None:
        """Kill all processes, and remove the folder."""
        for process in [*self.running]:
            self._kill(process)
        self._folder.cleanup()

    async def answers(
        self, name: str, data: Any, gone: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[bytes]:
        """The answers of a request, each a line of JSON, an error as the last of them; `gone`:
        whether nobody waits for them any more."""
        limits = self.limits[name]
        async with self._free:
            with anyio.CancelScope(shield=True):  # else nobody knew of what has just been started
                process, answers, place = await to_thread.run_sync(
                    self._started, name, data, limits
                )
            deadline = time.monotonic() + limits.seconds
            try:
                while time.monotonic() < deadline:
                    if await to_thread.run_sync(answers.poll, WAIT):
                        try:
                            line = answers.recv_bytes(LONGEST)
                        except (EOFError, OSError):
                            yield await to_thread.run_sync(_ending, process, limits)
                            return
                        yield line + b"\n"
                        if line.startswith((b'{"done"', b'{"error"')):
                            return
                    elif await gone():
                        return
                yield _error("TimeoutError", f"stopped after {limits.seconds:g} seconds")
            finally:
                self._kill(process)
                answers.close()
                shutil.rmtree(place, ignore_errors=True)

    def _started(self, name: str, data: Any, limits: Limits) -> tuple[BaseProcess, Any, str]:
        context: Any = self._spawned if limits.compiles else self._forked
        answers, sender = context.Pipe(duplex=False)
        place = tempfile.mkdtemp(dir=self.folder)
        process = context.Process(target=run, args=(sender, name, data, place, limits), daemon=True)
        process.start()
        sender.close()
        self.running.add(process)
        return process, answers, place

    def _kill(self, process: BaseProcess) -> None:
        self.running.discard(process)
        if sys.platform != "win32" and process.pid is not None and process.is_alive():
            with suppress(OSError):  # it has not made its session yet, or has just ended
                os.killpg(process.pid, signal.SIGKILL)
        with suppress(OSError):
            process.kill()


def _ending(process: BaseProcess, limits: Limits) -> bytes:
    process.join(5)
    code = process.exitcode or 0
    if code < 0:
        how = f"its process was ended by {signal.Signals(-code).name}"
        return _error("Killed", f"{how}; it may have {limits.memory:g} GiB of memory")
    how = f"its process ended with status {code}"
    return _error("Crash", f"{how}: a fault of derivatrix's own; the terminal shows where")


def _error(kind: str, text: str) -> bytes:
    return json.dumps({"error": kind, "text": text}).encode() + b"\n"
