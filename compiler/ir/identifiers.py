"""Checks of names that reach generated text, whatever declares them."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata

from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DeclarationError

MAX_NAME_BYTES = 60
"""Most bytes of a name: several names make one file name."""


def require_identifier(name: object, role: str) -> str:
    """Return the name. Raises DeclarationError unless it is a short identifier."""
    if not isinstance(name, str) or not name.isidentifier() or not re.fullmatch(r"\w+", name):
        raise DeclarationError(f"the name of {role} must be a Python identifier, not {shown(name)}")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise DeclarationError(
            f"the name of {role}, {shown(name)}, has {len(name)} letters; choose one of "
            f"{MAX_NAME_BYTES} at most"
        )
    plain = unicodedata.normalize("NFKC", name)
    if plain != name:
        raise DeclarationError(f"Python reads {name!r} as {plain!r}; write the name of {role} so")
    return name


def require_name(name: object, role: str) -> str:
    """Return the name. Raises DeclarationError also for Python's keywords and builtins."""
    name = require_identifier(name, role)
    if keyword.iskeyword(name) or (keyword.issoftkeyword(name) and name != "_"):
        raise DeclarationError(f"{name!r} is a Python keyword; choose another name for {role}")
    if hasattr(builtins, name):
        raise DeclarationError(f"{name!r} shadows a Python builtin; choose another name for {role}")
    return name


def require_variable(name: object, role: str) -> str:
    """Return the name of an input, an unknown or a size. Raises DeclarationError also for names
    that formulas and generated functions reserve."""
    name = require_name(name, role)
    if name.startswith("_"):
        raise DeclarationError(
            f"the name of {role} must not start with an underscore, as {name!r} does"
        )
    if name in ("np", "scipy"):
        raise DeclarationError(f"the name {name!r} is taken; choose another for {role}")
    return name


def is_variable(name: str) -> bool:
    """Return whether `require_variable` accepts a name."""
    try:
        require_variable(name, "a variable")
    except DeclarationError:
        return False
    return True
