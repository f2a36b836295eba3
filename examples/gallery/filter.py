"""
A Kalman filter: the Nile once more
===================================

The example before this one writes the likelihood of a drifting level with one large covariance. A
Kalman filter computes it in a loop over the years, with two numbers that it carries along: the
expected level and its variance. `dx.scan` declares the loop; its gradient is a loop backwards.

**Why a closed form helps.** The kernel keeps the levels and variances of all years, and nothing
else: no tape, one machine code for any number of years. The recursions can be read.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import derivatrix as dx
from derivatrix.scipy import objective

T = dx.dims("T")
y, first = dx.vector("y", T), dx.scalar("first")
q, r = dx.scalar("q", "positive"), dx.scalar("r", "positive")


def year(carry: dict[str, dx.Array], flow: dx.Array) -> tuple[object, object]:
    level, variance = carry["a"], carry["P"]
    gain = variance / (variance + r)
    term = dx.log(variance + r) + (flow - level) ** 2 / (variance + r)
    level = level + gain * (flow - level)
    return {"a": level, "P": (1 - gain) * variance + q}, (term, level)


_, (terms, levels) = dx.scan(year, {"a": first, "P": r + q}, y)
deviance = dx.function("deviance", [q, r, first, y], dx.sum(terms), wrt=[q, r])
print(deviance.derivatives.equation_lines("gradient")[0])

# %%
# The year 1871 is the start. Maximum likelihood finds the variances 1,469 and 15,099 (Durbin and
# Koopman, *Time Series Analysis by State Space Methods*, 2.10.2).

FLOW = np.fromstring(
    """1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140
    1100 1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969
    831 726 456 824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796 1040 759
    781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890
    744 749 838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740""",
    sep=" ",
)
problem = objective(deviance, first=FLOW[0] / 100, y=FLOW[1:] / 100)  # in hundreds: near 1
start = problem.pack({"q": 1.0, "r": 1.0})
estimate = problem.unpack(minimize(problem.fun, start, jac=problem.jac, method="BFGS").x)
drift, noise = 1e4 * estimate.q, 1e4 * estimate.r
print(f"drift {drift:.0f}, noise {noise:.0f}")
assert np.allclose([drift, noise], [1469, 15099], rtol=0.01)

# %%
# The Jacobian of the levels by the flows is triangular: a filter knows the past only.

filtered = dx.function("filtered", [y, q, r, first], levels, wrt=[y])
module = dx.compile(filtered)
level = module.value(FLOW[1:], drift, noise, FLOW[0])
weights = module.jacobian(FLOW[1:], drift, noise, FLOW[0])
assert np.allclose(np.triu(weights, 1), 0)

years = np.arange(1872, 1971)
figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), height_ratios=(3, 1))
above.plot(years, FLOW[1:], ".", color="gray", label="flow")
above.plot(years, level, label="filtered level")
above.set(ylabel="10⁸ m³ a year", title="The Nile at Aswan, and its level by a Kalman filter")
above.legend()
below.bar(years, weights[49], width=1)
below.set(ylabel="weight", xlabel="what the level of 1921 is made of")
figure.tight_layout()
