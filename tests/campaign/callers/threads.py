"""Many threads of Python on the same kernel and on different ones."""

from __future__ import annotations

import threading
import time
from random import Random

from tests.campaign.callers.calls import Call, small
from tests.campaign.callers.scene import PATIENCE, Scene

SECONDS = 2.0


def together(scene: Scene) -> None:
    """Up to 64 threads at a time, for some seconds each on one kernel, on small arguments alone,
    and on all there is. Afterwards there are no more threads than before."""
    before = threading.active_count()
    for calls in ([scene.random.choice(scene.calls)], small(scene.calls), scene.calls):
        callers(scene, calls, scene.random.choice((2, 3, 8, 64)), SECONDS)
    scene.check("afterwards")
    helpers = threading.active_count() - before
    scene.add(1, [f"{helpers} threads are left"] if helpers > 3 else [])


def callers(scene: Scene, calls: list[Call], count: int, seconds: float) -> None:
    """So many threads, each of which calls what it draws until the time is over."""
    at_once = threading.Barrier(count)
    tried: list[int] = []
    problems: list[str] = []

    def work(random: Random) -> None:
        at_once.wait()
        end, done = time.monotonic() + seconds, 0
        while not done or time.monotonic() < end:
            result = random.choice(calls).problem(out=random.random() < 0.5)
            problems.extend([result] if result else [])
            done += 1
        tried.append(done)

    threads = [
        threading.Thread(target=work, args=[Random(scene.random.random())], daemon=True)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if len(tried) < count:
        problems.append(f"{count - len(tried)} have not come to their end")
    scene.add(sum(tried), problems[:5], f"{count} threads, {len(calls)} kinds of calls")
