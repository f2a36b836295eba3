"""
Optimal transport
=================

Bakeries bring bread to cafés: what is the cheapest plan? With a little entropy in the cost the
plan is smooth, and found by a convex function of one price for each café.

**Why a closed form helps.** The gradient is "what a café asks for minus what it gets", which one
sees in the formula. The Hessian is a diagonal minus a product of the plan with itself, so that
Newton's method takes some fifty steps here, where Sinkhorn's iteration takes some five hundred.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment, minimize

import derivatrix as dx
from derivatrix.scipy import objective

n, m = dx.dims("n m")
C, g = dx.matrix("C", n, m), dx.vector("g", m)  # costs, prices
a, b = dx.vector("a", n, "simplex"), dx.vector("b", m, "simplex")  # there is, is asked for
e = dx.scalar("e", "positive")
dual = dx.function(
    "dual", [g, C, a, b, e], e * (a @ dx.logsumexp((g - C) / e, axis=1)) - b @ g, wrt=[g]
)
print("gradient:", dual.formula("gradient"))
print("Hessian times a vector:", dual.formula("hvp"))

# %%
# Forty of each. The prices are free up to a constant, which a trust region does not mind.

rng = np.random.default_rng(3)
bakeries = rng.normal(size=(40, 2)) * [0.5, 1.0]
angle = rng.uniform(0, 2 * np.pi, 40)
cafes = np.stack([3 + np.cos(angle), np.sin(angle)], axis=1) + 0.1 * rng.normal(size=(40, 2))
costs = ((bakeries[:, None] - cafes) ** 2).sum(axis=2)
each = np.full(40, 1 / 40)
problem = objective(dual, C=costs, a=each, b=each, e=0.05)
start = problem.pack({"g": np.zeros(40)})
newton = {"method": "trust-ncg", "jac": problem.jac, "hessp": problem.hessp}
found = minimize(problem.fun, start, **newton, options={"gtol": 1e-8})
scores = (problem.unpack(found.x).g - costs) / 0.05
plan = np.exp(scores - scores.max(axis=1, keepdims=True))
plan *= each[:, None] / plan.sum(axis=1, keepdims=True)
print(f"{found.nit} steps; off by {np.abs(plan.sum(axis=0) - each).max():.0e}")
assert np.allclose(plan.sum(axis=0), each, atol=1e-7)

# %%
# Compared with the best assignment of one to one, which entropy makes a little dearer.

best = costs[linear_sum_assignment(costs)].mean()
print(f"cost {np.sum(plan * costs):.3f}, of the best assignment {best:.3f}")
assert best <= np.sum(plan * costs) < 1.03 * best

figure, axes = plt.subplots(figsize=(7, 4))
for i, j in np.argwhere(plan > 0.05 / 40):
    ends = np.stack([bakeries[i], cafes[j]])
    axes.plot(*ends.T, color="gray", alpha=float(min(1.0, 40 * plan[i, j])), linewidth=1)
axes.plot(*bakeries.T, "o", label="bakeries")
axes.plot(*cafes.T, "s", label="cafés")
axes.set(title="who brings bread to whom", aspect="equal")
axes.legend()
