"""The functions of single numbers that have kernels of their own."""

from derivatrix.templates.support.cpu import circular, elementary, normal, selection, special

MODULES = (circular, elementary, normal, selection, special)

KERNELS = {operator: name for module in MODULES for operator, name in module.KERNELS.items()}
"""Operator of a scalar (`plan.steps.Operate`) -> the name of what computes it."""
