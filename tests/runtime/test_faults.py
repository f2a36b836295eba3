"""A fixed sample of planted faults; `python -m tests.faults` tries them all."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import softmax

import derivatrix as dx
from derivatrix import runtime
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.report import LARGEST_ENTRY, Row
from tests import faults
from tests.fakes import entry, fake
from tests.faults import Call, Fault, planted

SAMPLE = (
    ("square", "vjp"),
    ("product", "jacobian"),
)


@pytest.mark.parametrize(("name", "kind"), SAMPLE)
def test_every_class_of_faults_is_caught(name, kind):
    (function,) = [function for function in faults.functions() if function.name == name]
    module = dx.compile(function)
    tried = dict(faults.faults(ModuleInterface(module)))
    missed = [label for label, fault in tried.items() if not faults.caught(module, kind, fault)]
    assert len(tried) > 14 and not missed


def of_vector(name: str, declaration: str, value: Callable, jacobian: Callable) -> ModuleType:
    functions = {
        "value": value,
        "vjp": lambda x, cotangent: cotangent @ jacobian(x),
        "jvp": lambda x, tangent: jacobian(x) @ tangent,
        "jacobian": jacobian,
    }
    output = {"shape": ("n",), "batched": False}
    return fake(name, [entry("x", "n")], output, declaration, functions, {})


def weights() -> ModuleType:
    return of_vector(
        "weights",
        "scipy.special.softmax(x)",
        softmax,
        lambda x: np.diag(softmax(x)) - np.outer(softmax(x), softmax(x)),
    )


def unit_vector() -> ModuleType:
    def jacobian(x):
        length = np.linalg.norm(x)
        return np.eye(len(x)) / length - np.outer(x, x) / length**3

    return of_vector(
        "unit_vector", "x / np.sqrt(np.sum(x * x))", lambda x: x / np.linalg.norm(x), jacobian
    )


def bounded() -> ModuleType:
    return of_vector(
        "bounded",
        "np.minimum(np.maximum(x, -1.0), 0.5) * x",
        lambda x: np.clip(x, -1, 0.5) * x,
        lambda x: np.diag(np.where((x > -1) & (x < 0.5), 2 * x, np.clip(x, -1, 0.5))),
    )


def layer() -> ModuleType:
    """tanh(W x) for a batch of x."""

    def slope(x, W):
        return 1 - np.tanh(x @ W.T) ** 2

    def vjp(x, W, cotangent):
        return [(cotangent * slope(x, W)) @ W, (cotangent * slope(x, W)).T @ x]

    def jacobian(x, W):
        by_weights = np.einsum("bi,ij,bk->bijk", slope(x, W), np.eye(len(W)), x)
        return [slope(x, W)[:, :, None] * W, by_weights]

    functions = {
        "value": lambda x, W: np.tanh(x @ W.T),
        "vjp": vjp,
        "jvp": lambda x, W, dx, dW: slope(x, W) * (dx @ W.T + x @ dW.T),
        "jacobian": jacobian,
    }
    inputs = [entry("x", "d", batched=True), entry("W", "c", "d")]
    output = {"shape": ("c",), "batched": True}
    return fake("layer", inputs, output, "np.tanh(x @ W.T)", functions, {})


def add(array: np.ndarray) -> np.ndarray:
    return array + 1e-3 * (1 + np.abs(array))


def to_zero(array: np.ndarray) -> np.ndarray:
    return 0.0 * array


def to_nan(array: np.ndarray) -> np.ndarray:
    return np.nan * array


class Case(NamedTuple):
    make: Callable[[], ModuleType]
    kind: str
    alter: Callable[[np.ndarray], np.ndarray]
    when: Callable[[Call], bool]


def shorter_than(length: float) -> Callable[[Call], bool]:
    return lambda call: bool(np.linalg.norm(call.arrays["x"]) < length)


def between(low: float, high: float) -> Callable[[Call], bool]:
    return lambda call: bool(((call.arrays["x"] > low) & (call.arrays["x"] < high)).any())


def some(name: str, test: Callable[[np.ndarray], np.ndarray]) -> Callable[[Call], bool]:
    return lambda call: bool(np.any(test(call.arrays[name])))


CASES = {
    "nan where exp overflows": Case(weights, "vjp", to_nan, some("x", lambda a: a > 900)),
    "nan in one function": Case(weights, "jacobian", to_nan, some("x", lambda a: a > 900)),
    "zero at short vectors": Case(unit_vector, "vjp", to_zero, shorter_than(0.03)),
    "zero at very short vectors": Case(unit_vector, "jvp", to_zero, shorter_than(1e-8)),
    "upper threshold too high": Case(bounded, "vjp", add, between(0.5, 0.5001)),
    "upper threshold too low": Case(bounded, "jvp", add, between(0.4999, 0.5)),
    "lower threshold too low": Case(bounded, "value", add, between(-1.0001, -1.0)),
    "zero cotangent": Case(bounded, "vjp", add, lambda call: not call.arrays["cotangent"].any()),
    "zero entry of a tangent": Case(layer, "jvp", add, some("tangent_W", lambda a: a == 0)),
    "large cotangent": Case(
        weights, "vjp", lambda a: 1.001 * a, some("cotangent", lambda a: a > 10)
    ),
    "ones": Case(layer, "vjp", add, lambda call: bool((call.arrays["cotangent"] == 1).all())),
    "positive tangents": Case(
        weights, "jvp", lambda a: 1.01 * a, lambda call: bool((call.arrays["tangent"] > 0).all())
    ),
    "negative cotangents": Case(
        weights, "vjp", lambda a: 1.01 * a, lambda call: bool((call.arrays["cotangent"] < 0).all())
    ),
    "a negative zero": Case(layer, "jvp", add, some("x", lambda a: (a == 0) & np.signbit(a))),
    "an entry of 2": Case(bounded, "jacobian", add, some("x", lambda a: a == 2)),
    "an entry above a million": Case(layer, "vjp", add, some("x", lambda a: a > 1e6)),
    "no samples": Case(layer, "vjp", lambda a: a + 7, lambda call: not len(call.arrays["x"])),
}


def verified(module: ModuleType) -> runtime.Report:
    for kind in module.FUNCTIONS:
        texts = {key: {"numpy": ""} for key in ModuleInterface(module).keys(kind)}
        module.FORMULAS.setdefault(kind, texts)
    report = runtime.verify(module)
    rows = tuple(row for row in report.rows if row.check != "formula")
    return runtime.Report(report.function, report.digest, rows)


@pytest.mark.parametrize("make", [weights, unit_vector, bounded, layer])
def test_a_right_module_passes_at_special_points(make):
    report = verified(make())
    assert report.passed, str(report)


@pytest.mark.parametrize("name", CASES)
def test_a_fault_at_special_points_alone_is_caught(name):
    case = CASES[name]
    module = case.make()
    with planted(module, case.kind, Fault(case.alter, case.when)):
        failures = verified(module).failures
    assert failures and {row.function for row in failures} <= {case.kind, "jvp", "vjp"}


def test_a_row_that_allows_everything_says_so():
    """And the certificate gives errors in parts of what is allowed."""
    right = Row("value", "value", "", "point 1", 3.1e-10, 1e-9, True)
    loose = Row("adjoint", "jvp", "", "point 1", 0.5, 2.5, True, LARGEST_ENTRY)
    report = runtime.Report("f", "0", (right, loose))
    assert not loose.decides and right.decides
    assert report.title == (
        "f: passed 2 checks, 1 of which decide nothing; worst error 0.31 of what is allowed"
    )
    assert report.worst == right
