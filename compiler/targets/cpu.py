"""The CPU: operators and their functions in `templates/support`, as "folder.file.function"."""

VECTORISED = {
    **{name: f"cpu.trigonometric.fast_{name}" for name in ("sin", "cos", "tan")},
    **{name: f"cpu.elementary.fast_{name}" for name in ("exp", "expm1", "log", "log1p")},
    **{name: f"cpu.elementary.fast_{name}" for name in ("sinh", "cosh", "tanh")},
    **{name: f"cpu.normal.fast_{name}" for name in ("erf", "erfc", "scaled_normcdf")},
}
"""Operator of a scalar (`plan.steps.Operate`) -> its function, made of vector instructions."""

BESSEL = {
    f"bessel{kind}{order}": f"cpu.special.scipy_{kind}{order}" for kind in "jyik" for order in "01v"
}
SCALARS = {
    **VECTORISED,
    **BESSEL,
    "where": "internals.arithmetic.where",
    "digamma": "cpu.special.scipy_psi",
    "erfinv": "cpu.special.scipy_erfinv",
    "zeta": "cpu.special.zeta",
}
"""Operator of a scalar -> its function, for those that have one here."""
