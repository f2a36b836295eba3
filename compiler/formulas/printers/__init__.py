"""The styles of formulas and their printers."""

from derivatrix.compiler.formulas.printers.base import Style
from derivatrix.compiler.formulas.printers.latex import Latex
from derivatrix.compiler.formulas.printers.mathematics import UNICODE, MathPrinter
from derivatrix.compiler.formulas.printers.numpy import NumPy

LATEX, NUMPY = Latex(), NumPy()

STYLES: dict[str, Style] = {
    "unicode": Style(UNICODE),
    "latex": Style(LATEX),
    "numpy": Style(NUMPY),
    "index": Style(UNICODE, by_index=True),
    "vec": Style(UNICODE, vec=True),
    "vec-latex": Style(LATEX, vec=True),
    "vec-numpy": Style(NUMPY, vec=True),
}


def math_printers() -> dict[str, MathPrinter]:
    """Return the printers of the styles for reading, by the names of the styles."""
    printers = ((name, style.printer) for name, style in STYLES.items())
    return {name: printer for name, printer in printers if isinstance(printer, MathPrinter)}
