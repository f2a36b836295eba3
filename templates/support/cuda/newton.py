"""Newton's method for equations whose residual and Jacobian are computed on the device.

The host decides on steps, one equation after the other: it needs the residual for that anyway.
"""

# mypy: allow-untyped-defs

import numpy as np

from ..common.convergence import RESIDUALS_IN_MESSAGE, _convergence
from .libraries import fail
from .lu import lu_factor, lu_solve_rows

HALVINGS = 30
"""How often a step is halved that does not make the residual smaller."""


def newton(run, residual, jacobian, iterations, arguments, target, failure):
    """target[s] = the root for arguments[0][s], ..., from the start arguments[0][s], for each s;
    nan where none is found, which fails the check `failure` if that is not -1."""
    failed = []
    for s in range(target.shape[0]):
        given = [run.entry(argument, s) for argument in arguments]
        failed += one_root(run, residual, jacobian, iterations, given, target[s : s + 1])
    if failure >= 0 and failed:
        run.told[failure] = failed[0]
        fail(run, failure)


def one_root(run, residual, jacobian, iterations, given, target):
    """The root for one index of the stacks. How the iteration went, as a text in a list, if none
    was found."""
    start = run.fetched(given[0]) if given[0].shape else given[0]
    unknown = np.array(start, run.dtype).reshape(-1)
    size = first = largest_residual(run, residual, given, unknown)
    solved, singular, sizes = size == 0, False, [size]
    close = np.sqrt(np.finfo(run.dtype).eps)
    for _ in range(iterations):
        if solved:
            break
        step = newton_step(run, residual, jacobian, given, unknown)
        singular = not np.isfinite(step).all()
        if singular:
            break
        scale = run.dtype.type(1)
        for _ in range(HALVINGS):
            point = unknown - scale * step
            reached = largest_residual(run, residual, given, point)
            if reached < size:
                break
            scale /= 2
        if reached < size:
            unknown, size = point, reached
            sizes.append(size)
            solved = size == 0
        else:
            length = np.abs(unknown).max(initial=0)
            near = np.abs(step).max(initial=0) <= close * length or size <= close**2 * first
            solved = near and size < np.inf
            break
    if not solved:
        unknown[:] = np.nan
    run.overwrite(target, unknown.reshape(target.shape))
    return (
        []
        if solved
        else [_convergence(len(sizes) - 1, singular, first, *sizes[-RESIDUALS_IN_MESSAGE:])]
    )


def largest_residual(run, residual, given, unknown):
    """The largest entry of the residual; nan if there is one."""
    value = run.empty(unknown.shape)
    residual(run, *given, run.put(unknown, run.dtype), value)
    return np.abs(run.fetched(value)).max(initial=0)


def newton_step(run, residual, jacobian, given, unknown):
    """The solution of Jacobian times step = residual; not finite where there is none."""
    count = unknown.size
    point = run.put(unknown, run.dtype)
    matrix = run.empty((1, count, count))
    pivots = run.empty((1, count), np.int32)
    step = run.empty((1, 1, count))
    residual(run, *given, point, step.reshape((count,)))
    jacobian(run, *given, point, matrix.reshape((count, count)))
    lu_factor(run, matrix, pivots)
    lu_solve_rows(run, matrix, pivots, step, False)
    return run.fetched(step).reshape(count)
