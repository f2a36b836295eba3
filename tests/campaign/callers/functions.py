"""The functions that are called: each has small and large arguments, and ways to be computed by one
thread and by several."""

from __future__ import annotations

import derivatrix as dx

_n, _m, _c = dx.dims("n m c")
_x, _w, _b = dx.vector("x", _n), dx.vector("w", _n), dx.vector("b", _c)
_X, _A, _W = dx.matrix("X", _n, _n), dx.matrix("A", _n, _n), dx.matrix("W", _c, _n)
_S, _samples = dx.matrix("S", _n, _n, "spd"), dx.matrix("samples", _m, _n)

FUNCTIONS = (
    dx.function("square", [_X], _X @ _X),
    dx.function("score", [_S, _A], dx.logdet(_S) + dx.trace(dx.inv(_S) @ _A)),
    dx.function("model", [_x, _W, _b], dx.softmax(_W @ _x + _b), batch=[_x]),
    dx.function("total", [_samples, _w], dx.sum(dx.log1p(dx.exp(_samples @ _w)))),
)
QUICK = (FUNCTIONS[0], FUNCTIONS[2])
