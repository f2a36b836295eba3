"""Loops over time that the tests drive through every stage, each with its value in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function

T, n, m, c = dx.dims("T n m c")


@dataclass(frozen=True)
class Case:
    """A function with a loop, and its value computed by a loop of Python."""

    function: Function
    value: Callable[..., Any]


def with_checkpoint(declaration: Callable[[], Any], steps: int) -> Any:
    """Declare with loops over segments of `steps` steps in place of plain loops."""
    with patch.object(dx, "scan", partial(dx.scan, checkpoint=steps)):
        return declaration()


def elman() -> Case:
    """An Elman network: every state, and the last one once more."""
    W, U = dx.matrix("W", n, n), dx.matrix("U", n, m)
    X, h0 = dx.matrix("X", T, m), dx.vector("h0", n)

    def step(h: Any, x: Any) -> Any:
        h = dx.tanh(W @ h + U @ x)
        return h, h

    last, states = dx.scan(step, h0, X)

    def value(W: Any, U: Any, X: Any, h0: Any) -> Any:
        total, h = 0.0, h0
        for x in X:
            h = np.tanh(W @ h + U @ x)
            total += (h**2).sum()
        return total + h.sum()

    inputs = [W, U, X, h0]
    return Case(dx.function("elman", inputs, dx.sum(states**2) + dx.sum(last)), value)


def backwards() -> Case:
    """A loop from the last x to the first, whose outputs are an array."""
    W, X, h0 = dx.matrix("W", n, n), dx.matrix("X", T, n), dx.vector("h0", n)
    last, ys = dx.scan(lambda h, x: (dx.sin(W @ h) + x * h, h * x), h0, X, reverse=True)

    def value(W: Any, X: Any, h0: Any) -> Any:
        ys, h = np.zeros_like(X), h0
        for t in reversed(range(len(X))):
            ys[t] = h * X[t]
            h = np.sin(W @ h) + X[t] * h
        return ys + h

    return Case(dx.function("backwards", [W, X, h0], ys + last), value)


def garch() -> Case:
    """The likelihood of GARCH(1, 1): a number as carry, an expression as start."""
    r, w, a, b = dx.vector("r", T), *(dx.scalar(name, "positive") for name in "wab")
    _, terms = dx.scan(lambda s, x: (w + a * x**2 + b * s, dx.log(s) + x**2 / s), w / (1 + b), r)

    def value(r: Any, w: Any, a: Any, b: Any) -> Any:
        total, s = 0.0, w / (1 + b)
        for x in r:
            total += np.log(s) + x**2 / s
            s = w + a * x**2 + b * s
        return total

    return Case(dx.function("garch", [r, w, a, b], dx.sum(terms)), value)


def chebyshev() -> Case:
    """A sum of Chebyshev polynomials: a carry of two arrays."""
    x, weights = dx.vector("x", n), dx.vector("weights", T)

    def step(carry: Any, weight: Any) -> Any:
        before, now = carry
        return (now, 2 * x * now - before), weight * before

    _, terms = dx.scan(step, (dx.ones(n), x), weights)

    def value(x: Any, weights: Any) -> Any:
        return np.polynomial.chebyshev.chebval(x, weights) if len(weights) else 0 * x

    return Case(dx.function("chebyshev", [x, weights], dx.sum(terms, axis=0)), value)


def oscillator() -> Case:
    """Runge's and Kutta's method of order 4 for a pendulum."""
    start, k, driving = dx.vector("start", 2), dx.scalar("k"), dx.vector("driving", T)
    h = 0.1

    def step_with(library: Any, k: Any) -> Any:
        def slope(z: Any, u: Any) -> Any:
            return library.stack([z[1], u - k * library.sin(z[0])])

        def step(z: Any, u: Any) -> Any:
            k1 = slope(z, u)
            k2 = slope(z + h / 2 * k1, u)
            k3 = slope(z + h / 2 * k2, u)
            z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(z + h * k3, u))
            return z, z[0]

        return step

    last, angles = dx.scan(step_with(dx, k), start, driving)

    def value(start: Any, k: Any, driving: Any) -> Any:
        total, z = 0.0, start
        for u in driving:
            z, angle = step_with(np, k)(z, u)
            total += angle**2
        return total + z[1]

    inputs = [start, k, driving]
    return Case(dx.function("oscillator", inputs, dx.sum(angles**2) + last[1]), value)


def hidden_markov() -> Case:
    """The forward recursion of a hidden Markov model in log space; y is None."""
    A, B, start = dx.matrix("A", n, n), dx.matrix("B", T, n), dx.vector("start", n)
    last, ys = dx.scan(lambda a, b: (dx.logsumexp(a[:, None] + A, axis=0) + b, None), start, B)
    assert ys is None

    def value(A: Any, B: Any, start: Any) -> Any:
        alpha = start
        for b in B:
            alpha = scipy.special.logsumexp(alpha[:, None] + A, axis=0) + b
        return scipy.special.logsumexp(alpha)

    return Case(dx.function("hidden_markov", [A, B, start], dx.logsumexp(last)), value)


def regulator() -> Case:
    """The cost-to-go of a finite-horizon linear quadratic regulator, by `length`."""
    A, B = dx.matrix("A", n, n), dx.matrix("B", n, m)
    Q, R = dx.matrix("Q", n, n, "spd"), dx.matrix("R", m, m, "spd")

    def step(P: Any, _: Any) -> Any:
        gain = dx.solve(R + B.T @ P @ B, B.T @ P @ A)
        return Q + A.T @ P @ (A - B @ gain), None

    P, _ = dx.scan(step, Q, length=4)

    def value(A: Any, B: Any, Q: Any, R: Any) -> Any:
        P = Q
        for _ in range(4):
            P = Q + A.T @ P @ (A - B @ np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A))
        return np.trace(P)

    return Case(dx.function("regulator", [A, B, Q, R], dx.trace(P)), value)


def sinkhorn() -> Case:
    """Sinkhorn's iteration; the carry and the outputs are mappings."""
    K, r, s = dx.matrix("K", n, n, "positive"), dx.vector("r", n, "positive"), dx.vector("s", T)

    def step(carry: Any, x: Any) -> Any:
        u = r / (K @ carry["v"])
        v = 1 / (K.T @ u)
        return {"u": u, "v": v}, {"u": x * u}

    start = {"u": dx.ones(n), "v": dx.ones(n)}
    last, ys = dx.scan(step, start, s)

    def value(K: Any, r: Any, s: Any) -> Any:
        v, u, total = np.ones(len(r)), np.ones(len(r)), np.zeros(len(r))
        for x in s:
            u = r / (K @ v)
            v = 1 / (K.T @ u)
            total = total + x * u
        return u @ K @ v + total

    result = last["u"] @ K @ last["v"] + dx.sum(ys["u"], axis=0)
    return Case(dx.function("sinkhorn", [K, r, s], result), value)


