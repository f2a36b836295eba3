"""Letters that formulas use as signs, which are bold in formulas with a name of the same letter.

So with an input `I`, `I + X` is that input plus X, and `𝐈 + X` the identity plus X. Names of
functions are treated alike: beside an input `tr`, a trace is `𝐭𝐫(X)`.
"""

from __future__ import annotations

import unicodedata

SIGNS = {
    "I": "identity",
    "e": "unit vector",
    "K": "commutation matrix",
    "D": "duplication matrix",
    "L": "elimination matrix",
    "Ψ": "matrix of vec diag",
    "δ": "Kronecker delta",
    "Σ": "sum",
    "d": "",
    "σ": "sigmoid",
    "π": "circle constant",
    "γ": "Euler constant",
}
"""Meanings of the letters, which explain bold signs below a formula; the d of differentials, in
each line of a derivation, needs no explanation."""


def bold(text: str) -> str:
    """Write a text in bold letters, which no name has, since Python reads them as plain ones."""
    return "".join(map(_bold_letter, text))


def _bold_letter(letter: str) -> str:
    name = unicodedata.name(letter)
    for word in (" LETTER", "LATIN ", "GREEK "):
        name = name.replace(word, "")
    try:
        return unicodedata.lookup(f"MATHEMATICAL BOLD {name}")
    except KeyError:  # an underscore, or a letter of another alphabet
        return letter
