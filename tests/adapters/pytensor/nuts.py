"""A Gaussian process whose parameters NUTS samples: its density by derivatrix, and by PyTensor.

`python -m tests.adapters.pytensor.nuts` prints the times."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import derivatrix as dx
from derivatrix.pytensor import operator

n = dx.dims("n")
scale, rate, noise = dx.scalar("scale"), dx.scalar("rate"), dx.scalar("noise")
D, y = dx.matrix("D", n, n, "symmetric"), dx.vector("y", n)


def likelihood() -> dx.Function:
    """The logarithm of the density of y, but for a constant, where the covariance of two points
    at a squared distance d is scale exp(-rate d), and noise more of a point with itself."""
    K = scale * dx.exp(-rate * D) + noise * dx.eye(n)
    value = -(dx.sum(dx.log(dx.diag(dx.cholesky(K)))) + y @ dx.solve(K, y) / 2)
    return dx.function("process", [scale, rate, noise, D, y], value, wrt=["scale", "rate", "noise"])


def data(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances of points, and values there."""
    random = np.random.default_rng(0)
    points = np.sort(random.uniform(0, 8, count))
    distances = (points[:, None] - points) ** 2
    return distances, np.sin(points) + random.normal(size=count) / 10


def model(count: int, own: bool) -> Any:
    """The PyMC model; own: with PyTensor's likelihood."""
    distances, values = data(count)
    with pm.Model() as pymc_model:
        parameters = [pm.LogNormal(name, 0.0, 1.0) for name in ("scale", "rate", "noise")]
        if own:
            s, r, t = parameters
            covariance = s * pt.exp(-r * distances) + t * pt.eye(count)
            pm.MvNormal("values", np.zeros(count), cov=covariance, observed=values)
        else:
            pm.Potential("values", operator(likelihood())(*parameters, distances, values))
    return pymc_model


def sampled(pymc_model: Any, draws: int) -> tuple[float, Any]:
    """The seconds that sampling takes, compilation included, and the draws."""
    start = time.perf_counter()
    with pymc_model, pytensor.config.change_flags(mode="NUMBA"):
        result = pm.sample(draws, tune=draws, chains=1, random_seed=1, progressbar=False)
    return time.perf_counter() - start, result.posterior


def density(pymc_model: Any, mode: str = "NUMBA") -> Any:
    """The function of the logarithms of the parameters to that of the density, and its gradient,
    compiled in one of PyTensor's modes."""
    with pytensor.config.change_flags(mode=mode):
        function = pymc_model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    return function


def evaluation(pymc_model: Any) -> float:
    """Microseconds that the density and its gradient take."""
    function, point = density(pymc_model), np.zeros(3)
    function(point)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        function(point)
        times.append(time.perf_counter() - start)
    return 1e6 * float(np.median(times))


if __name__ == "__main__":
    for count in (20, 100):
        for own in (False, True):
            pymc_model = model(count, own)
            cost = evaluation(pymc_model)
            seconds, posterior = sampled(pymc_model, 500)
            means = ", ".join(f"{name} {float(posterior[name].mean()):.3f}" for name in posterior)
            who = "PyTensor" if own else "derivatrix"
            print(f"n = {count}: {who} {cost:.0f} us a gradient, {seconds:.1f} s, means {means}")
