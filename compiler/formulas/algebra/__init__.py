"""Trees in normal form: one constructor a kind, with the rewriting that a writer would do.

Scalars come to the front, transposes are pushed to the names where that leaves fewer of them,
equal neighbours become powers, and broadcasting (`Spread`) is taken out of whatever works entry
by entry.
"""

from derivatrix.compiler.formulas.algebra.entrywise import (
    choice,
    function,
    logic,
    positive,
    relation,
    spread,
)
from derivatrix.compiler.formulas.algebra.factoring import factored
from derivatrix.compiler.formulas.algebra.normal_form import (
    add,
    contracted,
    diag,
    diagonal,
    hadamard,
    matmul,
    norm,
    part,
    power,
    raised,
    scale,
    total,
    trace,
    transpose,
    triangle,
)

__all__ = [
    "add",
    "choice",
    "contracted",
    "diag",
    "diagonal",
    "factored",
    "function",
    "hadamard",
    "logic",
    "matmul",
    "norm",
    "part",
    "positive",
    "power",
    "raised",
    "relation",
    "scale",
    "spread",
    "total",
    "trace",
    "transpose",
    "triangle",
]
