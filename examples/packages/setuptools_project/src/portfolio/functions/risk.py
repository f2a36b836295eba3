import derivatrix as dx

from .sizes import n, w

S = dx.matrix("S", n, n, "symmetric")
functions = [dx.function("risk", [w, S], w * (S @ w), wrt=[w])]
