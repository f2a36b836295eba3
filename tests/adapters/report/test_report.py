"""Reports on functions: pages of their own, and within notebooks."""

import html

import numpy as np
import pytest
from click.testing import CliRunner

import derivatrix as dx
from derivatrix.compiler.cli import main
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.report.mathml import mathml
from derivatrix.compiler.report.page import embedded, write_report
from derivatrix.compiler.report.structure import blocks
from tests.latex import TEXTS
from tests.markup import Page, alone

n, k = dx.dims("n k")
A = dx.matrix("A", n, n, structure="symmetric")
B = dx.matrix("B", n, k)
x = dx.vector("x", k)
residual = dx.function("residual", [A, B, x], A @ B @ x, wrt=[B, x])
loss = dx.function("loss", [x], dx.sum(dx.log(1 + dx.exp(-x[:3]))), batch=[x])
STYLES = {"unicode": "Text", "latex": "LaTeX", "numpy": "NumPy", "index": "Index"}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "report.html"
    write_report([residual, loss], path)
    assert [*path.parent.iterdir()] == [path]
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def page(text):
    return alone(text)


def test_a_page_says_what_was_declared(page):
    assert page.all("h1") == ["residual(A, B, x) → (n,)", "loss(x) → ()"]
    cells = page.all("td")
    assert cells[:4] == ["A", "(n, n)", "symmetric", ""]
    assert cells[4:8] == ["B", "(n, k)", "general", "differentiated"]
    assert "differentiated, with batch axes" in cells
    assert residual.declaration in page.all("pre", class_="code")
    assert any("k >= 3" in line for line in page.all("p", class_="note"))


@pytest.mark.parametrize("style", sorted(STYLES))
@pytest.mark.parametrize(
    ("function", "kind", "name"),
    [
        (residual, "vjp", "B"),
        (residual, "jacobian", "x"),
        (loss, "gradient", "x"),
        (loss, "hvp", "x"),
    ],
)
def test_formulas_are_there_in_all_styles(page, style, function, kind, name):
    derivatives = function.derivatives
    lines = [function.formula(kind, name, style)]
    if style != "numpy":  # the others have left sides
        lines = derivatives.equation_lines(kind, style)
    assert {*lines} <= {*page.all("pre", class_="code")}
    assert STYLES[style] in page.all("h3")


def test_formulas_are_mathematics(page):
    kinds = sum(len(f.derivatives.results(kind)) for f, kind in shown_kinds())
    steps = sum(
        len(function.steps(name, "latex")) for function in (residual, loss) for name in function.wrt
    )
    assert len(page.all("math", display="block")) == kinds + steps


def shown_kinds():
    yield from ((residual, kind) for kind in ("value", "vjp", "jvp", "jacobian"))
    yield from ((loss, kind) for kind in ("value", "gradient", "jvp", "hessian", "hvp"))


def test_pictures_have_a_square_for_each_entry_that_is_not_zero(page):
    drawn = [a for tag, a, _ in page.elements if tag == "rect"]
    pictured = [*blocks(residual, {"k": 3, "n": 4}), *blocks(loss, {"k": 3})]
    assert len(drawn) == sum(np.count_nonzero(block["cells"]) for block in pictured)
    signs = [np.count_nonzero(block["cells"] > 0) for block in pictured]
    assert len([a for a in drawn if a["class"] == "positive"]) == sum(signs)


def test_the_module_is_all_there(text):
    code = text[text.index("<code>") + 6 : text.index("</code>")]
    plain = "".join(part.partition(">")[2] for part in f">{code}".split("<"))
    assert html.unescape(plain).strip() == generate(residual).text.strip()


def test_within_a_notebook_the_view_is_the_same(text):
    view = Page(embedded(loss))
    assert view.elements[0][:2] == ["div", {"class": "derivatrix"}]
    assert not {"html", "body", "title"} & {tag for tag, _, _ in view.elements}
    body = embedded(loss).partition("</style>")[2].removesuffix("</div>")
    assert body in text


def test_names_cannot_add_elements(tmp_path):
    path = tmp_path / "where.html"
    function = dx.function("f", [x], dx.where(x < 1, x, x**2))
    write_report([function], path)
    assert "np.where(x < 1, x, x**2)" in alone(path.read_text("utf-8")).all("pre", class_="code")


def test_the_command(tmp_path):
    path = tmp_path / "trace.html"
    options = ["--dims", "A: n n, X: n n", "--wrt", "X", "--html", str(path)]
    result = CliRunner().invoke(main, ["explain", "tr(A*inv(X))", *options])
    assert result.exit_code == 0 and result.output == f"wrote {path}\n"
    before = alone(path.read_text("utf-8")).all("h1")
    assert len(before) == 1 and "(A, X)" in before[0]


def test_a_file_that_cannot_be_written_stays(tmp_path, monkeypatch):
    with pytest.raises(dx.BuildError, match="cannot be written: No such file"):
        write_report([loss], tmp_path / "missing" / "report.html")
    path = tmp_path / "report.html"
    path.write_text("before")

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(dx.BuildError, match="cannot be written: No space"):
        write_report([loss], path)
    assert [*tmp_path.iterdir()] == [path] and path.read_text() == "before"


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_all_formulas_become_mathml(texts):
    for text in texts():
        mathml(text)
