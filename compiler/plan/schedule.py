"""The schedule: which nodes get a place in memory, in which order, computed by which step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import sympy

from derivatrix.compiler import ir
from derivatrix.compiler.facts import facts
from derivatrix.compiler.plan.associate import is_inverse
from derivatrix.compiler.plan.linear import SOLVERS, Solver, pick_solver
from derivatrix.compiler.plan.matrices import match_gemm
from derivatrix.compiler.plan.names import Names
from derivatrix.compiler.plan.nest import Builder, View
from derivatrix.compiler.plan.scalars import cost
from derivatrix.compiler.plan.sizes import nominal, product
from derivatrix.compiler.plan.steps import (
    Allocate,
    Buffer,
    Call,
    Fill,
    Gemm,
    Operand,
    Step,
)
from derivatrix.compiler.plan.structure import bind, gather, index_symbol, split
