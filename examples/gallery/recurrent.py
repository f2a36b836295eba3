"""
A recurrent network that remembers
==================================

A network of ten units reads a series of random numbers, and says at each time what the number was
three times before. It has to keep three numbers in its state. The network is a loop over time,
`dx.scan`; its backward pass is the adjoint loop.

**Why a closed form helps.** The backward pass has a formula, which shows why gradients vanish:
the adjoint is multiplied by ``Wᵀ`` and by slopes below 1 at each step back.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import derivatrix as dx
from derivatrix.scipy import objective

T, n = dx.dims("T n")
W, u, v = dx.matrix("W", n, n), dx.vector("u", n), dx.vector("v", n)
x, target = dx.vector("x", T), dx.vector("target", T)


def step(h: dx.Array, x: dx.Array) -> tuple[dx.Array, dx.Array]:
    h = dx.tanh(W @ h + u * x)
    return h, h


_, states = dx.scan(step, dx.zeros(n), x)
network = dx.function("network", [W, u, v, x], states @ v, wrt=["x"])
inputs = [W, u, v, x, target]
loss = dx.function("loss", inputs, dx.mean((states @ v - target) ** 2), wrt=[W, u, v])
print(loss.derivatives.equation_lines("gradient")[0])

# %%
# One long series for training, and another one for the check.

generator = np.random.default_rng(0)
series, fresh = generator.uniform(-0.5, 0.5, (2, 300))
delayed, fresh_delayed = (np.concatenate([np.zeros(3), each[:-3]]) for each in (series, fresh))
problem = objective(loss, x=series, target=delayed)
units = generator.normal(size=(3, 10)) / 3
weights = np.linalg.qr(generator.normal(size=(10, 10)))[0] * 0.9
start = problem.pack({"W": weights, "u": units[0], "v": units[1]})
result = minimize(problem.fun, start, jac=problem.jac, method="L-BFGS-B", options={"maxiter": 400})
trained = problem.unpack(result.x)

module = dx.compile(network)
said = module.value(trained.W, trained.u, trained.v, fresh)
error = np.sqrt(np.mean((said - fresh_delayed)[10:] ** 2))
print(f"error {error:.3f}, of numbers with the deviation {fresh.std():.3f}")
assert error < 0.1 * fresh.std()

# %%
# The Jacobian of the last answers by the series: each depends on what came three times before.

jacobian = module.jacobian(trained.W, trained.u, trained.v, fresh)[-20:, -20:]
figure, (above, below) = plt.subplots(1, 2, figsize=(8, 3.2), width_ratios=(2, 1))
above.plot(fresh_delayed[-60:], color="gray", label="three times before")
above.plot(said[-60:], "--", label="the network")
above.set(xlabel="time", title="A series, remembered")
above.legend()
below.imshow(jacobian, cmap="RdBu", vmin=-1, vmax=1)
below.set(xlabel="number", ylabel="answer", title="Jacobian")
figure.tight_layout()
