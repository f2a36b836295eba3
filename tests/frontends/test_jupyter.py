"""The display of declared functions in notebooks, and the notebook's magic, without a notebook."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

import derivatrix as dx
from derivatrix.compiler.formulas.printers.latex_prose import prose
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.jupyter import cell_function
from tests import ROOT

n = dx.dims("n")
X = dx.matrix("X_0", n, n)
energy = dx.function("my_energy", [X], dx.trace(X.T @ X))


class Shell(SimpleNamespace):
    """The part of IPython's shell that the extension uses."""

    def __init__(self):
        html = SimpleNamespace(for_type=lambda kind, view: self.views.update({kind: view}))
        formatters = SimpleNamespace(formatters={"text/html": html})
        super().__init__(user_ns={}, magics={}, views={}, display_formatter=formatters)

    def register_magic_function(self, function, magic_kind, magic_name):
        self.magics[magic_kind, magic_name] = function


def test_the_magic_declares_and_shows():
    shell = Shell()
    dx.load_ipython_extension(shell)
    magic = shell.magics["cell", "derivatrix"]
    shown = magic('form --dims "x: n, A: n n" --wrt x', "x'*A\n*x\n")
    assert shell.user_ns["form"].wrt == ("x",)
    assert shown is shell.user_ns["form"].derivatives
    assert r"\bar{x} = " in shown._repr_latex_()


def test_without_the_extra_a_function_stays_latex(monkeypatch):
    shell = Shell()
    dx.load_ipython_extension(shell)
    monkeypatch.setitem(sys.modules, "latex2mathml", None)
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    for name in ("mathml", "parts", "page"):
        monkeypatch.delitem(sys.modules, f"derivatrix.compiler.report.{name}", raising=False)
    assert shell.views[dx.Function](energy) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("form", "Missing option '--dims'"),
        ('form --dims "x: n" --sizes 3', "No such option"),
        ('form --dims "x: n', "No closing quotation"),
        ('form --dims "x: n" --wrt y', "wrt names 'y'"),
    ],
)
def test_wrong_options_of_the_magic(line, reason):
    with pytest.raises(dx.DeclarationError, match=reason):
        cell_function(line, "x'*x")


def test_loading_the_package_imports_no_ipython():
    code = "import sys, derivatrix, derivatrix.jupyter; assert 'IPython' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_arrays_functions_and_derivatives_are_latex():
    assert X._repr_latex_() == r"$\displaystyle X_{0}$"
    assert energy._repr_latex_().startswith(
        r"$\displaystyle \operatorname{my\_energy}\left(X_{0}\right) ="
    )
    latex = dx.derive(energy)._repr_latex_()
    assert latex.startswith(r"$$\begin{aligned} & y = ") and latex.isascii()
    assert repr(dx.derive(energy)) == "\n".join(dx.derive(energy).equations())


def test_steps_are_those_that_explain_prints():
    steps = energy.steps()
    assert [step.text for step in steps] == [step.text for step in energy.steps("X_0")]
    assert "[the trace is linear]" in str(steps) or "[differential of a product]" in str(steps)
    latex = energy.steps(X, style="latex")
    assert all((step.text + step.reason).isascii() for step in latex)
    assert steps._repr_latex_() == latex._repr_latex_()
    assert r"\text{[collected: $\mathrm{d}y = " in latex._repr_latex_()
    with pytest.raises(dx.DeclarationError, match="steps names 'Z'"):
        energy.steps("Z")


def test_every_rule_can_be_said_in_latex():
    for operation in OPERATIONS.values():
        text = prose((operation.differential.__doc__ or "").split("\n\n")[0])
        assert text.isascii(), text
        assert text.count("$") % 2 == 0


def test_sentences_with_formulas():
    assert prose("the trace is cyclic") == "the trace is cyclic"
    assert prose("inverse: dY = −Y dA Y (8.4)") == "inverse: $dY = -Y dA Y$ (8.4)"
    assert prose("a_b: $x_1$ and Aᵀ B⁻¹") == r"a\_b: $x_1$ and $A^{\top} B^{-1}$"
