"""
A Gaussian process that finds what matters
==========================================

A Gaussian process with a length for each input (automatic relevance determination, ARD): long where
the input does not matter. With six inputs, two of which matter, the marginal likelihood has eight
parameters, too many for a grid: the gradient finds them.

**Why a closed form helps.** All lengths are one vector, so the gradient by all of them is one
formula, and one Cholesky factor serves the value and the eight derivatives.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import derivatrix as dx
from derivatrix.scipy import objective

n, d = dx.dims("n d")
scale, noise = dx.scalar("a", "positive"), dx.scalar("s", "positive")
lengths = dx.vector("l", d, "positive")
X, y = dx.matrix("X", n, d), dx.vector("y", n)
Z = X / lengths
squares = dx.sum(Z**2, axis=1)
distances = squares[:, None] + squares - 2 * Z @ Z.T
K = scale * dx.exp(-distances / 2) + noise * dx.eye(n)
fit = dx.logdet(K) + y @ dx.solve(K, y)
inputs = [scale, lengths, noise, X, y]
wanted = ["value_and_gradient"]
evidence = dx.function("evidence", inputs, fit, wrt=["a", "l", "s"], kinds=wanted)
print("by the noise:", evidence.formula("gradient", "s"))

# %%
# A hundred measurements of a function of the first two of six inputs.

rng = np.random.default_rng(0)
places = rng.uniform(-2, 2, size=(100, 6))


def truth(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.sin(2 * first) + 0.5 * second**2


values = truth(*places.T[:2]) + 0.1 * rng.normal(size=100)
mean = values.mean()
problem = objective(evidence, X=places, y=values - mean)
start = problem.pack({"a": 1.0, "l": np.full(6, 2.0), "s": 0.1})
found = minimize(problem.fun, start, jac=problem.jac, method="L-BFGS-B", bounds=[(-7, 7)] * 8)
best = problem.unpack(found.x)
print("lengths", " ".join(f"{length:.1f}" for length in best.l), f"noise {best.s**0.5:.2f}")
assert best.l[:2].max() < 4 < best.l[2:].min() / 2 and 0.07 < best.s**0.5 < 0.13

# %%
# Of what matters, the surface that the process has learnt.


def covariance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    apart = (first[:, None] - second) / best.l
    return best.a * np.exp(-np.sum(apart**2, axis=2) / 2)


weights = np.linalg.solve(covariance(places, places) + best.s * np.eye(100), values - mean)
axis = np.linspace(-2, 2, 50)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
asked = np.concatenate([grid, np.zeros((2500, 4))], axis=1)
learnt = (mean + covariance(asked, places) @ weights).reshape(50, 50)
error = np.sqrt(np.mean((learnt.ravel() - truth(*grid.T)) ** 2))
print(f"error {error:.2f} on the grid, of values with the deviation {values.std():.2f}")
assert error < 0.2 * values.std()

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(1, 1.2))
left.bar(range(1, 7), 1 / best.l)
left.set(xlabel="input", ylabel="1 / length", title="what matters")
picture = right.contourf(axis, axis, learnt, 20)
right.plot(*places.T[:2], "k.", markersize=3)
right.set(xlabel="input 1", ylabel="input 2", title="the mean of the process")
figure.colorbar(picture)
figure.tight_layout()
