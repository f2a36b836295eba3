"""The functions of single numbers, as kernels of the device call them."""

from derivatrix.templates.support.cuda import bessel, elementary, special

MODULES = (bessel, elementary, special)

KERNELS = {operator: name for module in MODULES for operator, name in module.KERNELS.items()}
"""Operator of a scalar (`plan.steps.Operate`) -> what computes it."""