def nested() -> Case:
    """A loop in a loop, whose step reads the carry of the outer one."""
    W, X, h0 = dx.matrix("W", n, n), dx.tensor("X", T, m, n), dx.vector("h0", n)

    def step(h: Any, x: Any) -> Any:
        g, _ = dx.scan(lambda g, u: (dx.tanh(W @ g) + u * h, None), h, x)
        return g, g

    last, states = dx.scan(step, h0, X)

    def value(W: Any, X: Any, h0: Any) -> Any:
        total, h = 0.0, h0
        for x in X:
            g = h
            for u in x:
                g = np.tanh(W @ g) + u * h
            h = g
            total += (h**2).sum()
        return total + h.sum()

    return Case(dx.function("nested", [W, X, h0], dx.sum(states**2) + dx.sum(last)), value)


def averaged() -> Case:
    """A step that reads the number of steps, and one size that no array of the step has."""
    W, v, X = dx.matrix("W", n, n), dx.vector("v", n), dx.matrix("X", T, n)
    z = dx.vector("z", m)
    last, ys = dx.scan(lambda h, x: (h + x @ W @ h / (T + 1) / m, dx.sum(h)), v, X)

    def value(W: Any, v: Any, X: Any, z: Any) -> Any:
        h, total = v, 0.0
        for x in X:
            total += h.sum()
            h = h + x @ W @ h / (len(X) + 1) / len(z)
        return h * total + z.sum()

    return Case(dx.function("averaged", [W, v, X, z], last * dx.sum(ys) + dx.sum(z)), value)


