"""A formula style is one file and an entry in the list, as docs/developers/architecture.md says."""

import re
from typing import Any

import pytest
from click.testing import CliRunner

from derivatrix.compiler import cli
from derivatrix.compiler.differentiate.derivation import derivation
from derivatrix.compiler.formulas.printers import STYLES
from derivatrix.compiler.frontends.notation.declaration import text_function
from tests import ROOT
from tests.identities import IDENTITIES

PAGE = ROOT / "docs" / "developers" / "architecture.md"


@pytest.fixture(autouse=True)
def ascii_style(monkeypatch: pytest.MonkeyPatch) -> None:
    """The style of the page, in the list of styles."""
    blocks = re.findall("```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "STYLE = " in block)
    scope: dict[str, Any] = {}
    exec(code, scope)
    monkeypatch.setitem(STYLES, "ascii", scope["STYLE"])


def test_all_formulas_are_printed_in_the_style_of_the_page() -> None:
    for identity in IDENTITIES[::4]:
        function = text_function(identity.text, identity.dims, identity.wrt.split())
        for name in function.wrt:
            text = function.formula("vjp", name, style="ascii")
            assert text.isascii(), text


def test_the_style_has_derivations_and_a_place_on_the_command_line() -> None:
    function = text_function("X*X", "X: n n")
    assert function.formula("vjp", style="ascii") == "Y_bar X' + X' Y_bar"
    assert function.formula("jacobian", style="ascii") == "delta[i,k] X[l,j] + delta[j,l] X[i,k]"
    assert "\n".join(function.derivatives.equations("ascii")).isascii()
    assert derivation(function.derivatives, "X", "ascii")[0].text == "d(X^2) = X dX + dX X"
    arguments = ["explain", "X*X", "--dims", "X: n n", "--steps", "--style", "ascii"]
    result = CliRunner().invoke(cli.main, arguments)
    assert "d(X^2) = X dX + dX X" in result.output
    assert "ascii" in CliRunner().invoke(cli.main, ["explain", "--help"]).output
    wrong = CliRunner().invoke(cli.main, ["explain", "X*X", "--style", "roman"])
    assert "'roman' is not one of 'unicode', 'latex'" in wrong.output
