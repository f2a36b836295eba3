"""Statements that a matrix has a structure which its construction does not show."""

from __future__ import annotations

from functools import lru_cache

from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.ir.structure import DECLARED_FACTS
from derivatrix.compiler.operations.shapes import square


@lru_cache
def assumption(structure: str) -> Operation:
    """The operation that states a structure of a square matrix: the identity, whose result has the
    facts of that structure. Kernels and formulas show the matrix itself."""
    operation = Operation(
        name=f"assumed_{structure}",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("assume", cores[0]),),
        value=lambda arguments, parameters: (arguments[0],),
        differential=lambda at: (at.tangents[0],),
        numpy=lambda arguments, *_: f"np.asarray({arguments[0]})",
        facts=lambda arguments, output: arguments[0] | DECLARED_FACTS[structure],
        states=structure,
    )
    object.__setattr__(operation, "maker", (assumption, (structure,)))
    return operation
