"""A worker process; `runtime.workers` starts it.

Each line on its standard input is a request in JSON: the "module:function" to call, and an
argument. The result of the function, or the error it raises, is written as a line of JSON. The
process ends with its standard input, thus with the process that started it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any

from derivatrix.runtime.errors import DerivatrixError


def main() -> None:
    """Answer requests until the standard input ends. The functions' own output goes to the standard
    error, as the standard output is for answers."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=[requests], daemon=True).start()
    while True:
        call, argument = json.loads(requests.get())
        answers.write(json.dumps(_answer(call, argument)) + "\n")
        answers.flush()


def _receive(requests: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)  # in the midst of a request, too: nobody waits for the answer


def _answer(call: str, argument: object) -> dict[str, Any]:
    module, _, name = call.partition(":")
    try:
        return {"value": getattr(importlib.import_module(module), name)(argument)}
    except DerivatrixError as error:
        return {"error": type(error).__name__, "text": str(error)}
    except Exception as error:  # the process that asked decides what to do about it
        lines = traceback.format_exception_only(error)
        return {"error": "", "text": "".join(lines).strip(), "trace": traceback.format_exc()}
