"""Modules of functions with several outputs: calls, errors, and faults that verification finds."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

n = dx.dims("n")
X, y = dx.matrix("X", n, n), dx.vector("y", n)
turn = dx.function("turn", [X, y], {"forward": X @ y, "back": X.T @ y, "size": y @ y})
NAMES = ("forward", "back", "size")
MATRIX, VECTOR = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, -1.0])


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return dx.compile(turn)


def test_results_have_the_names_of_the_outputs(module: ModuleType) -> None:
    value = module.value(MATRIX, VECTOR)
    assert value._fields == NAMES
    np.testing.assert_allclose(value.back, MATRIX.T @ VECTOR)
    assert type(value.size) is np.float64
    jacobian = module.jacobian(MATRIX, VECTOR)
    assert jacobian._fields == NAMES and jacobian.size._fields == ("X", "y")
    np.testing.assert_allclose(jacobian.back.y, MATRIX.T)
    operator = module.jacobian_operator(MATRIX, VECTOR).forward.y
    np.testing.assert_allclose(operator @ VECTOR, MATRIX @ VECTOR)
    tangent = module.jvp(MATRIX, VECTOR, np.zeros((2, 2)), VECTOR)
    np.testing.assert_allclose(tangent.forward, MATRIX @ VECTOR)


def test_cotangents_are_a_tuple_and_none_is_zero(module: ModuleType) -> None:
    u, v = np.array([1.0, 2.0]), np.array([0.5, -3.0])
    whole = module.vjp(MATRIX, VECTOR, (u, v, 2.0))
    expected = np.outer(u, VECTOR) + np.outer(VECTOR, v)
    np.testing.assert_allclose(whole.X, expected)
    np.testing.assert_allclose(whole.y, MATRIX.T @ u + MATRIX @ v + 4 * VECTOR)
    np.testing.assert_allclose(module.vjp(MATRIX, VECTOR, (u, None, None)).X, np.outer(u, VECTOR))
    named = module.Value(None, None, 1.0)
    np.testing.assert_allclose(module.vjp(MATRIX, VECTOR, named).y, 2 * VECTOR)
    single = MATRIX.astype(np.float32), VECTOR.astype(np.float32)
    assert module.vjp(*single, (None, v.astype(np.float32), None)).X.dtype == np.float32
    from_lists = module.vjp(MATRIX.tolist(), VECTOR.tolist(), [u.tolist(), None, 0])
    np.testing.assert_allclose(from_lists.X, np.outer(u, VECTOR))


def test_out_has_the_structure_of_the_result(module: ModuleType) -> None:
    out = module.Value(np.empty(2), np.empty(2), np.empty(()))
    returned = module.value(MATRIX, VECTOR, out=out)
    assert returned.forward is out.forward and returned.size is out.size
    np.testing.assert_allclose(out.forward, MATRIX @ VECTOR)


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (VECTOR, TypeError, "argument cotangent is ndarray of dtype float64; expected a tuple of the"),
    ({"forward": VECTOR}, TypeError, "argument cotangent is dict; expected a tuple"),
    ((VECTOR,), ValueError, "has 1 parts; expected one for each output: forward, back, size"),
    ((VECTOR, None, VECTOR), ValueError, r"argument cotangent.size has shape \(2,\)"),
    ((np.ones(3), None, None), ValueError, r"argument cotangent.forward has shape \(3,\); exp"),
    (("x", None, None), TypeError, "argument cotangent.forward is 'x'; expected real numbers"),
]


@pytest.mark.parametrize(("cotangent", "error", "message"), REFUSED)
def test_wrong_cotangents(
    module: ModuleType, cotangent: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        module.vjp(MATRIX, VECTOR, cotangent)


def test_a_named_tuple_with_other_names(module: ModuleType) -> None:
    vjp = module.vjp(MATRIX, VECTOR, (None, None, 1.0))
    with pytest.raises(ValueError, match="has 2 parts called X, y; expected one for each output"):
        module.vjp(MATRIX, VECTOR, vjp)


def test_kinds_of_scalar_functions_are_refused(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="turn: there is no gradient; a function that returns"):
        module.gradient  # noqa: B018
    with pytest.raises(UnsupportedError, match="turn: it has the outputs forward, back, size"):
        ModuleInterface(module)


def test_verification_names_the_outputs(module: ModuleType) -> None:
    report = dx.verify(module)
    assert report.passed
    functions = {row.function for row in report.rows}
    assert {"value of back", "jacobian of size", "vjp of forward", "vjp"} <= functions


def swapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def fault(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        return result._replace(forward=result.back, back=result.forward)

    return fault


def swapped_cotangents(function: Callable[..., Any]) -> Callable[..., Any]:
    def fault(*arguments: Any, **options: Any) -> Any:
        *inputs, (forward, back, size) = arguments
        return function(*inputs, (back, forward, size), **options)

    return fault


def last_cotangent_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Each cotangent alone is right; of several, the first is dropped."""

    def fault(*arguments: Any, **options: Any) -> Any:
        *inputs, (forward, back, size) = arguments
        dropped = back is not None and size is not None
        return function(*inputs, (None if dropped else forward, back, size), **options)

    return fault


FAULTS = (
    ("value", swapped),
    ("jvp", swapped),
    ("jacobian", swapped),
    ("jacobian_operator", swapped),
    ("vjp", swapped_cotangents),
    ("vjp", last_cotangent_alone),
)


@pytest.mark.parametrize(("kind", "fault"), FAULTS)
def test_planted_faults_are_found(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: str, fault: Callable[..., Any]
) -> None:
    monkeypatch.setattr(module, kind, fault(getattr(module, kind)))
    report = dx.verify(module, sizes={"n": 3})
    assert not report.passed
    assert any(row.function.startswith(kind.removesuffix("_operator")) for row in report.failures)


def test_a_swapped_declaration_is_found(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = module.DECLARATION
    exchanged = {**texts, "forward": texts["back"], "back": texts["forward"]}
    monkeypatch.setattr(module, "DECLARATION", exchanged)
    assert not dx.verify(module, sizes={"n": 3}).passed


def test_a_module_for_cuda() -> None:
    pytest.importorskip("numba_cuda")
    report = dx.verify(dx.compile(turn, target="cuda"), sizes={"n": 3})
    assert report.passed
    assert "vjp of back" in {row.function for row in report.rows}
