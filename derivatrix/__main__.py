"""`derivatrix`, and `python -m derivatrix`: the command line, in a child process.

It runs the user's files, which may end their process at any time with any status. The parent checks
that the command came to its end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from derivatrix.__main__ import work
work(*map(int, (sys.argv.pop(1), sys.argv.pop(1))))
"""


def main() -> None:
    """Run the command line, and exit with its status."""
    success = 20 + os.getpid() % 100  # a status that a user's file hardly exits with by chance
    path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
    command = [sys.executable, "-c", _START, path, str(os.getpid()), str(success), *sys.argv[1:]]
    process = subprocess.Popen(command)
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    forwarded = [n for n in numbers if n is not None and signal.getsignal(n) != signal.SIG_IGN]
    for number in forwarded:
        signal.signal(number, lambda number, _: process.send_signal(number))
    status = process.wait()
    if -status in forwarded:
        signal.signal(-status, signal.SIG_DFL)
        signal.raise_signal(-status)
    if status not in (success, 1, 2, 128 + signal.SIGINT):
        reason = f"status {status}" if status >= 0 else signal.Signals(-status).name
        print(
            f"derivatrix: its process ended with {reason} before the command was done: a file that "
            "it ran ended it, or the system did",
            file=sys.stderr,
        )
        status = status if status > 0 else 1
    sys.exit(0 if status == success else status)


def work(parent: int, success: int) -> None:
    """Run the command line, which ends with the process `parent`, and exit with status `success`
    in place of 0."""
    from derivatrix.compiler.cli import main

    if sys.platform != "win32":
        threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    try:
        main(prog_name="derivatrix")
    except SystemExit as end:
        sys.exit(success if end.code in (0, None) else end.code)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
