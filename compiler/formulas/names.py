"""Names in formulas: accents, Greek letters, subscripts."""

from __future__ import annotations

import re
import unicodedata

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ",
    "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "upsilon": "υ", "phi": "φ", "chi": "χ",
    "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ",
    "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip

SPELLED = {letter: name for name, letter in GREEK.items()}

LATIN = {"Chi": "X", "Eta": "H", "Rho": "P"}
"""Greek capitals, without a command in TeX, whose Latin look-alike is not their first letter."""

ACCENTS = {"bar": "\N{COMBINING MACRON}", "dot": "\N{COMBINING DOT ABOVE}"}

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def split_name(name: str) -> tuple[str, str]:
    """Split a name into base and subscript: "X1" into "X" and "1", "A_inv" into "A" and "inv"."""
    match = re.fullmatch(r"(.+?)_+([^_].*)", name) or re.fullmatch(r"(.*?[^\d_])(\d+)", name)
    base, subscript = match.groups() if match else (name, "")
    return (base.rstrip("_") or base), subscript


def unicode_name(name: str, accent: str) -> str:
    """Write a name in Unicode as it was declared; a number becomes a subscript, and the accent of a
    longer name a suffix (weights_bar)."""
    base, subscript = split_name(name)
    suffix = ""
    if accent and len(base) == 1:
        base = unicodedata.normalize("NFC", base + ACCENTS[accent])
    elif accent:
        suffix = f"_{accent}"
    if subscript.isdigit():
        return base + subscript.translate(SUBSCRIPTS) + suffix
    return (f"{base}_{subscript}" if subscript else base) + suffix


def latex_name(name: str, accent: str) -> str:
    """Write a name in LaTeX."""
    base, subscript = split_name(name)
    text = _latex_word(base)
    if accent:
        short = len(base) == 1 or base in GREEK
        text = rf"\{accent}{{{text}}}" if short else _wide(text, accent)
    return f"{text}_{{{_latex_word(subscript)}}}" if subscript else text


def latex_verbatim(name: str, accent: str) -> str:
    """Write a name in LaTeX letter by letter."""
    escaped = name.replace("_", r"\_")
    text = rf"\mathrm{{{escaped}}}"
    return _wide(text, accent) if accent else text


def _wide(text: str, accent: str) -> str:
    return rf"\overline{{{text}}}" if accent == "bar" else rf"\dot{{{text}}}"


def _latex_word(word: str) -> str:
    word = SPELLED.get(word, word)
    if word in GREEK:
        return f"\\{word}"
    if word.lower() in GREEK and word[0].isupper():
        return rf"\mathrm{{{LATIN.get(word, word[0])}}}"
    if len(word) <= 1 or word.isdigit():
        return word
    return latex_verbatim(word, "")
