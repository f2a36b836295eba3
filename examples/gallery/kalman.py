"""
Kalman smoothing: the Nile
==========================

The flow of the Nile at Aswan, 1871 to 1970, as a level that drifts plus noise of each year. How
much is drift and how much is noise? Maximum likelihood says it; Durbin and Koopman (*Time Series
Analysis by State Space Methods*, 2.2.5) find the variances 1,469 and 15,099.

**Why a closed form helps.** A Kalman filter computes the likelihood in a loop over the years, and
automatic differentiation would go back through all of it. But the changes from year to year are
just normal, with covariance ``S = q I + r T``. The gradient is two lines, and the Cholesky factor
of the value serves it.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import derivatrix as dx
from derivatrix.scipy import objective

n = dx.dims("n")
q, r = dx.scalar("q", "positive"), dx.scalar("r", "positive")
z, T = dx.vector("z", n), dx.matrix("T", n, n, "spd")
S = q * dx.eye(n) + r * T
likelihood = dx.function("likelihood", [q, r, z, T], dx.logdet(S) + z @ dx.solve(S, z), wrt=[q, r])
print("by q:", likelihood.formula("gradient", "q"))

# %%
# The free numbers of the optimiser are the logarithms of q and r, since both are declared as
# positive.

FLOW = np.fromstring(
    """1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140
    1100 1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969
    831 726 456 824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796 1040 759
    781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890
    744 749 838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740""",
    sep=" ",
)
D = np.diff(np.eye(100), axis=0)
problem = objective(likelihood, z=D @ FLOW / 100, T=D @ D.T)  # in hundreds: near 1
start = problem.pack({"q": 1.0, "r": 1.0})
found = problem.unpack(minimize(problem.fun, start, jac=problem.jac, method="BFGS").x)
drift, noise = 1e4 * found.q, 1e4 * found.r
print(f"drift {drift:.0f}, noise {noise:.0f}")
assert np.allclose([drift, noise], [1469, 15099], rtol=0.01)

# %%
# The smoothed level solves one equation; its Jacobian by the flows says which years it listens
# to.

k = dx.dims("k")
y, L, ratio = dx.vector("y", k), dx.matrix("L", k, k, "spd"), dx.scalar("ratio", "positive")
smoother = dx.function("smoother", [y, L, ratio], dx.solve(dx.eye(k) + ratio * L, y), wrt=[y])
module = dx.compile(smoother)
level = module.value(FLOW, D.T @ D, noise / drift)
weights = module.jacobian(FLOW, D.T @ D, noise / drift)[50]

years = np.arange(1871, 1971)
figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), height_ratios=(3, 1))
above.plot(years, FLOW, ".", color="gray", label="flow")
above.plot(years, level, label="smoothed level")
above.set(ylabel="10⁸ m³ a year", title="The Nile at Aswan, and its level")
above.legend()
below.bar(years, weights, width=1)
below.set(ylabel="weight", xlabel="what the level of 1921 is made of")
figure.tight_layout()
