"""Calls that are in the midst of their work when Ctrl-C comes or the program ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.campaign.callers.scene import PATIENCE, Scene

INTERRUPTIONS = 150
SOON = 10.0
"""Seconds within which KeyboardInterrupt is to come; kernels take milliseconds."""


def interrupted(scene: Scene) -> None:
    """Ctrl-C during calls of the main thread, alone and while other threads call. It comes as
    KeyboardInterrupt; this thread and others go on calling."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    for count in (0, 1, 4):
        with scene.busy(count):
            for number in range(INTERRUPTIONS):
                _interrupt(scene, f"interruption {number} beside {count} threads")
                if scene.outcome.failures:
                    return
            scene.check_in_thread(f"after interruptions beside {count} threads")
        scene.check("after interruptions")


def _interrupt(scene: Scene, where: str) -> None:
    calls = [scene.random.choice(scene.calls) for _ in range(50)]
    delay = scene.random.expovariate(1 / 0.002)
    problems: list[str] = []
    sent: list[float] = []

    def send() -> None:
        time.sleep(delay)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    try:
        sender.start()
        while not sent or time.monotonic() < sent[0] + SOON:
            for call in calls:
                with suppress(ArithmeticError, ValueError):
                    call.results()
        problems.append(f"no KeyboardInterrupt after {SOON} s")
    except KeyboardInterrupt:
        late = time.monotonic() - sent[0]
        problems += [f"KeyboardInterrupt came after {late:.1f} s"] if late > SOON else []
    sender.join(PATIENCE)
    result = scene.random.choice(scene.calls).problem()
    scene.add(2, [*problems, *([result] if result else [])], where)


def exiting(scene: Scene) -> None:
    """Leave threads behind that are in kernels: the program is to end, with status 0. Some are
    daemons, which end with it; it waits for the others."""
    threads = scene.random.choice((1, 3, 16))
    if scene.random.random() < 0.3:
        executor = ThreadPoolExecutor(threads)
        for _ in range(50):
            executor.submit(scene.random.choice(scene.calls).problem)
    else:
        for _ in range(threads):
            threading.Thread(target=_without_end, args=[scene], daemon=True).start()
    time.sleep(scene.random.expovariate(1 / 0.05))
    scene.add(1, [])


def _without_end(scene: Scene) -> None:
    while True:
        for call in scene.calls:
            with suppress(ArithmeticError, ValueError):
                call.results()
