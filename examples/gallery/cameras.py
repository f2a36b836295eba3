"""
Bundle adjustment: cameras and points at once
=============================================

Twelve cameras have taken pictures of a spiral of points; each sees some of them. From where the
points appear in the pictures, find the points and the cameras.

**Why a closed form helps.** Each measurement depends on one camera and one point, so the Jacobian
is nearly all zeros. The residual of one measurement is declared; the kernel computes the small
blocks of all of them at once, and SciPy's block matrices put them where they belong.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import bsr_array, hstack

import derivatrix as dx

v, t, X, seen = dx.vector("v", 3), dx.vector("t", 3), dx.vector("X", 3), dx.vector("seen", 2)
W = dx.skew(v)  # turned by v as Rodrigues and Gibbs write it
Y = X + 2 * (W @ X + W @ W @ X) / (1 + v @ v) + t
inputs, error = [v, t, X, seen], Y[:2] / Y[2] - seen
bundle = dx.function("bundle", inputs, error, wrt=[v, t, X], batch=inputs)
module = dx.compile(bundle, kinds=["value", "jacobian"])

# %%
# The cameras look at the spiral from twelve sides. Each sees two thirds of the points; positions in
# the pictures are off by 0.002.

rng = np.random.default_rng(0)
turns = np.linspace(0, 4 * np.pi, 90)
points = np.stack([np.cos(turns), np.sin(turns), turns / 6 - 1], axis=1)
sides = np.linspace(-0.5, 0.5, 12)
rotations = np.stack([sides, 0.2 * np.cos(12 * sides), np.zeros(12)], axis=1)
shifts = np.tile([0.0, 0.0, 5.0], (12, 1))
camera, point = np.nonzero(rng.uniform(size=(12, 90)) < 2 / 3)
count = camera.size
pictures = module.value(rotations[camera], shifts[camera], points[point], np.zeros((count, 2)))
pictures += 0.002 * rng.normal(size=pictures.shape)


def parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
    v, t, X = x[:36].reshape(12, 3), x[36:72].reshape(12, 3), x[72:].reshape(90, 3)
    return v[camera], t[camera], X[point], pictures


def jacobian(x: np.ndarray) -> object:
    blocks, rows = module.jacobian(*parts(x)), np.arange(count + 1)
    places = (blocks.v, camera, 12), (blocks.t, camera, 12), (blocks.X, point, 90)
    shaped = [bsr_array((b, at, rows), shape=(2 * count, 3 * n)) for b, at, n in places]
    return hstack(shaped).tocsr()


right = np.concatenate([rotations.ravel(), shifts.ravel(), points.ravel()])
start = right + 0.1 * rng.normal(size=right.size)
found = least_squares(lambda x: module.value(*parts(x)).ravel(), start, jac=jacobian, x_scale="jac")
J, deviation = found.jac, np.sqrt(np.mean(found.fun**2))
print(f"error {deviation:.4f} after {found.nfev} steps; {J.nnz} of {np.prod(J.shape)} entries kept")
assert deviation < 0.002

# %%
# The adjusted points, turned and scaled onto the true ones; and where the Jacobian is not zero.

adjusted = found.x[72:].reshape(90, 3)
centred, true = adjusted - adjusted.mean(0), points - points.mean(0)
U, s, V = np.linalg.svd(centred.T @ true)
fitted = centred @ (U @ V) * s.sum() / np.sum(centred**2)
assert np.abs(fitted - true).max() < 0.05

figure = plt.figure(figsize=(9, 4))
space = figure.add_subplot(1, 2, 1, projection="3d")
space.plot(*true.T, color="gray", label="truth")
space.plot(*(start[72:].reshape(90, 3) - points.mean(0)).T, "x", markersize=4, label="start")
space.plot(*fitted.T, "o", markersize=4, label="adjusted")
space.legend()
matrix = figure.add_subplot(1, 2, 2)
matrix.spy(J, markersize=0.5, aspect="auto")
matrix.set(title=f"the Jacobian, {J.nnz / np.prod(J.shape):.1%} of it", xlabel="cameras | points")
figure.tight_layout()
