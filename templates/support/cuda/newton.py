"""Newton's method for equations whose residual and Jacobian are computed on the device.

The host controls the step length, one equation after the other: for that it needs the residual's
norm."""

# mypy: allow-untyped-defs

import numpy as np

from ..common.convergence import RESIDUALS_IN_MESSAGE, _convergence
from .libraries import fail
from .lu import lu_factor, lu_solve_rows

MAX_HALVINGS = 30
"""Largest number of halvings of a step that does not reduce the residual."""


def newton(run, residual, jacobian, iterations, arguments, target, failure):
    """target[s] = the root for the arguments at index s, from the start arguments[0][s]; nan where
    the iteration does not converge, which fails the check `failure` unless that is -1."""
    messages = []
    for s in range(target.shape[0]):
        operands = [run.entry(argument, s) for argument in arguments]
        messages += one_root(run, residual, jacobian, iterations, operands, target[s : s + 1])
    if failure >= 0 and messages:
        run.details[failure] = messages[0]
        fail(run, failure)


def one_root(run, residual, jacobian, iterations, operands, target):
    """Find the root for one index. Returns a list with a message about the iteration if it does not
    converge, else an empty one."""
    start = run.to_host(operands[0]) if operands[0].shape else operands[0]
    unknown = np.array(start, run.dtype).reshape(-1)
    size = initial_size = largest_residual(run, residual, operands, unknown)
    solved, singular, sizes = size == 0, False, [size]
    close = np.sqrt(np.finfo(run.dtype).eps)
    for _ in range(iterations):
        if solved:
            break
        step = newton_step(run, residual, jacobian, operands, unknown)
        singular = not np.isfinite(step).all()
        if singular:
            break
        scale = run.dtype.type(1)
        for _ in range(MAX_HALVINGS):
            point = unknown - scale * step
            reached = largest_residual(run, residual, operands, point)
            if reached < size:
                break
            scale /= 2
        if reached < size:
            unknown, size = point, reached
            sizes.append(size)
            solved = size == 0
        else:
            length = np.abs(unknown).max(initial=0)
            near = np.abs(step).max(initial=0) <= close * length or size <= close**2 * initial_size
            solved = near and size < np.inf
            break
    if not solved:
        unknown[:] = np.nan
    run.overwrite(target, unknown.reshape(target.shape))
    if solved:
        return []
    return [_convergence(len(sizes) - 1, singular, initial_size, *sizes[-RESIDUALS_IN_MESSAGE:])]


def largest_residual(run, residual, operands, unknown):
    """The largest absolute value in the residual; nan if an entry is nan."""
    value = run.empty(unknown.shape)
    residual(run, *operands, run.to_device(unknown, run.dtype), value)
    return np.abs(run.to_host(value)).max(initial=0)


def newton_step(run, residual, jacobian, operands, unknown):
    """The solution of Jacobian · step = residual; not finite for a singular Jacobian."""
    count = unknown.size
    point = run.to_device(unknown, run.dtype)
    matrix = run.empty((1, count, count))
    pivots = run.empty((1, count), np.int32)
    step = run.empty((1, 1, count))
    residual(run, *operands, point, step.reshape((count,)))
    jacobian(run, *operands, point, matrix.reshape((count, count)))
    lu_factor(run, matrix, pivots)
    lu_solve_rows(run, matrix, pivots, step, False)
    return run.to_host(step).reshape(count)
