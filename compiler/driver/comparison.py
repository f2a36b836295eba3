"""Checks of declarations before their modules are verified.

The module's DECLARATION, the text with which verification compares the module, must have the value
that the interpreter of the intermediate representation computes independently, sample by sample. A
derivative declared as a function (`Function.derivative`) must agree with differences of the
original function, and structural facts about subexpressions must hold for their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import ModuleType

import numpy as np

from derivatrix.compiler.driver import pipeline
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate, evaluate_all
from derivatrix.compiler.ir.messages import operand_text
from derivatrix.compiler.ir.nodes import Node, topological
from derivatrix.compiler.ir.structure import facts
from derivatrix.runtime import sampling
from derivatrix.runtime.differences import differentiate
from derivatrix.runtime.errors import VerificationError
from derivatrix.runtime.interface import Arrays, ModuleInterface, Point
from derivatrix.runtime.reference import OutOfDomain, Text

Array = np.ndarray

MAX_ASSIGNMENTS = 2
"""Most assignments of sizes at which values are compared."""
MAX_DRAWN_POINTS = 12
"""Most points drawn for each of them, until one is in the domain."""
MAX_DIFFERENCE_ERROR = 1e-5
"""Largest error of differences that are compared with, relative to the largest entry."""
PERTURBATION = 1e-10
"""Relative perturbation of the inputs, which shows whether a value depends on rounding."""
VALUE_TOLERANCE = 1e-7
"""Allowed difference of two values, relative to the largest entry: both have rounding errors."""


def require_agreement(function: Function) -> None:
    """Raise VerificationError if the declaration's text disagrees with the declared expression, or
    a declared derivative with differences of the original function."""
    if function.output_names:
        for single in function.by_output:
            require_agreement(single)
        return
    interface = _interface(function)
    points = []
    for point, declared, expected in islice(_points(function, interface), MAX_ASSIGNMENTS):
        names = "the text of the declaration", "the interpreter's value"
        _require_close(function, point, names, declared, expected)
        _require_facts(function, point)
        points.append(point)
    original, name = function.origin
    while original is not None:
        accurate = [_is_derivative(function, original, name, interface, point) for point in points]
        if not any(accurate):
            raise VerificationError(
                f"{function.name}: no point was found where differences of {original.name} by "
                f"{name} are accurate; give the inputs a structure or domain"
            )
        function, (original, name) = original, original.origin


def _require_facts(function: Function, point: Point) -> None:
    """Raise VerificationError if a structural fact of a subexpression does not hold at one sample.
    Rules of the compiler, and functions such as `funm`, rely on these facts."""
    nodes = [node for node in topological([function.expression]) if facts(node)]
    with np.errstate(all="ignore"):
        arrays = evaluate_all(nodes, _sample(function, point.values, 0), point.sizes)
    for node, array in zip(nodes, arrays, strict=True):
        for fact in sorted(facts(node) & set(RESIDUALS)):
            residual = float(np.abs(RESIDUALS[fact](array)).max(initial=0.0))
            if residual > VALUE_TOLERANCE * np.abs(array).max(initial=1.0):
                raise VerificationError(
                    f"{function.name}: {operand_text(node)} is not {fact}, as the compiler's facts "
                    f"say: it is {residual:.3g} off ({point.label})"
                )


def _negative_eigenvalues(array: Array) -> Array:
    return np.minimum(np.linalg.eigvalsh(array), 0.0)


RESIDUALS = {
    "symmetric": lambda array: array - array.mT,
    "lower": lambda array: np.triu(array, 1),
    "upper": lambda array: np.tril(array, -1),
    "diagonal": lambda array: array * (1 - np.eye(array.shape[-1])),
    "orthogonal": lambda array: array.mT @ array - np.eye(array.shape[-1]),
    "psd": _negative_eigenvalues,
    "spd": _negative_eigenvalues,
}
"""A function for each fact, whose value is zero if the fact holds."""


def _is_derivative(
    function: Function, original: Function, name: str, interface: ModuleInterface, point: Point
) -> bool:
    """Compare `function`, the derivative of `original` by an input, with differences at one sample;
    False if these are inaccurate. Raises VerificationError if they disagree."""
    values = _sample(function, point.values, 0)
    tangent = _sample(function, point.tangents, 0)[name]
    step = sampling.tangential(interface.input(name).structure, values[name], tangent)

    def line(distance: float) -> tuple[np.ndarray, ...]:
        moved_values = {**values, name: np.asarray(values[name] + distance * step)}
        return (_interpret(original.expression, moved_values, point),)

    try:
        (estimate,) = differentiate(line, line(0.0), float(np.linalg.norm(step)))
        derivative = _interpret(function.expression, values, point)
    except OutOfDomain:
        return False
    # inaccurate differences say nothing: another point is tried
    error = float(estimate.error.max(initial=0.0))
    if error > MAX_DIFFERENCE_ERROR * np.abs(estimate.derivative).max(initial=1.0):
        return False
    names = f"differences of {original.name} by {name}", "the derivative"
    jvp = np.tensordot(derivative, step, step.ndim)
    _require_close(function, point, names, estimate.derivative, jvp, 10 * error)
    return True


def _require_close(
    function: Function,
    point: Point,
    names: tuple[str, str],
    left: np.ndarray,
    right: np.ndarray,
    error: float = 0.0,
) -> None:
    difference = float(np.abs(left - right).max(initial=0.0))
    size = float(np.abs(left).max(initial=0.0))
    # `not <=`, since a difference of nan is a failure, too
    if not difference <= error + VALUE_TOLERANCE * max(size, 1.0):
        raise VerificationError(
            f"{function.name}: {names[0]} and {names[1]} differ by {difference:.3g} where the "
            f"largest entry is {size:.3g} ({point.label}); a rule of the compiler, or of an "
            "operation of your own, is wrong"
        )


def _interface(function: Function) -> ModuleInterface:
    module = ModuleType(function.name)
    facts = pipeline.interface(function)
    vars(module).update(facts, DECLARATION=function.declaration, FORMULAS={}, DIGEST="")
    return ModuleInterface(module)


def _points(function: Function, interface: ModuleInterface) -> Iterator[tuple[Point, Array, Array]]:
    """Yield one point in the domain for each assignment of sizes that has one, with the value of
    the text and that of the interpreter."""
    for number, sizes in enumerate(sampling.assignments(interface, {})):
        random = np.random.default_rng([0, number])  # fixed: each build compares at the same points
        for point in islice(sampling.draws(interface, sizes, random), MAX_DRAWN_POINTS):
            try:
                declared = _declared_value(interface, Text(function.declaration), point)
                expected = _interpreter_value(function, point.values, point)
            except OutOfDomain:
                continue
            yield point, declared, expected
            break


def _declared_value(interface: ModuleInterface, text: Text, point: Point) -> Array:
    """Evaluate the text at a point; raises OutOfDomain if the value depends on rounding."""
    shape = interface.shape("value", "", point.sizes)
    value = text({**point.sizes, **point.values}, shape)
    inputs = {name: np.asarray(array * (1 + PERTURBATION)) for name, array in point.values.items()}
    change = np.abs(text({**point.sizes, **inputs}, shape) - value).max(initial=0.0)
    if change > VALUE_TOLERANCE * np.abs(value).max(initial=1.0):
        raise OutOfDomain("the value is not determined by the point")
    return value


def _interpreter_value(function: Function, values: Arrays, point: Point) -> np.ndarray:
    """Interpret the declared expression, one sample after the other."""
    expression = function.expression
    if not function.batch:
        return _interpret(expression, values, point)
    samples = (_sample(function, values, i) for i in range(point.sizes["batch"]))
    return np.stack([_interpret(expression, sample, point) for sample in samples])


def _sample(function: Function, values: Arrays, number: int) -> Arrays:
    return {
        name: value[number] if name in function.batch else value for name, value in values.items()
    }


def _interpret(node: Node, values: Arrays, point: Point) -> np.ndarray:
    try:
        with np.errstate(all="ignore"):
            value = evaluate(node, values, point.sizes)
    except (ArithmeticError, IndexError, ValueError) as error:  # LinAlgError is a ValueError
        raise OutOfDomain(str(error)) from error
    if not np.isfinite(value).all():
        raise OutOfDomain("the value is not finite")
    return value
