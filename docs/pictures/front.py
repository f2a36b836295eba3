"""Draws docs/static/front.svg, the README's picture: a declaration, its formulas, its module.

Run: python docs/pictures/front.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

import derivatrix as dx

PAGE = Path(__file__).parent.parent / "static" / "front.svg"
INK, FAINT, ACCENT = "#1b1f24", "#656d76", "#0b57a4"
DECLARED = """n = dx.dims("n")
X = dx.matrix("X", n, n)
square = dx.function("square", [X], X @ X)"""


def declared() -> dx.Function:
    """Run DECLARED, and return its function."""
    scope: dict[str, object] = {"dx": dx}
    exec(DECLARED, scope)
    function = scope["square"]
    assert isinstance(function, dx.Function)
    return function


def formulas(function: dx.Function) -> list[str]:
    """Value, VJP and Jacobian as mathematics for matplotlib."""
    lines = {"value": "Y", "vjp": r"\bar{X}", "jacobian": r"\partial Y_{ij} / \partial X_{kl}"}
    return [f"${left} = {function.formula(kind, style='latex')}$" for kind, left in lines.items()]


def vjp_kernel(function: dx.Function) -> str:
    """The kernel of the VJP in the generated module, with its decorator."""
    text = Path(str(dx.compile(function).__file__)).read_text("utf-8")
    blocks = text.split("\n\n")
    return next(block for block in blocks if "def vjp_kernel" in block).strip()


def panel(axes: plt.Axes, box: tuple[float, float, float, float], title: str) -> None:
    x, y, width, height = box
    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, style, facecolor="#f6f8fa", edgecolor="#d0d7de")
    )
    axes.text(x + 0.2, y + height - 0.3, title, color=ACCENT, fontsize=11, weight="bold")


def draw(path: Path) -> None:
    plt.rcParams.update({"svg.hashsalt": "front", "mathtext.fontset": "cm"})
    figure = plt.figure(figsize=(10, 4.4), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 10), ylim=(0, 4.4))
    axes.axis("off")
    function = declared()
    mono = {"family": "monospace", "color": INK, "va": "top", "linespacing": 1.45}

    panel(axes, (0.15, 2.55, 4.75, 1.7), "you write")
    axes.text(0.35, 3.65, DECLARED, fontsize=11, **mono)
    panel(axes, (5.1, 2.55, 4.75, 1.7), "you see")
    for row, formula in enumerate(formulas(function)):
        axes.text(5.4, 3.65 - 0.4 * row, formula, fontsize=14, color=INK, va="center")
    panel(axes, (0.15, 0.15, 9.7, 2.25), "you get: square.py, verified by finite differences")
    axes.text(0.35, 1.9, vjp_kernel(function), fontsize=10.5, **mono)
    axes.text(
        0.35,
        0.32,
        "and value, jvp, jacobian, the Jacobian as an operator, for CPU and CUDA",
        fontsize=10.5,
        color=FAINT,
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(PAGE)
    print(f"wrote {PAGE}")
