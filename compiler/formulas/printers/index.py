"""Each entry by its indices, in Unicode."""

from derivatrix.compiler.formulas.printers.base import Style
from derivatrix.compiler.formulas.printers.unicode import UNICODE

STYLE = Style("index", UNICODE, by_index=True)
