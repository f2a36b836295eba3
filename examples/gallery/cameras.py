"""
Bundle adjustment: cameras and points at once
=============================================

Six cameras have taken pictures of a spiral of points. From where the points appear in the
pictures, find the points and the cameras.

**Why a closed form helps.** Each measurement depends on one camera and one point, so the Jacobian
is nearly all zeros. Its closed form is a product of small arrays and deltas, which say where the
entries are: ``jacobian_operator`` gives them as sparse matrices, with no colouring of graphs and
no lists of indices by hand.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import hstack

import derivatrix as dx

c, p = dx.dims("c p")
v, t, X = dx.matrix("v", c, 3), dx.matrix("t", c, 3), dx.matrix("X", p, 3)
seen = dx.tensor("seen", c, p, 2)
cross = dx.constant(np.cross(np.eye(3)[:, None], np.eye(3)))  # Levi-Civita's symbol
# turned by v as Rodrigues and Gibbs write it: x + 2 (v × x + v × (v × x)) / (1 + |v|²)
once = dx.einsum("ijk,cj,pk->cpi", cross, v, X)
twice = dx.einsum("ijk,cj,cpk->cpi", cross, v, once)
turned = X + 2 * (once + twice) / (1 + dx.sum(v**2, axis=1))[:, None, None]
Y = turned + t[:, None, :]
pictures = Y[:, :, :2] / Y[:, :, 2:]
bundle = dx.function("bundle", [v, t, X, seen], pictures - seen, wrt=[v, t, X])

# %%
# The cameras look at the spiral from six sides; positions in the pictures are off by 0.002.

rng = np.random.default_rng(0)
turns = np.linspace(0, 4 * np.pi, 60)
points = np.stack([np.cos(turns), np.sin(turns), turns / 6 - 1], axis=1)
rotations = np.stack([np.linspace(-0.4, 0.4, 6), 0.2 * np.cos(np.arange(6)), np.zeros(6)], axis=1)
shifts = np.tile([0.0, 0.0, 5.0], (6, 1))
module = dx.compile(bundle)
measured = module.value(rotations, shifts, points, np.zeros((6, 60, 2)))
measured += 0.002 * rng.normal(size=measured.shape)


def parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return x[:18].reshape(6, 3), x[18:36].reshape(6, 3), x[36:].reshape(60, 3), measured


def jacobian(x: np.ndarray) -> object:
    return hstack([block.tosparse() for block in module.jacobian_operator(*parts(x))]).tocsr()


right = np.concatenate([rotations.ravel(), shifts.ravel(), points.ravel()])
start = right + 0.1 * rng.normal(size=right.size)
found = least_squares(lambda x: module.value(*parts(x)).ravel(), start, jac=jacobian, x_scale="jac")
error = np.sqrt(np.mean(found.fun**2))
J = found.jac
print(f"error {error:.4f} after {found.nfev} steps; {J.nnz} of {np.prod(J.shape)} entries not zero")
assert error < 0.002 and J.nnz == 6 * 60 * 16  # of (2, 9), two are zero

# %%
# The adjusted points, turned and scaled onto the true ones; and where the Jacobian is not zero.

adjusted = parts(found.x)[2]
centred, true = adjusted - adjusted.mean(0), points - points.mean(0)
U, s, W = np.linalg.svd(centred.T @ true)
fitted = centred @ (U @ W) * s.sum() / np.sum(centred**2)
assert np.abs(fitted - true).max() < 0.05

figure = plt.figure(figsize=(9, 4))
space = figure.add_subplot(1, 2, 1, projection="3d")
space.plot(*true.T, color="gray", label="truth")
space.plot(*(parts(start)[2] - parts(start)[2].mean(0)).T, "x", markersize=4, label="start")
space.plot(*fitted.T, "o", markersize=4, label="adjusted")
space.legend()
matrix = figure.add_subplot(1, 2, 2)
matrix.spy(J, markersize=0.5, aspect="auto")
matrix.set(title=f"the Jacobian, {J.nnz / np.prod(J.shape):.1%} of it", xlabel="cameras | points")
figure.tight_layout()
