"""Sums over all entries of an array, or of a product of two, and multiples of arrays, as calls."""

from __future__ import annotations

import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate, kernel_plan
from derivatrix.compiler.emit.cpu.kernel import kernel_text
from derivatrix.compiler.ir.nodes import topological
from tests.plain import check_plain

n, m = dx.dims("n m")
A, B, C = dx.matrix("A", n, m), dx.matrix("B", n, m), dx.matrix("C", m, n)
S, x = dx.matrix("S", n, n), dx.vector("x", n)
SIZES = {"n": 4, "m": 3}

CALLS = {
    "all entries": (dx.sum(A), ["out[()] = sum_entries(A)"]),
    "of a vector": (3 * dx.sum(x), ["out[()] = real(3) * sum_entries(x)"]),
    "a square": (dx.sum(A * A), ["out[()] = inner_product(A, A)"]),
    "of two": (dx.sum(A * B), ["out[()] = inner_product(A, B)"]),
    "negative": (-dx.sum(A * B) / 2, ["out[()] = -real(0.5) * inner_product(A, B)"]),
    "needed in a loop": (
        A * dx.sum(A * B),
        [
            "a0 = inner_product(A, B)",
            "set_multiple(a0, A, out)  # out = a0 A",
        ],
    ),
}
CALLS |= {
    "a multiple": (3 * A, ["set_multiple(real(3), A, out)  # out = real(3) A"]),
    "a difference": (
        3 * A - dx.sum(x) * B,
        [
            "a0 = sum_entries(x)",
            "set_combination(real(3), A, -a0, B, out)  # out = real(3) A - a0 B",
        ],
    ),
}
LOOPS = {
    "a row times a number each": A * dx.sum(B, 1)[:, None],
    "entries of the transpose": 2 * A.T,
    "three multiples": 2 * A + 3 * B + 4 * dx.tanh(A),
    "transposed": dx.trace(A @ C),
    "of three": dx.sum(A * A * B),
    "of functions": dx.sum(dx.tanh(A) * B),
    "a row each": dx.sum(A * B, 1),
    "a diagonal": dx.trace(S),
    "a part": dx.sum(A[1:, :] * B[1:, :]),
}


def lines_of(output: dx.Array) -> list[str]:
    """The steps of the value's kernel."""
    inputs = [leaf for leaf in (A, B, C, S, x) if leaf.node in topological([output.node])]
    function = dx.function("f", inputs, output)
    check_plain(function, "value", SIZES)
    kernel = kernel_plan(function.derivatives, "value")
    text = kernel_text(kernel.whole, "f", "")
    return [line for step in text.steps for line in step.lines]


@pytest.mark.parametrize("case", CALLS)
def test_sums_over_all_entries_are_calls(case: str) -> None:
    output, expected = CALLS[case]
    assert lines_of(output) == expected


@pytest.mark.parametrize("case", LOOPS)
def test_other_sums_are_loops(case: str) -> None:
    lines = lines_of(LOOPS[case])
    assert any("for" in line for line in lines)
    assert not any("inner_product" in line or "sum_entries" in line for line in lines)


def test_a_kernel_with_calls_alone_adds_in_order() -> None:
    text = generate(dx.function("f", [A, B], dx.sum(A * B))).text
    assert (
        "reassoc" not in text[text.index("def value_kernel") - 200 : text.index("def vjp_kernel")]
    )
