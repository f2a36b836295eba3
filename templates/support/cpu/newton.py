"""What Newton's iteration for an equation measures, and what it tells where it finds no root."""

# mypy: allow-untyped-defs

from threading import current_thread

import numpy as np

from ..common.convergence import _convergence
from ..internals.functions import callback, compiled


def _note(*history):
    # in the thread itself, since the code that calls this may be another package's
    current_thread()._derivatrix_told = _convergence(*history)  # type: ignore[attr-defined]


note = callback(_note, 6)
"""Compiled code calls it before NotConverged is raised, with what `_convergence` takes: an
exception that compiled code raises has a message that was known when it was compiled."""


class NotConverged(np.linalg.LinAlgError):
    """No root was found; the message says what `note` was told in this thread."""

    def __init__(self, problem):
        super().__init__(problem + current_thread()._derivatrix_told)  # type: ignore[attr-defined]

    def __reduce__(self):
        return np.linalg.LinAlgError, self.args


@compiled(linked=True)
def largest(vector):
    """The largest magnitude; nan if there is one."""
    found = vector.dtype.type(0)
    for value in vector:
        if abs(value) > found or value != value:
            found = abs(value)
    return found


@compiled(linked=True)
def close(out):
    """How long, relative to the unknown, a step may be that rounding alone prevents from
    improving the residual: the square root of the precision."""
    return out.dtype.type(np.sqrt(np.finfo(out.dtype).eps))
