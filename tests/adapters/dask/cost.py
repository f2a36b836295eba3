"""Gradients of logsumexp(W @ x) at 2,000 samples x of n numbers in 10 chunks, on two threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from scipy.special import softmax

import derivatrix as dx
from derivatrix.dask import map_samples
from tests.adapters.cost import Ways

SAMPLES, CHUNK, CLASSES = 2_000, 200, 10


def calls(n: int, random: np.random.Generator) -> dict[str, Ways]:
    """Return the calls to compare, by group."""
    size, classes = dx.dims("size classes")
    x, W = dx.vector("x", size), dx.matrix("W", classes, size)
    loss = dx.logsumexp(W @ x)
    together = dx.compile(dx.function("together", [x, W], loss, wrt=[x], batch=[x]))
    single = dx.compile(dx.function("single", [x, W], loss, wrt=[x]))
    samples, weights = random.normal(size=(SAMPLES, n)), random.normal(size=(CLASSES, n))
    chunks = da.from_array(samples, (CHUNK, -1))

    def by_hand(block: np.ndarray) -> np.ndarray:
        return np.asarray(softmax(block @ weights.T, axis=1) @ weights)

    gufunc = da.apply_gufunc(
        lambda x: single.gradient(x, weights),
        "(n)->(n)",
        chunks,
        vectorize=True,
        output_dtypes=float,
    )
    lazy = {
        "map_blocks of NumPy by hand": chunks.map_blocks(by_hand, dtype=float),
        "derivatrix.dask": map_samples(together.gradient, chunks, weights),
        "apply_gufunc(vectorize=True)": gufunc,
    }

    def computed(array: Any) -> Callable[[], Any]:
        def call() -> Any:
            with dask.config.set(scheduler="threads", num_workers=2):
                return array.compute()

        return call

    ways: Ways = {name: computed(array) for name, array in lazy.items()}
    alone: Ways = {
        "NumPy by hand, one block": lambda: by_hand(samples),
        "module alone": lambda: together.gradient(samples, weights),
    }
    return {"gradients": {**ways, **alone}}
