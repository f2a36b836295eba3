"""
A portfolio, and what it hangs on
=================================

Markowitz's portfolio has the best balance of return and risk among those that sum to one. Its
weakness is known: it is as uncertain as the expected returns that it is given. How uncertain?

**Why a closed form helps.** The portfolio is the solution of an equation, the conditions of
Karush, Kuhn and Tucker. Its Jacobian by the expected returns is an inverse that is already there,
not a run of the optimiser for each asset. Here the bordered system is eliminated by hand; with
``dx.root`` it could be given as it is (see :doc:`/how-to/equations`).
"""

import matplotlib.pyplot as plt
import numpy as np

import derivatrix as dx

n = dx.dims("n")
mu, C = dx.vector("mu", n), dx.matrix("C", n, n, "spd")
aversion = dx.scalar("g", "positive")
ones = dx.ones(n)
free, least = dx.solve(C, mu), dx.solve(C, ones)  # without the budget; of the least risk
shares = free / aversion + least * (1 - ones @ free / aversion) / (ones @ least)
portfolio = dx.function("portfolio", [mu, C, aversion], shares, wrt=[mu])
print(portfolio.formula("jacobian"))

# %%
# Six assets, with returns and risks in per cent a year.

NAMES = ("bonds", "property", "utilities", "industry", "technology", "gold")
returns = np.array([2.0, 4.0, 4.5, 6.5, 8.5, 3.0])
risks = np.array([4.0, 11.0, 12.0, 18.0, 24.0, 15.0])
correlation = np.full((6, 6), 0.35) + 0.65 * np.eye(6)
correlation[0, 1:] = correlation[1:, 0] = 0.1
correlation[5, :5] = correlation[:5, 5] = 0.05
covariance = correlation * np.outer(risks, risks)

module = dx.compile(portfolio)
chosen = module.value(returns, covariance, 0.04)
J = module.jacobian(returns, covariance, 0.04)  # J[i, j]: share of i, for a per cent more of j
print(dict(zip(NAMES, chosen.round(2).tolist(), strict=True)))
assert np.isclose(chosen.sum(), 1) and np.allclose(J.sum(axis=0), 0) and np.allclose(J, J.T)
moved = module.value(returns + 0.1 * np.eye(6)[4], covariance, 0.04)
assert np.allclose(moved - chosen, 0.1 * J[:, 4])  # linear in the returns, so no "about"

# %%
# The frontier; and how the shares answer to one per cent more of expected return.

aversions = np.geomspace(0.02, 2, 60)
frontier = np.array([module.value(returns, covariance, g) for g in aversions])
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
left.plot(np.sqrt(np.einsum("ki,ij,kj->k", frontier, covariance, frontier)), frontier @ returns)
left.plot(risks, returns, "k.")
for name, risk, gain in zip(NAMES, risks, returns, strict=True):
    left.annotate(name, (risk, gain), (4, 4), textcoords="offset points")
left.set(title="the frontier", xlabel="risk, % a year", ylabel="return, % a year")
picture = right.imshow(100 * J, cmap="RdBu_r", vmin=-30, vmax=30)
right.set_xticks(range(6), NAMES, rotation=40, ha="right")
right.set_yticks(range(6), NAMES)
right.set(title="change of a share, in points, for 1 % more return of")
figure.colorbar(picture)
figure.tight_layout()
