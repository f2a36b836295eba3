"""The process of one request, its limits and its answers."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from derivatrix.runtime.errors import DerivatrixError

GIBIBYTE = 2**30


@dataclass(frozen=True)
class Limits:
    """The limits of a request. memory: in GiB; compiles: True if it runs generated code, for which
    its process is a new interpreter and not a fork."""

    seconds: float
    memory: float
    compiles: bool = False


LIMITS = {
    "derive": Limits(20, 1),
    "structure": Limits(10, 1),
    "module": Limits(30, 1),
    "verify": Limits(300, 4, compiles=True),
    "measure": Limits(180, 12, compiles=True),
    "package": Limits(300, 4, compiles=True),
}
"""Limits by the name of a request. JAX alone reserves gigabytes that it does not use."""


def run(connection: Connection, name: str, data: Any, folder: str, limits: Limits) -> None:
    """Send the answers to a request, each as JSON; an error is the last one. The process writes in
    `folder`, but compiled modules beside it, where other requests find them."""
    _limit(limits)
    os.chdir(folder)
    tempfile.tempdir = folder
    places = {"DERIVATRIX_CACHE": "../cache", "NUMBA_CACHE_DIR": "../numba"}
    places |= dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), ".")
    os.environ.update({key: os.path.join(folder, place) for key, place in places.items()})
    from derivatrix.compiler.playground.requests import REQUESTS

    def send(answer: dict[str, Any]) -> None:
        connection.send_bytes(json.dumps(answer).encode())

    try:
        for answer in REQUESTS[name](data):
            send(answer)
        send({"done": True})
    except DerivatrixError as error:
        send({"error": type(error).__name__, "text": str(error)})
    except MemoryError:
        text = f"this takes more than {limits.memory:g} GiB of memory, which no request may have"
        send({"error": "MemoryError", "text": text})


def _limit(limits: Limits) -> None:
    """Set limits of the system for this process and those that it starts."""
    if sys.platform == "win32":
        return
    import resource

    os.setsid()  # so that all of them are killed together
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this one
    signal.setitimer(signal.ITIMER_REAL, limits.seconds + 1)  # should the server not end it
    memory = int(limits.memory * GIBIBYTE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (GIBIBYTE // 4, GIBIBYTE // 4))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    processor = int(limits.seconds * (os.cpu_count() or 1)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor))
