"""Calls a second of one, two and three threads of Python: `python -m tests.benchmarks.callers`.
They are compared only with each other, as other processes may load the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

import derivatrix as dx

SECONDS = 1.0
ROUNDS = 3


def calls_per_second(call: Callable[[], object], callers: int) -> float:
    """The calls a second of all threads together."""
    counts = [0] * callers
    stop = time.perf_counter() + SECONDS

    def work(place: int) -> None:
        while time.perf_counter() < stop:
            call()
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(callers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def calls() -> dict[str, Callable[[], object]]:
    n, c = dx.dims("n c")
    x, W, b = dx.vector("x", n), dx.matrix("W", c, n), dx.vector("b", c)
    X, Y = dx.matrix("X", n, n), dx.matrix("Y", n, n)
    model = dx.compile(dx.function("model", [x, W, b], dx.softmax(W @ x + b), batch=[x]))
    square = dx.compile(dx.function("square", [X], X @ X))
    solve = dx.compile(dx.function("solve", [X, Y], dx.solve(X, Y)))
    draw = np.random.default_rng(0).normal
    shapes = (20_000, 16), (10, 16), (10,), (20_000, 10)
    samples = [draw(size=shape) for shape in shapes]
    pair, triple = draw(size=(2, 256, 256)), draw(size=(3, 300, 300))
    return {
        "softmax(W @ x + b), 20,000 x 16 -> 10": lambda: model.vjp(*samples),
        "X @ X, n = 256": lambda: square.vjp(*pair),
        "solve(X, Y), n = 300": lambda: solve.vjp(*triple),
    }


def main() -> None:
    print("VJP, calls a second by 1, 2 and 3 threads; best of", ROUNDS)
    for name, call in calls().items():
        call()
        rounds = [[calls_per_second(call, count) for count in (1, 2, 3)] for _ in range(ROUNDS)]
        print(f"{name:40}", *(f"{max(seconds):8.0f}" for seconds in zip(*rounds, strict=True)))


if __name__ == "__main__":
    main()
