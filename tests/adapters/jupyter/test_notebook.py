"""The page docs/how-to/jupyter.md as a notebook, executed."""

import json
import os
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from tests import ROOT
from tests.markup import Page
from tests.pages import blocks


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return the outputs of each cell, by MIME type."""
    folder = tmp_path_factory.mktemp("kernels")
    kernel = folder / "kernels" / "derivatrix"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {"argv": command, "display_name": "tests", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(specification), "utf-8")
    cells = [nbformat.v4.new_code_cell(block) for block in blocks("jupyter")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        NotebookClient(notebook, kernel_name="derivatrix", timeout=300).execute()
    return [
        output["data"]
        for cell in notebook.cells
        for output in cell.outputs
        if output["output_type"] == "execute_result"
    ]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (0, r"A^{-1} x"),
        (1, r"\operatorname{energy}\left(A, x\right) = x^{\top} A^{-1} x"),
        (2, r"\bar{A} = -\bar{y} A^{-\top} x x^{\top} A^{-\top}"),
        (3, r"\mathrm{d}y = \operatorname{tr}\left(\nabla^{\top} \mathrm{d}A\right)"),
        (6, r"\bar{x} = 2 \bar{y} B^{-1} x"),
    ],
)
def test_mathematics_is_latex(outputs, cell, expected):
    latex = outputs[cell]["text/latex"]
    assert latex.startswith("$") and latex.endswith("$") and latex.isascii()
    assert expected in latex


def test_a_report_is_a_short_table(outputs):
    html, text = outputs[4]["text/html"], outputs[4]["text/plain"]
    assert "<table>" in html and "energy: passed" in html
    assert len(text) < 100 and len(html) < 5000


def test_an_operator_is_a_line(outputs):
    assert "energy: Hessian by A and x: 4 x 2" in outputs[5]["text/html"]


def test_a_function_is_its_report(outputs):
    view = Page(outputs[8]["text/html"])
    assert view.all("h1") == ["form(x, B) → ()"] and view.all("math", display="block")


def test_the_magic_assigns_the_function(outputs):
    assert outputs[7]["text/plain"] == "'2 ȳ B⁻¹ x'"
