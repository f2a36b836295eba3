"""The letters that formulas use as signs, and their bold forms, which are written beside a name
with the same letter.

So `I + X` with an input `I` is not read as the identity plus X, which is `𝐈 + X`. Names of
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
"""The letters, and what a line below the formula says of their bold forms: nothing of d, the
differential, which is in each line of a derivation."""


def bold(text: str) -> str:
    """The text in bold letters. No name has these: Python reads them as plain ones."""
    return "".join(map(_bold_letter, text))


def _bold_letter(letter: str) -> str:
    name = unicodedata.name(letter)
    for word in (" LETTER", "LATIN ", "GREEK "):
        name = name.replace(word, "")
    try:
        return unicodedata.lookup(f"MATHEMATICAL BOLD {name}")
    except KeyError:  # an underscore, or a letter of another alphabet
        return letter
