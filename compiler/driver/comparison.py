"""Before a build is verified: two values of each declaration that have nothing in common.

One is that of the module's DECLARATION, the text with which verification compares the module; the
other that of the interpreter of the intermediate representation, sample by sample. A derivative
that is declared as a function of its own (`Function.derivative`) is compared with differences of
the function that it comes from. And what is known of the structure of its parts is looked at.
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

SIZE_CHOICES = 2
"""At how many choices of sizes the values are compared."""
ATTEMPTS = 12
"""How many points are drawn at each of them, until one is in the domain."""
DIFFERENCE_TOLERANCE = 1e-5
"""How accurate differences must be, in parts of the largest entry."""
PERTURBATION = 1e-10
"""By which part of themselves inputs are changed, to see whether a value depends on rounding."""
VALUE_TOLERANCE = 1e-7
"""How far apart values may be, in parts of the largest entry: two ways to compute them, not one."""


def require_agreement(function: Function) -> None:
    """Raise VerificationError where the declaration's text, or what a derivative comes from, has
    another value than the declared expression."""
    interface = _interface(function)
    points = []
    for point, declared, expected in islice(_points(function, interface), SIZE_CHOICES):
        names = "the text of the declaration", "the interpreter's value"
        _require_close(function, point, names, declared, expected)
        _require_facts(function, point)
        points.append(point)
    before, name = function.origin
    while before is not None:
        found = [_is_derivative(function, before, name, interface, point) for point in points]
        if not any(found):
            raise VerificationError(
                f"{function.name}: no point was found where differences of {before.name} by {name} "
                "are accurate; give the inputs a structure or domain"
            )
        function, (before, name) = before, before.origin


def _require_facts(function: Function, point: Point) -> None:
    """Compare what is known of the parts of the declared expression, by which it may have been
    made (as by `funm`), with their values at one sample."""
    nodes = [node for node in topological([function.expression]) if facts(node)]
    with np.errstate(all="ignore"):
        arrays = evaluate_all(nodes, _sample(function, point.values, 0), point.sizes)
    for node, array in zip(nodes, arrays, strict=True):
        for fact in sorted(facts(node) & set(RESIDUALS)):
            apart = float(np.abs(RESIDUALS[fact](array)).max(initial=0.0))
            if apart > VALUE_TOLERANCE * np.abs(array).max(initial=1.0):
                raise VerificationError(
                    f"{function.name}: {operand_text(node)} is not {fact}, as the compiler's facts "
                    f"say: it is {apart:.3g} off ({point.label})"
                )


def _negative(array: Array) -> Array:
    """The eigenvalues that are negative."""
    return np.minimum(np.linalg.eigvalsh(array), 0.0)


RESIDUALS = {
    "symmetric": lambda array: array - array.mT,
    "lower": lambda array: np.triu(array, 1),
    "upper": lambda array: np.tril(array, -1),
    "diagonal": lambda array: array * (1 - np.eye(array.shape[-1])),
    "orthogonal": lambda array: array.mT @ array - np.eye(array.shape[-1]),
    "psd": _negative,
    "spd": _negative,
}
"""For each fact, what is zero where it holds."""


def _is_derivative(
    function: Function, before: Function, name: str, interface: ModuleInterface, point: Point
) -> bool:
    """Whether `function` is the derivative of `before`, by differences at one sample; False where
    these are not accurate. Raises VerificationError where it is not."""
    values = _sample(function, point.values, 0)
    tangent = _sample(function, point.tangents, 0)[name]
    step = sampling.tangential(interface.input(name).structure, values[name], tangent)

    def line(distance: float) -> tuple[np.ndarray, ...]:
        moved = {**values, name: np.asarray(values[name] + distance * step)}
        return (_interpreted(before.expression, moved, point),)

    try:
        (estimate,) = differentiate(line, line(0.0), float(np.linalg.norm(step)))
        derivative = _interpreted(function.expression, values, point)
    except OutOfDomain:
        return False
    error = float(estimate.error.max(initial=0.0))
    if error > DIFFERENCE_TOLERANCE * np.abs(estimate.derivative).max(initial=1.0):
        return False
    names = f"differences of {before.name} by {name}", "the derivative"
    along = np.tensordot(derivative, step, step.ndim)
    _require_close(function, point, names, estimate.derivative, along, 10 * error)
    return True


def _require_close(
    function: Function,
    point: Point,
    names: tuple[str, str],
    one: np.ndarray,
    other: np.ndarray,
    error: float = 0.0,
) -> None:
    apart = float(np.abs(one - other).max(initial=0.0))
    size = float(np.abs(one).max(initial=0.0))
    if not apart <= error + VALUE_TOLERANCE * max(size, 1.0):
        raise VerificationError(
            f"{function.name}: {names[0]} and {names[1]} differ by {apart:.3g} where the largest "
            f"entry is {size:.3g} ({point.label}); a rule of the compiler, or of an operation of "
            "your own, is wrong"
        )


def _interface(function: Function) -> ModuleInterface:
    module = ModuleType(function.name)
    facts = pipeline.interface(function)
    vars(module).update(facts, DECLARATION=function.declaration, FORMULAS={}, DIGEST="")
    return ModuleInterface(module)


def _points(function: Function, interface: ModuleInterface) -> Iterator[tuple[Point, Array, Array]]:
    """Points in the domain, one at each of some choices of sizes, with the text's value and the
    interpreter's."""
    for number, sizes in enumerate(sampling.assignments(interface, {})):
        random = np.random.default_rng([0, number])
        for point in islice(sampling.draws(interface, sizes, random), ATTEMPTS):
            try:
                declared = _declared_value(interface, Text(function.declaration), point)
                expected = _interpreter_value(function, point.values, point)
            except OutOfDomain:
                continue
            yield point, declared, expected
            break


def _declared_value(interface: ModuleInterface, text: Text, point: Point) -> Array:
    """The text's value at a point; OutOfDomain where rounding errors would be a part of it."""
    shape = interface.shape("value", "", point.sizes)
    value = text({**point.sizes, **point.values}, shape)
    moved = {name: np.asarray(array * (1 + PERTURBATION)) for name, array in point.values.items()}
    apart = np.abs(text({**point.sizes, **moved}, shape) - value).max(initial=0.0)
    if apart > VALUE_TOLERANCE * np.abs(value).max(initial=1.0):
        raise OutOfDomain("the value is not determined by the point")
    return value


def _interpreter_value(function: Function, values: Arrays, point: Point) -> np.ndarray:
    """The interpreter's value, one sample after the other."""
    if not function.batch:
        return _interpreted(function.expression, values, point)
    samples = range(point.sizes["batch"])
    expression = function.expression
    return np.stack(
        [_interpreted(expression, _sample(function, values, i), point) for i in samples]
    )


def _sample(function: Function, values: Arrays, number: int) -> Arrays:
    return {
        name: value[number] if name in function.batch else value for name, value in values.items()
    }


def _interpreted(node: Node, values: Arrays, point: Point) -> np.ndarray:
    try:
        with np.errstate(all="ignore"):
            value = evaluate(node, values, point.sizes)
    except (ArithmeticError, IndexError, ValueError) as error:  # LinAlgError is a ValueError
        raise OutOfDomain(str(error)) from error
    if not np.isfinite(value).all():
        raise OutOfDomain("the value is not finite")
    return value
