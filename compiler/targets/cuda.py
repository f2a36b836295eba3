"""CUDA devices: operators and their functions in `templates/support/cuda`, as "file.function"."""

MATH = {
    name: f"math.{name}"
    for name in (
        *("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan"),
        *("atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "gamma"),
        *("lgamma", "floor", "ceil"),
    )
}
"""Operator of a scalar (`plan.steps.Operate`) -> the function of Python's. On the device these do
not raise: they return infinity or nan, and single precision for single precision."""

BESSEL = {
    f"bessel{kind}{order}": f"bessel.bessel_{kind}{'' if order == 'v' else order}"
    for kind in "jyik"
    for order in "01v"
}
SCALARS = {
    **{name: f"elementary.real_{name}" for name in ("sign", "mod", "maximum", "minimum")},
    **{name: f"special.{name}" for name in ("digamma", "erfinv", "scaled_normcdf", "zeta")},
    **BESSEL,
}
"""Operator of a scalar -> its function, for those that have one here."""

SPELLED = {
    **MATH,
    "abs": "abs",
    "where": "cuda.selp",
    **{operator: path.rpartition(".")[2] for operator, path in SCALARS.items()},
}
"""Operator of a scalar -> the name by which kernels call its function."""
