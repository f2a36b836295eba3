"""Closed-form derivatives of matrix functions, as self-contained packages of Numba modules.

    import derivatrix as dx

    n = dx.dims("n")
    X = dx.matrix("X", n, n)
    square = dx.function("square", [X], X @ X)
    print(square.formula("vjp"))                 # Ȳ Xᵀ + Xᵀ Ȳ
    dx.compile(square).vjp(X_value, Y_bar)

Names are imported when they are first asked for, so `derivatrix.runtime` works in an interpreter
that has no SymPy and no jinja2.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from derivatrix.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from derivatrix import runtime as runtime
    from derivatrix.compiler.driver.build import BuildResult as BuildResult
    from derivatrix.compiler.driver.build import build as build
    from derivatrix.compiler.driver.build import check as check
    from derivatrix.compiler.driver.build import compile as compile
    from derivatrix.compiler.frontends.arrays import *
    from derivatrix.compiler.frontends.function import Function as Function
    from derivatrix.compiler.frontends.function import derive as derive
    from derivatrix.compiler.frontends.function import function as function
    from derivatrix.compiler.frontends.function_file import load_functions as load_functions
    from derivatrix.compiler.frontends.notation import parse as parse
    from derivatrix.compiler.ir.arrays import Array as Array
    from derivatrix.compiler.ir.operation import Operation as Operation
    from derivatrix.compiler.ir.operation import register as register
    from derivatrix.runtime import Report as Report
    from derivatrix.runtime import load as load
    from derivatrix.runtime import load_package as load_package
    from derivatrix.runtime import verify as verify
    from derivatrix.runtime.adapters.structures import require_structures as require_structures
    from derivatrix.runtime.errors import BuildError as BuildError
    from derivatrix.runtime.errors import DeclarationError as DeclarationError
    from derivatrix.runtime.errors import DerivatrixError as DerivatrixError
    from derivatrix.runtime.errors import LoadError as LoadError
    from derivatrix.runtime.errors import LongModuleWarning as LongModuleWarning
    from derivatrix.runtime.errors import MissingPackageError as MissingPackageError
    from derivatrix.runtime.errors import NotationError as NotationError
    from derivatrix.runtime.errors import ShapeError as ShapeError
    from derivatrix.runtime.errors import UnsupportedError as UnsupportedError
    from derivatrix.runtime.errors import VerificationError as VerificationError

    # functions made from the records of operations, which type checkers cannot see: with one
    # result, or several
    def _one(*arrays: Any) -> Array: ...
    def _several(*arrays: Any) -> Any: ...

    adjugate = adjugate_derivative = adjugate_jacobian = axial = cosm = eigvals = expm = _one
    half_lower = logm = nonzero_pivot = nuclear_norm = positive_pivot = _one
    polar_factor = products_of_others = reciprocal_gaps = reciprocal_sums = rounding_level = _one
    rows_at = sorted_by = sums_at = unsorted_by = _one
    shares_of_maximum = solve_continuous_are = solve_continuous_lyapunov = solve_polar = _one
    sinm = skew = solve_discrete_are = solve_discrete_lyapunov = sqrtm = svdvals = tanhm = _one
    eig = lu = _several

_ADAPTERS = ("dask", "jax", "pytensor", "scipy", "torch")
_PACKAGES = ("compiler", "runtime", "templates", "version", *_ADAPTERS)
_NAMES = {
    "compiler.driver.build": ("BuildResult", "build", "check", "compile"),
    "compiler.frontends.notation": ("parse",),
    "compiler.frontends.function_file": ("load_functions",),
    "compiler.frontends.function": ("Function", "derive", "function"),
    "compiler.operations": ("Operation", "register"),
    "runtime": ("Report", "load", "load_package", "verify"),
    "runtime.adapters.structures": ("require_structures",),
    "runtime.errors": (
        *("BuildError", "DeclarationError", "DerivatrixError", "LoadError", "LongModuleWarning"),
        *("MissingPackageError", "NotationError", "ShapeError", "UnsupportedError"),
        "VerificationError",
    ),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES.items() for name in names}
_ARRAYS = "compiler.frontends.arrays"
_OPERATIONS = "compiler.frontends.operations"


if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        value = _find(name)
        globals()[name] = value  # Python finds it there from now on, without this call
        return value


def __dir__() -> list[str]:
    """List the names for users; `derivatrix.compiler` and the like can be imported, too."""
    arrays = importlib.import_module(f"{__name__}.{_ARRAYS}").NAMES
    operations = importlib.import_module(f"{__name__}.compiler.operations").OPERATIONS
    return sorted({"__version__", "runtime", *_MODULE_OF_NAME, *arrays, *operations})


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic `%%derivatrix`; `%load_ext derivatrix` calls this."""
    importlib.import_module(f"{__name__}.jupyter").register(shell)


def _find(name: str) -> object:
    """Import what a public name stands for. Names with an underscore, for which inspecting programs
    ask, do not import the compiler. Raises AttributeError."""
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _MODULE_OF_NAME:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)
    if not name.startswith("_"):
        arrays = importlib.import_module(f"{__name__}.{_ARRAYS}")
        if name in arrays.NAMES:
            return getattr(arrays, name)
        operation = importlib.import_module(f"{__name__}.{_OPERATIONS}").find(name)
        if operation is not None:
            return operation
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )
