"""Formulas in LaTeX of all that has a notation, and a check of what TeX refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from inspect import signature
from itertools import chain, cycle

from sympy.core.function import FunctionClass

import derivatrix as dx
from derivatrix.compiler.formulas import render
from derivatrix.compiler.frontends.function import function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.frontends.operations import calling
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.nodes import leaves, slot
from derivatrix.compiler.operations import OPERATIONS
from tests.identities import IDENTITIES

NAMES = (
    "sigma_1",
    "x1",
    "Omega",
    "weights",
    "a_b_c",
    "I",
    "e2",
    "K_n",
    "alpha",
    "Ω",
    "T",
    "d",
    "tr",
)
"""Names with subscripts, digits and Greek letters, long ones, and those of signs."""

VARIANTS: dict[str, Callable[[Array], Array]] = {
    "itself": lambda array: array,
    "transposed": lambda array: _matrix(array).T,
    "squared": lambda array: array**2,
    "to a fraction": lambda array: array**0.3,
    "an entry": lambda array: array[(0,) * array.ndim],
    "rows": lambda array: _matrix(array)[1:],
    "inverted": lambda array: dx.inv(_matrix(array)).T,
    "in a pseudoinverse": lambda array: dx.pinv(_matrix(array) + dx.eye(3)).T,
    "in a function": lambda array: dx.exp(array) / (1 + array**2),
    "in products": lambda array: _matrix(array) @ _matrix(array).T * dx.sum(array) ** 2,
}


def _matrix(array: Array) -> Array:
    return array if array.shape == (3, 3) else dx.sum(array) * dx.ones(3, 3)


def operation_results() -> Iterator[Array]:
    """The outputs of all operations, of inputs with such names."""
    names = cycle(NAMES)
    for operation in OPERATIONS.values():
        inputs = [dx.tensor(next(names), *(3,) * rank) for rank in operation.ranks]
        result = calling(operation)(*inputs)
        yield from result if operation.outputs else [result]


def function_results() -> Iterator[Array]:
    """Functions of numbers, entry by entry, of such inputs."""
    names = cycle(NAMES)
    for build in scalar_functions.FUNCTIONS.values():
        counts = build.nargs if isinstance(build, FunctionClass) else None
        if counts is None:
            count = len(signature(build).parameters)
        else:
            count = min(counts) if counts.is_finite_set else 2
        inputs = [dx.tensor(next(names), 3, 3) for _ in range(count)]
        yield elementwise(build(*map(slot, range(count))), *inputs)


def value_texts() -> Iterator[str]:
    """The values of the results in all variants."""
    for array in chain(operation_results(), function_results()):
        yield from (render(change(array).node, "latex") for change in VARIANTS.values())


def derivative_texts() -> Iterator[str]:
    """VJP and JVP of all operations."""
    for array in operation_results():
        inputs = [Array(leaf) for leaf in leaves([array.node])]
        derivatives = function("f", inputs, array).derivatives
        for kind in ("vjp", "jvp"):
            yield from derivatives.equation_lines(kind, "latex")


def identity_texts() -> Iterator[str]:
    """Jacobians and derivations of some identities."""
    for identity in IDENTITIES[::4]:
        made = text_function(identity.text, identity.dims, identity.wrt.split())
        for style in ("latex", "vec-latex"):
            yield from made.derivatives.equation_lines("jacobian", style)
        yield from (step.text for step in made.steps(made.wrt[0], "latex"))


_TOKEN = re.compile(
    r"\\(?:left|right)\s*(?:\\?[^a-zA-Z\s]|\\[a-zA-Z]+)|\\(?:begin|end)\{\w+\}|\\[a-zA-Z]+|\\.|\S"
)


def check(text: str) -> None:
    """Raise AssertionError where braces, \\left and \\right or environments do not close, or
    something has two superscripts or two subscripts."""
    closers: list[str] = []
    scripts: list[set[str]] = [set()]
    tokens = _TOKEN.findall(text)
    for position, token in enumerate(tokens):
        opener = token == "{" or token.startswith((r"\left", r"\begin"))
        if opener:
            after = tokens[position - 1] if position else ""
            if after not in ("^", "_"):
                scripts[-1] = set()
            closers.append(_closer(token))
            scripts.append(set())
        elif token == "}" or token.startswith((r"\right", r"\end")):
            expected = closers.pop() if closers else "nothing"
            assert token.startswith(expected), f"{token} closes {expected}: {text}"
            scripts.pop()
        elif token in ("^", "_"):
            assert token not in scripts[-1], f"two {token} at one atom: {text}"
            scripts[-1].add(token)
        elif not position or tokens[position - 1] not in ("^", "_"):
            scripts[-1] = set()
    assert not closers, f"{closers[-1]} is missing: {text}"


def _closer(token: str) -> str:
    if token == "{":
        return "}"
    return r"\right" if token.startswith(r"\left") else token.replace("begin", "end")


TEXTS = {"values": value_texts, "derivatives": derivative_texts, "identities": identity_texts}
