import derivatrix as dx

from .sizes import n, w

before = dx.vector("before", n)
cost = dx.function("cost", [w, before], (w - before) ** 2, wrt=[w])
