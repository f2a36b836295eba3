"""English sentences with Unicode formulas, such as reasons of derivations, in LaTeX's text mode."""

from __future__ import annotations

import re
from itertools import groupby

SIGNS = {
    "−": "-", "∘": r"\circ ", "⊙": r"\odot ", "⊗": r"\otimes ", "·": r"\cdot ", "‖": r"\|",
    "⟨": r"\langle ", "⟩": r"\rangle ", "≠": r"\ne ", "≤": r"\le ", "≥": r"\ge ", "∇": r"\nabla ",
    "∂": r"\partial ", "Σ": r"\Sigma ", "Π": r"\Pi ", "Φ": r"\Phi ", "Ω": r"\Omega ",
    "Λ": r"\Lambda ", "λ": r"\lambda ", "σ": r"\sigma ", "π": r"\pi ", "½": r"\tfrac{1}{2}",
}  # fmt: skip
RAISED = {"ᵀ": r"\top", "⁻": "-", **dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))}
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))

_FORMULA = re.compile(
    r"[-+=]|\(?d?[A-Za-z]_\w+\)?[,;]?|\(?d?[A-Zb-z]\)?[,;]?|(log|exp|det|adj)|[a-z]+\(.*|.*[^\x00-\x7f].*",
    re.DOTALL,
)
"""The words of formulas; all others are English."""


def prose(text: str) -> str:
    """Write a sentence in text mode: formulas get dollars, unless they have some already."""
    parts = re.split(r"(\$[^$]*\$)", text)
    return "".join(part if part.startswith("$") else _sentence(part) for part in parts)


def _sentence(text: str) -> str:
    groups = groupby(text.split(" "), key=lambda word: bool(_FORMULA.fullmatch(word)))
    return " ".join(
        _formula(" ".join(words)) if is_formula else " ".join(words).replace("_", r"\_")
        for is_formula, words in groups
    )


def _formula(text: str) -> str:
    body = text.rstrip(",;.")
    punctuation = text[len(body) :]
    body = re.sub(f"[{''.join(RAISED)}]+", lambda match: _script("^", RAISED, match[0]), body)
    body = re.sub(f"[{''.join(LOWERED)}]+", lambda match: _script("_", LOWERED, match[0]), body)
    body = re.sub(r"_(\w{2,})", r"_{\1}", body)
    body = re.sub(r"\b(tr|det|adj|diag|softmax|log|exp)\b", r"\\operatorname{\1}", body)
    return f"${''.join(SIGNS.get(letter, letter) for letter in body).strip()}${punctuation}"


def _script(sign: str, letters: dict[str, str], text: str) -> str:
    return f"{sign}{{{''.join(letters[letter] for letter in text)}}}"
