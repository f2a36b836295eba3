"""The styles of formulas, a file each."""

from derivatrix.compiler.formulas.printers import index, latex, numpy, unicode, vec
from derivatrix.compiler.formulas.printers.base import Style
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter

STYLES: dict[str, Style] = {
    style.name: style
    for style in (
        *(unicode.STYLE, latex.STYLE, numpy.STYLE, index.STYLE),
        *(vec.STYLE, vec.LATEX, vec.NUMPY),
    )
}


def math_printers() -> dict[str, MathPrinter]:
    """The printers of the styles that are for reading, by the names of the styles."""
    printers = {name: style.printer for name, style in STYLES.items()}
    return {name: own for name, own in printers.items() if isinstance(own, MathPrinter)}
