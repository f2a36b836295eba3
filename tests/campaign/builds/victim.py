"""A command of derivatrix that meets an accident: `python -m tests.campaign.builds.victim ACCIDENT
STEP EVENTS FOLDER COMMAND...`, at so many changes of files in a folder.

Accidents: "kill" ends the process at once, "full" lets that change and all that follow fail as on a
full disk, "limit" lets files have at most so many bytes, "none" leaves it alone.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from typing import Any

from derivatrix.compiler.cli import main

MOVES = {"os.rename", "os.remove"}
CHANGES = MOVES | {"os.mkdir", "open"}
"""Python's names of what it does to files."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
TAKING = {"os.mkdir", "open"}
"""Calls that take space: on a full disk, files can still be moved and removed."""


def suffer(accident: str, step: int, events: set[str], folder: str) -> None:
    """Have the accident at that step from now on."""
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in events or not str(arguments[0]).startswith(folder):
            return
        if event == "open" and not int(arguments[2]) & WRITING:
            return
        seen += 1
        if accident == "kill" and seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
        if accident == "full" and seen >= step and event in TAKING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))

    if accident == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (step, resource.RLIM_INFINITY))
    elif accident != "none":
        sys.addaudithook(watch)


if __name__ == "__main__":
    kind, number, which, where, *command = sys.argv[1:]
    suffer(kind, int(number), MOVES if which == "moves" else CHANGES, where)
    main(command)
