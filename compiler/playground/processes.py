"""Processes of requests, one each, which are killed if they exceed their limits.

Requests that only need the compiler run in forks of a process that has imported it, where the
system can fork; those that run generated code, with threads, in new interpreters.
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

MAX_RUNNING = 4
"""Most requests that run at a time; further ones wait."""
MAX_ANSWER_BYTES = 32 * 2**20
POLL_SECONDS = 0.1
"""Time between two checks of a request's deadline and of its client's connection."""

_PRELOADED = "derivatrix.compiler.playground.preloaded"


class Processes:
    """The processes that answer requests. limits: by the name of a request; folder: where they may
    write, removed at the end."""

    def __init__(self, limits: Mapping[str, Limits] = LIMITS) -> None:
        self.limits = limits
        self.running: set[BaseProcess] = set()
        self._free = anyio.Semaphore(MAX_RUNNING)
        self._folder = tempfile.TemporaryDirectory(prefix="derivatrix-playground-")
        self.folder = self._folder.name
        self._spawned = multiprocessing.get_context("spawn")
        self._forked: BaseContext = self._spawned
        if "forkserver" in multiprocessing.get_all_start_methods():
            self._forked = multiprocessing.get_context("forkserver")
            self._forked.set_forkserver_preload([_PRELOADED])

    def start(self) -> None:
        """Start the process whose forks answer, without threads of BLAS: a fork has only the thread
        that forked, and would wait for the others without end."""
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
        self, name: str, data: Any, is_disconnected: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[bytes]:
        """Yield the answers to a request, each a line of JSON; an error is the last one.

        is_disconnected: tells whether the client has gone.
        """
        limits = self.limits[name]
        async with self._free:
            # A cancellation here would lose the process that has just been started.
            with anyio.CancelScope(shield=True):
                process, answers, place = await to_thread.run_sync(
                    self._started, name, data, limits
                )
            deadline = time.monotonic() + limits.seconds
            try:
                while time.monotonic() < deadline:
                    if await to_thread.run_sync(answers.poll, POLL_SECONDS):
                        try:
                            line = answers.recv_bytes(MAX_ANSWER_BYTES)
                        except (EOFError, OSError):
                            yield await to_thread.run_sync(_exit_error, process, limits)
                            return
                        yield line + b"\n"
                        if line.startswith((b'{"done"', b'{"error"')):
                            return
                    elif await is_disconnected():
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
            with suppress(OSError):  # the process has no session yet, or has just ended
                os.killpg(process.pid, signal.SIGKILL)
        with suppress(OSError):
            process.kill()


def _exit_error(process: BaseProcess, limits: Limits) -> bytes:
    """Describe how a process ended that sent no last answer."""
    process.join(5)
    code = process.exitcode or 0
    if code < 0:
        outcome = f"its process was ended by {signal.Signals(-code).name}"
        return _error("Killed", f"{outcome}; it may have {limits.memory:g} GiB of memory")
    outcome = f"its process ended with status {code}"
    return _error("Crash", f"{outcome}: a fault of derivatrix's own; the terminal shows where")


def _error(kind: str, text: str) -> bytes:
    return json.dumps({"error": kind, "text": text}).encode() + b"\n"
