"""Vec forms: what they say, and that they are the Jacobians and Hessians of all identities."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import derivatrix as dx
from derivatrix.compiler import cli
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.printers.numpy import NumPy
from derivatrix.compiler.formulas.vec import VecNotation
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.nodes import Leaf
from derivatrix.runtime.errors import UnsupportedError
from tests import ROOT
from tests.differentiate.test_identities import SIZES, Setting, close
from tests.identities import IDENTITIES, Identity
from tests.trees import Reader

WITHOUT = {
    # arrays with more than two axes
    'einsum("ijk,j,k->i", T, x, y)', 'einsum("ijk,ijk->", T, T)/2', 'einsum("ik,jk->ijk", A, B)',
    'einsum("iij->j", T).*x', 'log(einsum("ijk->jk", exp(T)))',
    # Fréchet derivatives of matrix functions that need not be diagonalisable
    "expm(0.5*X)", "logm(X)", "log(tr(expm(X)))", "expm(X)", "tr(A*expm(X))", "expm(s*A)*b",
    "tr(expm(X.*X)) - n", "logm(X*X' + eye)", "tr(A*logm(S))", "normF(logm(inv(A)*B))^2", "sinm(X)",
    "tr(A*sinm(X*X'))", "cosm(X)", "x'*cosm(S)*x", "tanhm(X)", "sum(tanhm(S).^2)",
    # the cross product, and sums of more factors on an axis than a product of matrices has
    "normF(skew(A*x)*B)^2", "axial(A*B)", "w'*axial(A*skew(w))",
    "log(prod(X))", "sum(log(diagvec(chol(S))))", "prod(diagvec(chol(S)))^2",
    "sum(log(diagvec(qrR(A*X))))", "sum(A.*qrQ(X))", "sum(A.*luL(X))", "sum(log(diagvec(luU(X))))",
    "sum(log(1 + (eigvalsh(S)*ones' - ones*eigvalsh(S)').^2))",
    "sum(A.*(svdU(X)*diag(w)*svdV(X)'))",
}  # fmt: skip
"""The identities with a Jacobian or Hessian, of more than two axes, that has no vec form."""


def declared(identity: Identity):
    return text_function(identity.text, identity.dims, identity.wrt.split())


def blocks(function):
    """Kind and inputs of the Jacobians or Hessians that the style writes as matrices."""
    for kind in ("jacobian", "hessian"):
        for key, node in (
            function.derivatives.results(kind).items() if kind in function.kinds else ()
        ):
            if node.ndim > 2:
                yield kind, key


def basis(leaf: Leaf | None, shape) -> np.ndarray:
    """The arrays, flattened, by which an array of this shape is made of its vec, or of what
    stands for it."""
    if len(shape) == 1:
        return np.eye(*shape)
    structure = leaf.structure if leaf else "general"
    arrays = []
    for j, i in np.ndindex(shape[1], shape[0]):
        array = np.zeros(shape)
        array[i, j] = 1
        kept = {"lower": i >= j, "upper": i <= j, "diagonal": i == j}
        if kept.get(structure, True):
            arrays.append(array)
    if structure in ("lower", "upper", "symmetric", "spd"):
        places = zip(*np.tril_indices(shape[0]), strict=True)
        arrays = [np.zeros(shape) for _ in range(shape[0] * (shape[0] + 1) // 2)]
        for array, (i, j) in zip(arrays, places, strict=True):
            if structure == "upper":
                i, j = j, i
            array[i, j] = 1
            if structure in ("symmetric", "spd"):
                array[j, i] = 1
    return np.stack([array.ravel() for array in arrays], axis=1)


def matrix(function, kind, key, jacobian: np.ndarray) -> np.ndarray:
    """The array as the matrix that the style means."""
    inputs = function.derivatives.inputs
    row = inputs[key[0]] if kind == "hessian" else None
    column = inputs[key[-1]]
    rank = jacobian.ndim - column.ndim
    left, right = basis(row, jacobian.shape[:rank]), basis(column, jacobian.shape[rank:])
    return left.T @ jacobian.reshape(len(left), len(right)) @ right


def wrt(kind, key):
    return key if kind == "hessian" else key[0]


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda row: f"{row.text} by {row.wrt}")
def test_identity(identity: Identity) -> None:
    """The texts in NumPy, and the trees of the others, against the arrays."""
    function = declared(identity)
    actual = list(blocks(function))
    setting = Setting(identity, function, SIZES[len(identity.text) % 2]) if actual else None
    missing = False
    for kind, key in actual:
        try:
            text = function.formula(kind, wrt(kind, key), "vec-numpy")
        except UnsupportedError:
            missing = True
            continue
        expected = matrix(function, kind, key, setting.all(kind)[key])
        with warnings.catch_warnings(action="ignore"):
            close(setting.oracle(text), expected, 1e-8)
            close(read(setting, kind, key), expected, 1e-8)
        check_brackets(function.formula(kind, wrt(kind, key), "vec-latex"))
    assert missing == (identity.text in WITHOUT)


def read(setting: Setting, kind, key) -> np.ndarray:
    """The array that the text for reading stands for."""
    derivatives = setting.derivatives
    builder = VecNotation(derivatives._sides(kind, key, "vec"), derivatives.results(kind)[key])
    tree, _ = builder.result()
    reader = Reader(setting.values, setting.sizes, builder.definitions)
    value = np.asarray(reader.value(tree, {}))
    return value if value.ndim == 2 else value[:, None]


def check_brackets(text: str) -> None:
    for left, right in (("(", ")"), ("{", "}"), ("\\left", "\\right")):
        assert text.count(left) == text.count(right), text


FAULTS = {
    "show_commutation": lambda self, tree: self.show_identity(
        kinds.Identity(tree.rows * tree.columns)
    ),
    "show_kronecker": lambda self, tree: self.call(
        "np.kron", [self.text(tree.right), self.text(tree.left)]
    ),
}
"""K left out, and factors in the other order."""


@pytest.mark.parametrize("method", FAULTS)
def test_a_wrong_form_is_found(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity("X'*A*X", "X: m n, A: m m", "X", "X.T @ A @ X")
    function = declared(identity)
    setting = Setting(identity, function, SIZES[0])
    expected = matrix(function, "jacobian", ("X",), setting.all("jacobian")["X",])
    close(setting.oracle(function.formula("jacobian", style="vec-numpy")), expected, 1e-12)
    monkeypatch.setattr(NumPy, method, FAULTS[method])
    with pytest.raises((AssertionError, ValueError)):
        close(setting.oracle(function.formula("jacobian", style="vec-numpy")), expected, 1e-6)


BOOKS = [
    # Magnus and Neudecker; Lütkepohl, Handbook of Matrices; Anderson; Horn and Johnson
    ("A*X*B", "A: q m, X: m n, B: n p", "X", "Bᵀ ⊗ A"),
    ("X*X", "X: n n", "X", "(I ⊗ X) + (Xᵀ ⊗ I)"),
    ("X'", "X: m n", "X", "K_mn"),
    ("X*X'", "X: m n", "X", "(X ⊗ I) + (I ⊗ X) K_mn"),
    ("inv(X)", "X: n n invertible", "X", "−(X⁻ᵀ ⊗ X⁻¹)"),
    ("inv(S)", "S: n n spd", "S", "−(S⁻¹ ⊗ S⁻¹) D_n"),
    ("logdet(S)/2", "S: n n spd", "S", "−½ D_nᵀ (S⁻¹ ⊗ S⁻¹) D_n"),
    ("log(abs(det(X)))", "X: n n invertible", "X", "−(X⁻¹ ⊗ X⁻ᵀ) K_n"),
    ("A.*X", "A: m n, X: m n", "X", "diag(vec(A))"),
    ("tr(X)^2/2", "X: n n", "X", "vec(I) vec(I)ᵀ"),
    ("(a'*X*b)^2/2", "X: m n, a: m, b: n", "X", "vec(a bᵀ) vec(a bᵀ)ᵀ"),
    ("A*x", "A: m n, x: n", "A", "xᵀ ⊗ I"),
    ("x*y'", "x: m, y: n", "x", "y ⊗ I"),
    ("diag(x)", "x: n", "x", "Ψ_n"),
    ("vec(A*X*B)", "A: q m, X: m n, B: n p", "X", "Bᵀ ⊗ A"),
    ("kron(A,X)", "A: q m, X: n p", "X", "(I ⊗ K_pq ⊗ I) (vec(A) ⊗ I)"),
    ("vech(X*X')", "X: n m", "X", "L_n (X ⊗ I) + L_n (I ⊗ X) K_nm"),
    ("L*x", "L: n n lower, x: n", "L", "(xᵀ ⊗ I) L_nᵀ"),
    ("U'*x", "U: n n upper, x: n", "U", "(xᵀ ⊗ I) L_nᵀ"),
    ("D*x", "D: n n diagonal, x: n", "D", "diag(x)"),
    ("sqrtm(X)", "X: n n", "X", "((I ⊗ sqrtm(X)) + (sqrtm(X)ᵀ ⊗ I))⁻¹"),
    ("sylvester(A,B,C)", "A: m m, B: n n, C: m n", "C", "((I ⊗ A) + (Bᵀ ⊗ I))⁻¹"),
    ("dlyap(A,Q)", "A: n n, Q: n n", "Q", "(I − (A ⊗ A))⁻¹"),
    ("chol(S)", "S: n n spd", "S", "(I ⊗ L) diag(vec(Φ(𝟏 𝟏ᵀ))) (L⁻¹ ⊗ L⁻¹) D_n  where L = chol(S)"),
]


@pytest.mark.parametrize(("text", "dims", "by", "expected"), BOOKS, ids=[row[0] for row in BOOKS])
def test_forms_read_like_a_books(text: str, dims: str, by: str, expected: str) -> None:
    function = text_function(text, dims, [by])
    kind = "hessian" if "hessian" in function.kinds else "jacobian"
    assert function.formula(kind, style="vec") == expected


def test_left_sides_say_what_is_stacked() -> None:
    def line(text, dims, by, kind="jacobian", style="vec"):
        return text_function(text, dims, [by]).derivatives.equation_lines(kind, style)[0]

    assert line("X*X", "X: n n", "X") == "∂vec Y/∂(vec X)ᵀ = (I ⊗ X) + (Xᵀ ⊗ I)"
    assert line("A*x", "A: m n, x: n", "A") == "∂y/∂(vec A)ᵀ = xᵀ ⊗ I"
    assert line("x*y'", "x: m, y: n", "x") == "∂vec Z/∂xᵀ = y ⊗ I"
    assert line("inv(S)", "S: n n spd", "S") == "∂vec Y/∂(vech S)ᵀ = −(S⁻¹ ⊗ S⁻¹) D_n"
    assert line("U*U", "U: n n upper", "U").startswith("∂vec Y/∂(vech Uᵀ)ᵀ = ")
    assert line("D*D", "D: n n diagonal", "D").startswith("∂vec Y/∂(diagonal D)ᵀ = ")
    hessian = line("logdet(S)", "S: n n spd", "S", "hessian")
    assert hessian == "∂²y/∂vech S ∂(vech S)ᵀ = −D_nᵀ (S⁻¹ ⊗ S⁻¹) D_n"
    latex = line("X'", "X: m n", "X", style="vec-latex")
    assert latex == (
        r"\frac{\partial \operatorname{vec} Y}{\partial \left(\operatorname{vec} X\right)^{\top}} "
        "= K_{mn}"
    )
    by_index = line("expm(X)", "X: n n", "X")
    assert by_index.startswith("∂Y/∂X[i,j,k,l] = "), by_index


def test_what_has_no_vec_form_says_so() -> None:
    function = text_function("expm(X)", "X: n n", ["X"])
    for style in ("vec", "vec-latex", "vec-numpy"):
        message = (
            "expression: the jacobian by X has no vec form, .* take the style 'index', or 'numpy'"
        )
        with pytest.raises(UnsupportedError, match=message):
            function.formula("jacobian", style=style)
    assert function.formula("vjp", style="vec") == function.formula("vjp")
    arguments = ["explain", "expm(X)", "--dims", "X: n n", "--style", "vec"]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0
    assert "jacobian by X: (expression: the jacobian by X has no vec form" in result.output


def test_a_batch_is_one_sample() -> None:
    """Formulas and NumPy texts are those of one sample, as in other styles."""
    n, m = dx.dims("n m")
    X, A = dx.matrix("X", n, m), dx.matrix("A", n, n)
    function = dx.function("turned", [X, A], X.T @ A @ X, batch=[X])
    generator = np.random.default_rng(0)
    values = {"X": generator.normal(size=(3, 2)), "A": generator.normal(size=(3, 3))}
    text = function.formula("jacobian", "A", "vec-numpy")
    result = eval(text, {"np": np, **values})
    np.testing.assert_allclose(result, np.kron(values["X"].T, values["X"].T))
    assert function.formula("jacobian", "A", "vec") == "Xᵀ ⊗ Xᵀ"


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(
        "```python\n(.*?)```", (ROOT / "docs" / "reference" / "vec.md").read_text("utf-8"), re.S
    )
    exec(block, {})
    assert f"# {capsys.readouterr().out}" in block


def test_modules_hold_the_styles_that_all_derivatives_have() -> None:
    module = dx.compile(dx.function("turn", [X := dx.matrix("X", 2, 2)], X @ X))
    assert list(module.FORMULAS["jacobian"]["X"]) == ["unicode", "latex", "numpy", "index"]