def updated_cholesky() -> Case:
    """A factorisation in each step."""
    X, S = dx.matrix("X", T, n), dx.matrix("S", n, n, "spd")

    def step(P: Any, x: Any) -> Any:
        return P + dx.outer(x, x), dx.sum(dx.cholesky(P) @ x)

    last, ys = dx.scan(step, S, X)

    def value(X: Any, S: Any) -> Any:
        P, total = S, 0.0
        for x in X:
            total += (np.linalg.cholesky(P) @ x).sum()
            P = P + np.outer(x, x)
        return np.linalg.slogdet(P)[1] + total

    inputs = [X, S]
    return Case(dx.function("updated_cholesky", inputs, dx.logdet(last) + dx.sum(ys)), value)


def root_in_step() -> Case:
    """An implicit Euler step: the root of an equation in each step."""
    x, k, h0 = dx.vector("x", T), dx.scalar("k", "positive"), dx.scalar("h0")
    g = dx.scalar("g")

    def step(h: Any, u: Any) -> Any:
        h = dx.root(g + k * g**3 - h - u, g, h)
        return h, h

    _, states = dx.scan(step, h0, x)

    def value(x: Any, k: Any, h0: Any) -> Any:
        total, h = 0.0, h0
        for u in x:
            h = max(np.roots([k, 0, 1, -h - u]), key=lambda g: -abs(g.imag)).real
            total += h**2
        return total

    return Case(dx.function("root_in_step", [x, k, h0], dx.sum(states**2)), value)


CASES = [
    elman(), backwards(), garch(), chebyshev(), oscillator(), hidden_markov(), regulator(),
    sinkhorn(), nested(), averaged(), updated_cholesky(), root_in_step(),
]  # fmt: skip


def kalman(wrt: list[str] | None = None, kinds: list[str] | None = None) -> Function:
    """The log-likelihood of a linear Gaussian state space model."""
    A, C = dx.matrix("A", n, n), dx.matrix("C", m, n)
    Q, R = dx.matrix("Q", n, n, "spd"), dx.matrix("R", m, m, "spd")
    x0, P0, Y = dx.vector("x0", n), dx.matrix("P0", n, n, "spd"), dx.matrix("Y", T, m)

    def step(carry: Any, y: Any) -> Any:
        x, P = carry
        S, v = dx.assume(C @ P @ C.T + R, "spd"), y - C @ x
        gain = P @ C.T @ dx.inv(S)
        term = -(v @ dx.inv(S) @ v + dx.logdet(S) + m * np.log(2 * np.pi)) / 2
        return (A @ (x + gain @ v), A @ (P - gain @ C @ P) @ A.T + Q), term

    _, terms = dx.scan(step, (x0, P0), Y)
    inputs = [Y, A, C, Q, R, x0, P0]
    return dx.function("kalman", inputs, dx.sum(terms), wrt=wrt, kinds=kinds)


def dense_likelihood(Y: Any, A: Any, C: Any, Q: Any, R: Any, x0: Any, P0: Any) -> float:
    """The same log-likelihood, by the normal distribution of all observations together."""
    length, size = Y.shape
    means, covariances = [x0], [P0]
    for _ in range(length - 1):
        means.append(A @ means[-1])
        covariances.append(A @ covariances[-1] @ A.T + Q)
    covariance = np.zeros((length, size, length, size))
    for t in range(length):
        moved = covariances[t] @ C.T
        for later in range(t, length):
            covariance[later, :, t] = C @ moved
            covariance[t, :, later] = (C @ moved).T
            moved = A @ moved
        covariance[t, :, t] += R
    mean = np.concatenate([C @ x for x in means]) if length else np.zeros(0)
    flat = covariance.reshape(length * size, -1)
    residual = Y.ravel() - mean
    solved = np.linalg.solve(flat, residual)
    logdet = np.linalg.slogdet(flat)[1]
    return float(-(residual @ solved + logdet + length * size * np.log(2 * np.pi)) / 2)
