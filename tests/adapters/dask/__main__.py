"""What a Jacobian of a classifier's samples takes through `map_samples`, beside one call for all
samples and dask's own `apply_gufunc(vectorize=True)`: `python -m tests.adapters.dask`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np

import derivatrix as dx
from derivatrix.dask import map_samples

SAMPLES, CHUNK = 20_000, 1_000


def main() -> None:
    n, c = dx.dims("n c")
    x, W = dx.vector("x", n), dx.matrix("W", c, n)
    together = dx.compile(dx.function("together", [x, W], dx.softmax(W @ x), batch=[x]))
    single = dx.compile(dx.function("single", [x, W], dx.softmax(W @ x)))
    W_value = np.random.default_rng(0).normal(size=(10, 16))
    samples = np.random.default_rng(1).normal(size=(SAMPLES, 16))
    chunks = da.from_array(samples, (CHUNK, -1))
    gufunc = da.apply_gufunc(
        lambda x, W: single.jacobian(x, W).x,
        "(n),(c,n)->(c,n)",
        chunks,
        W_value,
        vectorize=True,
        output_dtypes=float,
    )
    ways: dict[str, Callable[[], Any]] = {
        "one call for all samples": lambda: together.jacobian(samples, W_value).x,
        "map_samples": lambda: map_samples(together.jacobian, chunks, W_value).x.compute(),
        "apply_gufunc(vectorize=True)": gufunc.compute,
    }
    with dask.config.set(scheduler="threads", num_workers=2):
        for name, way in ways.items():
            print(f"{name}: {min(timed(way) for _ in range(4)):.3f} s")


def timed(way: Callable[[], Any]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
