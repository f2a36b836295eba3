"""
Where to push: control design by the Riccati equation
=====================================================

The wind shakes a tower of nine storeys, more the higher. Motors between the storeys may push
against it, and share a budget of power. Which motor gets how much?

**Why a closed form helps.** The cost of the best controller is ``tr(W P)``, where P solves a
Riccati equation. Its differential is a Lyapunov equation in the closed loop, so the gradient by
all shares is one such solve; a solver of Riccati equations has no derivatives that could be
traced.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import expm, solve_continuous_are
from scipy.optimize import minimize

import derivatrix as dx
from derivatrix.scipy import objective

n, m = dx.dims("n m")
A, B = dx.matrix("A", n, n), dx.matrix("B", n, m)
Q, W = dx.matrix("Q", n, n, "spd"), dx.matrix("W", n, n)
p = dx.vector("p", m, "simplex")  # shares of the power: positive, of sum one
P = dx.solve_continuous_are(A, B * dx.sqrt(p), Q, dx.eye(m))
cost = dx.function("control", [p, A, B, Q, W], dx.trace(W @ P), wrt=[p])
print(cost.formula("gradient"))

# %%
# Positions and speeds of the storeys are the 18 states. Motor i pushes storey i away from the one
# below.

below = np.eye(9) - np.eye(9, k=-1)
stiffness = below.T @ below
dynamics = np.block([[np.zeros((9, 9)), np.eye(9)], [-stiffness, -0.02 * stiffness]])
motors = 0.3 * np.vstack([np.zeros((9, 9)), below.T])
wind = np.diag(np.append(np.zeros(9), np.linspace(0, 1, 9) ** 2))
problem = objective(cost, A=dynamics, B=motors, Q=np.eye(18), W=wind)
equal = problem.pack({"p": np.full(9, 1 / 9)})
found = minimize(problem.fun, equal, jac=problem.jac, method="BFGS")
shares = problem.unpack(found.x).p
print("shares:", shares.round(3))
print(f"cost {problem.fun(equal):.2f} with equal shares, {found.fun:.2f} with these")
assert found.fun < 0.9 * problem.fun(equal) and np.abs(problem.jac(found.x)).max() < 1e-3


# %%
# A gust at the top dies away faster.


def response(power: np.ndarray, times: np.ndarray) -> np.ndarray:
    """How far the top is from rest, after a gust."""
    gains = motors * np.sqrt(power)
    solution = solve_continuous_are(dynamics, gains, np.eye(18), np.eye(9))
    closed = dynamics - gains @ gains.T @ solution
    return np.array([(expm(closed * time) @ np.eye(18)[17])[8] for time in times])


times = np.linspace(0, 60, 200)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
left.barh(range(1, 10), shares)
left.axvline(1 / 9, color="gray", linestyle="--")
left.set(title="shares of the power", ylabel="storey")
right.plot(times, response(np.full(9, 1 / 9), times), "--", color="gray", label="equal shares")
right.plot(times, response(shares, times), label="found")
right.set(title="the top after a gust", xlabel="time", ylabel="distance from rest")
right.legend()
figure.tight_layout()
