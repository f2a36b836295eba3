"""The gate for every name that reaches generated text, whatever declares it."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata

from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DeclarationError

LONGEST = 60
"""How many bytes a name may have: several of them make the name of one file."""


def require_identifier(name: object, what: str) -> str:
    """The name. Raises DeclarationError unless it is a short identifier, as Python reads it."""
    if not isinstance(name, str) or not name.isidentifier() or not re.fullmatch(r"\w+", name):
        raise DeclarationError(f"the name of {what} must be a Python identifier, not {shown(name)}")
    if len(name.encode()) > LONGEST:
        raise DeclarationError(
            f"the name of {what}, {shown(name)}, has {len(name)} letters; choose one of "
            f"{LONGEST} at most"
        )
    plain = unicodedata.normalize("NFKC", name)
    if plain != name:
        raise DeclarationError(f"Python reads {name!r} as {plain!r}; write the name of {what} so")
    return name


def require_name(name: object, what: str) -> str:
    """The name. Raises DeclarationError unless Python lets it be one of somebody's own."""
    name = require_identifier(name, what)
    if keyword.iskeyword(name) or (keyword.issoftkeyword(name) and name != "_"):
        raise DeclarationError(f"{name!r} is a Python keyword; choose another name for {what}")
    if hasattr(builtins, name):
        raise DeclarationError(f"{name!r} shadows a Python builtin; choose another name for {what}")
    return name


def require_variable(name: object, what: str) -> str:
    """The name of an input, an unknown or a size. Raises DeclarationError for those that formulas
    and generated functions need."""
    name = require_name(name, what)
    if name.startswith("_"):
        raise DeclarationError(
            f"the name of {what} must not start with an underscore, as {name!r} does"
        )
    if name in ("np", "scipy"):
        raise DeclarationError(f"the name {name!r} is taken; choose another for {what}")
    return name
