"""Norms, tolerances and the error of Newton's iteration for an equation."""

# mypy: allow-untyped-defs

from threading import current_thread

import numpy as np

from ..common.convergence import _convergence
from ..internals.arithmetic import epsilon
from ..internals.functions import callback, compiled


def _note(*history):
    # an attribute of the thread: machine code is shared, so that the package of the caller, and
    # with it this module, may be another one
    current_thread()._derivatrix_convergence = _convergence(*history)  # type: ignore[attr-defined]


note = callback(_note, 6)
"""Store a message with the arguments of `_convergence` for NotConverged: the exceptions of compiled
code have messages that are constant at compile time."""


class NotConverged(np.linalg.LinAlgError):
    """No root was found. The message ends with the one that this thread stored by `note`."""

    def __init__(self, problem):
        thread = current_thread()
        super().__init__(problem + thread._derivatrix_convergence)  # type: ignore[attr-defined]

    def __reduce__(self):
        return np.linalg.LinAlgError, self.args


@compiled(linked=True)
def max_magnitude(vector):
    """Return the largest absolute value in a vector; nan if an entry is nan."""
    magnitude = vector.dtype.type(0)
    for value in vector:
        if abs(value) > magnitude or value != value:
            magnitude = abs(value)
    return magnitude


@compiled(linked=True)
def step_tolerance(out):
    """Return the length of a step, relative to the unknown, below which rounding alone may keep it
    from reducing the residual: the square root of the precision."""
    return out.dtype.type(np.sqrt(epsilon(out)))
