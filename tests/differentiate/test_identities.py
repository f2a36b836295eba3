"""Every identity at two sizes: the value against NumPy, every derivative kind against central
differences along directions that keep the inputs' structures, the formulas as NumPy text and the
kernels as Python against the derivatives they are of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.emit.cpu.kernel_calls import filled_entries, kernel_call
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.interpret import evaluate, evaluate_all
from derivatrix.compiler.ir.nodes import Leaf, Node
from derivatrix.compiler.plan.steps import Plan
from derivatrix.runtime.reference import Text
from tests.identities import IDENTITIES, Identity
from tests.plain import run_plain
from tests.points import draw, draw_all, within

SIZES = (
    {"n": 3, "m": 4, "p": 5, "k": 2, "q": 2, "N": 6, "d": 3, "c": 2},
    {"n": 2, "m": 3, "p": 4, "k": 3, "q": 4, "N": 5, "d": 2, "c": 3},
)
STEP = 5e-4
SCOPE = {"np": np, "scipy": scipy, "la": scipy.linalg, "sp": scipy.special, "inv": np.linalg.inv}

PLACES = {
    "small": lambda array: 0.2 * array,
    "dominant": lambda array: 0.3 * array + 2 * np.eye(array.shape[-1]),
    "spread": lambda array: 0.1 * array + np.diag(np.arange(1.0, array.shape[-1] + 1)),
}
"""Restrictions of points that no structure expresses: a small matrix, a dominant diagonal, real
eigenvalues far apart."""


class Setting:
    """The function of an identity at one point."""

    def __init__(self, identity: Identity, function: Function, sizes: Mapping[str, int]) -> None:
        self.function = function
        self.derivatives = function.derivatives
        self.sizes = sizes
        self.values = draw_all(function, seed=len(identity.text), sizes=sizes)
        generator = np.random.default_rng(1)
        for leaf in function.inputs:
            structure = identity.at.get(leaf.name) or function.domains.get(leaf.name)
            if structure in PLACES:
                array = generator.normal(size=self.values[leaf.name].shape)
                self.values[leaf.name] = PLACES[structure](array)
            elif structure:
                drawn = Leaf(leaf.name, leaf.shape, structure)
                self.values[leaf.name] = draw(drawn, generator, sizes)

    def oracle(self, text: str) -> np.ndarray:
        return np.asarray(eval(text, {**SCOPE, **self.sizes, **self.values}))

    def all(self, kind: str) -> dict[tuple[str, ...], np.ndarray]:
        results = self.derivatives.results(kind)
        arrays = evaluate_all(list(results.values()), self.values, self.sizes)
        return dict(zip(results, arrays, strict=True))

    def tangent(self, name: str) -> np.ndarray:
        single = len(self.function.wrt) == 1
        return self.values["tangent" if single else f"tangent_{name}"]

    def difference(self, node: Node) -> np.ndarray:
        """The five-point central difference of a node along the tangents."""

        def moved(step: float) -> np.ndarray:
            shifted = {n: self.values[n] + step * self.tangent(n) for n in self.function.wrt}
            return evaluate(node, {**self.values, **shifted}, self.sizes)

        near, far = moved(STEP) - moved(-STEP), moved(2 * STEP) - moved(-2 * STEP)
        return (8 * near - far) / (12 * STEP)

    def along(self, jacobians: Mapping[str, np.ndarray], rank: int) -> np.ndarray:
        """The sum over the inputs of their Jacobian times their tangent."""
        pieces = [
            np.tensordot(jacobian, self.tangent(name), jacobian.ndim - rank)
            for name, jacobian in jacobians.items()
        ]
        return np.sum(pieces, axis=0)


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize(
    ("identity", "sizes"),
    [
        pytest.param(
            *(identity, sizes),
            id=f"{identity.text} by {identity.wrt}, sizes {second + 1}",
            marks=[] if number % 2 == second else pytest.mark.thorough,
        )
        for number, identity in enumerate(IDENTITIES)
        for second, sizes in enumerate(SIZES)
    ],
)
def test_identity(identity: Identity, sizes: dict[str, int]) -> None:
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    setting = Setting(identity, function, sizes)
    check_value(setting, identity.numpy)
    check_first(setting)
    if "gradient" in function.kinds:
        check_second(setting)
    check_formulas(setting)
    check_plans(setting)


def check_value(setting: Setting, text: str) -> None:
    expected = setting.oracle(text)
    declared = evaluate(setting.function.expression, setting.values, setting.sizes)
    close(declared, expected, 1e-9)
    written = Text(setting.function.declaration)
    close(written({**setting.sizes, **setting.values}, expected.shape), expected, 1e-9)
    close(setting.all("value")[()], expected, 1e-9)


def check_first(setting: Setting) -> None:
    jvp = setting.all("jvp")[()]
    close(jvp, setting.difference(setting.function.expression), 1e-7)
    forward = np.vdot(jvp, setting.values["cotangent"])
    backward = [np.vdot(v, setting.tangent(k)) for (k,), v in setting.all("vjp").items()]
    close(np.asarray(sum(backward)), np.asarray(forward), 1e-8)
    jacobians = {name: array for (name,), array in setting.all("jacobian").items()}
    close(setting.along(jacobians, jvp.ndim), jvp, 1e-8)


def check_second(setting: Setting) -> None:
    gradients, hessian = setting.all("gradient"), setting.all("hessian")
    values = {**setting.values, "cotangent": np.ones(())}
    for key, pulled in setting.derivatives.results("vjp").items():
        close(gradients[key], evaluate(pulled, values, setting.sizes), 1e-8)
    for key, product in setting.all("hvp").items():
        change = setting.difference(setting.derivatives.results("gradient")[key])
        leaf = setting.derivatives.inputs[key[0]]
        close(product, within(leaf, setting.values[leaf.name], change), 1e-7)
        row = {other: hessian[(*key, other)] for other in setting.function.wrt}
        close(setting.along(row, product.ndim), product, 1e-8)


def check_formulas(setting: Setting) -> None:
    for kind in {*setting.function.kinds} - {"value_and_gradient"}:  # both are there already
        for key, expected in setting.all(kind).items():
            text = setting.function.formula(kind, key or None, "numpy")
            close(setting.oracle(text), expected, 1e-8)


def check_plans(setting: Setting) -> None:
    """The kernels' texts, run by Python instead of Numba, in every order of multiplication."""
    function = setting.function
    for kind in function.kinds:
        kernel = kernel_plan(function.derivatives, kind)
        check_conditions(kernel, setting.sizes)
        nodes = list(function.derivatives.kernel(kind)[1].values())
        for plan in (kernel, *kernel.variants):
            if not plan.equations:  # these need Newton's method, which is Numba's
                expected = evaluate_all(nodes, setting.values, setting.sizes)
                outputs = [np.full(array.shape, np.nan) for array in expected]
                run_plain(plan, setting.values, outputs)
                for output, array in zip(outputs, expected, strict=True):
                    close(output, array, 1e-8)


def check_conditions(kernel: Plan, sizes: dict[str, int]) -> None:
    """Texts by which public functions and verification choose read the sizes of the function."""
    for condition in kernel_call(kernel).conditions:
        assert eval(condition, {}, sizes) is True
    assert eval(filled_entries(kernel) or "0", {}, sizes) >= 0


COMPILED = (
    "[A, x; y', s]",
    "softmax(Q*K'/sqrt(d))*V",
    "-N/2*log(2*pi) - x'*x/2",
    "log(besseli(0, s))",
    "skew(w)*v",
)


@pytest.mark.parametrize(
    "identity",
    [
        row if row.text in COMPILED else pytest.param(row, marks=pytest.mark.thorough)
        for row in IDENTITIES
    ],
    ids=lambda row: f"{row.text} by {row.wrt}",
)
def test_kernels(identity: Identity) -> None:
    """Kernels of a few; those of all operations are tested with the operations."""
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    report = dx.verify(dx.compile(function))
    assert report.passed, str(report)
