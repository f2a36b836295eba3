"""Kernels of a generated module."""

# mypy: allow-untyped-defs

import numpy as np
from numba import njit

from ..common.module import Module as _Module
from ..internals.functions import compiled


class Module(_Module):
    """A generated module."""

    has_operators = True

    def kernel(self, **options):
        """Decorate a kernel; it calls `check_` + its name first. options: see `compiled`."""
        return compiled(is_called_from_python=True, **options)

    def share(self, **options):
        """Decorate the body of a kernel that computes share `part` of `parts` of the rows; the data
        file has the kernel itself."""
        return self._named_after("share", is_called_from_python=True, **options)

    def part(self, **options):
        """Decorate the body of a kernel that adds a part of the samples to its results; the data
        file has the kernel itself."""
        return self._named_after("part", **options)

    def _named_after(self, ending, **options):
        def decorate(body):
            body.__name__ = f"{body.__name__}_{ending}"
            self.names[body.__name__] = compiled(**options)(body)
            return self.names[body.__name__]

        return decorate

    # Decorators of the second file

    def check(self, function):
        """Decorate the function that checks the arguments of a kernel."""
        # CPython passes more than 30 arguments as one tuple, which Numba cannot inline
        is_inlined = function.__code__.co_argcount <= 30
        return self._in_module(function, njit(inline="always") if is_inlined else njit)

    def whole_kernel(self, function):
        """Decorate a kernel that calls its share or part for all of the work."""
        return self._in_module(function, self.compiled(is_called_from_python=True))

    def compiled(self, **options):
        """Decorate a function that Numba caches as one of the module's first file."""

        def decorate(function):
            file = self.names["__file__"]
            function.__code__ = function.__code__.replace(co_filename=file)
            return compiled(**options)(function)

        return decorate

    def _in_module(self, function, decorate):
        """Make a function of the module, without the underscore before its name."""
        name = function.__name__ = function.__name__.removeprefix("_")
        self.names[name] = decorate(function)
        return self.names[name]


def _nearest(structure, array):
    """Copy an array as the nearest one of a structure, as kernels read it."""
    if structure in ("symmetric", "spd"):
        return array / 2 + array.mT / 2  # the sum of large entries could overflow
    lower = np.tril(array) if structure in ("lower", "diagonal") else array.copy()
    return np.triu(lower) if structure in ("upper", "diagonal") else lower
