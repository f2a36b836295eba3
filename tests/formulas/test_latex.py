"""TeX can read all formulas in LaTeX."""

import pytest

from tests.latex import TEXTS, check


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_texts_are_latex(texts) -> None:
    for text in texts():
        check(text)


@pytest.mark.parametrize(
    "text",
    [
        r"A^{+}^{\top}",
        r"\sigma_{1}_{2}",
        r"\left[x\right]_{x = 1}_{kl}",
        r"A_{i}^{2}_{j}",
        r"\frac{1}{2",
        r"\left(A",
        r"\left(A\right)}",
        r"\begin{bmatrix} 1 \end{cases}",
    ],
)
def test_what_tex_refuses_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check(text)


@pytest.mark.parametrize(
    "text", [r"A_{1}^{\top} A^{2}", r"\left(A^{+}\right)^{\top}", r"x_{i_{j}}^{2}"]
)
def test_what_tex_reads_is_not(text: str) -> None:
    check(text)
