"""
An extended Kalman filter: a buoy on the radar
==============================================

A radar measures the distance and the bearing of a drifting buoy. An extended Kalman filter follows
it: at each time it linearises the measurement at the predicted place. How much the buoy drifts and
how noisy the radar is are unknown; maximum likelihood finds them.

**Why a closed form helps.** The filter needs the Jacobian of the measurement, and the likelihood
needs its gradient through the filter, so this is the derivative of a loop over derivatives. Both
are declared as they are: `dx.jacobian` inside the step of `dx.scan`.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import derivatrix as dx
from derivatrix.scipy import objective

T = dx.dims("T")
x, first, seen = dx.vector("x", 2), dx.vector("first", 2), dx.matrix("seen", T, 2)
q, r, b = (dx.scalar(name, "positive") for name in "qrb")  # variances: drift, distance, bearing

radar = dx.stack([dx.sqrt(x @ x), dx.arctan2(x[1], x[0])])
measure = dx.function("measure", [x], radar)
slope = dx.function("slope", [x], dx.jacobian(radar, x))
print("of the bearing:", dx.function("bearing", [x], slope(x)[1]).formula("value"))


def step(state: tuple[dx.Array, dx.Array], y: dx.Array) -> tuple[object, object]:
    place, P = state
    P = P + q * dx.eye(2)
    H, error = slope(place), y - measure(place)
    S = dx.assume(H @ P @ H.T + dx.diag(dx.stack([r, b])), "spd")
    gain = dx.solve(S, H @ P).T
    term = dx.logdet(S) + error @ dx.solve(S, error)
    place = place + gain @ error
    return (place, P - gain @ H @ P), (term, place)


_, (terms, places) = dx.scan(step, (first, dx.eye(2)), seen)
inputs = [q, r, b, first, seen]
deviance = dx.function("deviance", inputs, dx.sum(terms), [q, r, b], kinds=["value_and_gradient"])

# %%
# The buoy passes the radar; 200 measurements, with deviations of 0.5 km and 0.03 radians.

rng = np.random.default_rng(1)
start = np.array([12.0, 4.0])
true = start + np.cumsum(0.2 * rng.normal(size=(200, 2)), axis=0)
bearings = np.arctan2(true[:, 1], true[:, 0])
pictures = np.stack([np.hypot(*true.T), bearings], axis=1) + [0.5, 0.03] * rng.normal(size=(200, 2))

problem = objective(deviance, first=start, seen=pictures)
guess = problem.pack({"q": 1e-3, "r": 1.0, "b": 0.01})
result = minimize(problem.fun, guess, jac=problem.jac, method="BFGS")
found = problem.unpack(result.x)
print(f"distance {found.r**0.5:.2f}, bearing {found.b**0.5:.3f}, drift {found.q**0.5:.2f}")
assert np.allclose([found.r**0.5, found.b**0.5, found.q**0.5], [0.5, 0.03, 0.2], rtol=0.2)

# %%
# The filter with these variances knows the place better than the radar does.

track = dx.compile(dx.function("track", inputs, places, kinds=["value"]))
followed = track.value(found.q, found.r, found.b, start, pictures)
distance, angle = pictures.T
dots = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
errors = [np.sqrt(np.mean(np.sum((places - true) ** 2, axis=1))) for places in (dots, followed)]
print(f"error of the radar {errors[0]:.2f} km, of the filter {errors[1]:.2f} km")
assert errors[1] < 0.7 * errors[0]

figure, axes = plt.subplots(figsize=(7, 4))
axes.plot(*dots.T, ".", color="gray", markersize=4, label="radar")
axes.plot(*true.T, label="buoy")
axes.plot(*followed.T, "--", label="filter")
axes.plot(0, 0, "k^", label="radar's place")
axes.set(xlabel="km", ylabel="km", aspect="equal", title="A drifting buoy, followed by a filter")
axes.legend()
figure.tight_layout()
