"""The rows, a file for each kind."""

from tests.benchmarks.record import Case, Row
from tests.benchmarks.rows import (
    batches,
    classifiers,
    elementwise,
    equations,
    estimation,
    factorisations,
    networks,
    products,
    solves,
)

MODULES = (
    products,
    classifiers,
    factorisations,
    networks,
    solves,
    equations,
    estimation,
    elementwise,
    batches,
)
ROWS: list[Row] = [row for module in MODULES for row in module.ROWS]


def case_of(name: str, size: int, dtype: str) -> Case:
    """The case that `Case.reference` names."""
    return Case(next(row for row in ROWS if row.name == name), size, dtype)
