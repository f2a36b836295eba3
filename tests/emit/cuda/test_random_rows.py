"""Random functions of rows of matrices, for CUDA devices: in the simulator, against the
interpreter. `pytest tests/emit/cuda/test_random_rows.py --examples 5000` tries more of them.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import derivatrix as dx
from derivatrix.compiler.frontends.notation.declaration import text_function
from tests.differentiate.test_identities import Setting
from tests.emit.cuda.test_simulated import partly_wrong, small_launches
from tests.identities import Identity
from tests.simulation import Simulator, simulated

INPUTS = {"X": "m n", "Y": "m n", "W": "n n", "Z": "k n", "x": "n", "u": "m"}
SIZES = {"m": 3, "n": 4, "k": 2}
KINDS = ("value", "vjp", "jvp", "gradient", "hvp")
MATRICES = (
    *("softmax(M)", "(M - rowmean(M)*ones')", "(M.*M)", "(diag(U)*M)", "(M + M)", "tanh(M)"),
    *("exp(-M)", "(M*W)", "(U*V')", "(softmax(M*Z')*Z)", "(softmax(M*M')*M)", "sigmoid(M)"),
)
COLUMNS = ("rowsum(M)", "logsumexp(M)", "(M*V)", "(U.*U)", "tanh(U)", "sqrt(1 + rowsum(M.^2))")
ROWS = ("colsum(M)'", "(M'*U)", "softmax(V)", "(W*V)")
WHOLE = ("M", "U", "sum(M)", "U'*U", "sum(log(1 + M.^2))", "normF(M)^2", "-sum(Y.*log(softmax(M)))")
FORMS = {"M": (MATRICES, ("X", "Y")), "U": (COLUMNS, ("u",)), "V": (ROWS, ("x",))}


@st.composite
def texts(draw: Any, depth: int = 3) -> str:
    """A function: M, U and V in a form become matrices (m, n), columns (m) and columns (n)."""

    def filled(form: str, left: int) -> str:
        def part(found: re.Match[str]) -> str:
            forms, inputs = FORMS[found[0]]
            return filled(draw(st.sampled_from(forms if left else inputs)), left - 1)

        return re.sub(r"\b[MUV]\b", part, form)

    return filled(draw(st.sampled_from(WHOLE)), draw(st.integers(1, depth)))


@simulated
def check(text: str, wrt: str) -> None:
    dims = ", ".join(f"{name}: {shape}" for name, shape in INPUTS.items() if mentions(text, name))
    function = text_function(text, dims, [wrt])
    module = dx.compile(function, target="cuda")
    setting = Setting(Identity(text, dims, wrt, ""), function, SIZES)
    kinds = [kind for kind in KINDS if kind in function.kinds]
    for by_rows in (True, False) if hasattr(module, "row_by_row") else (True,):
        with small_launches(module, by_rows):
            result = list(partly_wrong(function, module, setting, kinds))
        assert not result, f"{text} by {wrt}, by_rows={by_rows}: {result}"


def mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def test_random_functions_of_rows(request: pytest.FixtureRequest, simulator: Simulator) -> None:
    count = max(request.config.getoption("--examples") // 50, 1)

    @seed(0)
    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(text=texts(), choice=st.integers(0, 5))
    def run(text: str, choice: int) -> None:
        names = [name for name in INPUTS if mentions(text, name)]
        check(simulator, text=text, wrt=names[choice % len(names)])

    run()
