"""Generated modules in the user's cache directory: no unchanged declaration is derived again."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import sympy

from derivatrix.compiler.driver.pipeline import Generated, digest, generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.limits import stated_depth
from derivatrix.runtime.cache import write_if_different
from derivatrix.templates.support.internals.user_cache import untrusted, user_cache


def generate_once(function: Function, target: str) -> Generated:
    """Return the module for `function`: the one in the cache, or a new one that is kept there."""
    module = cached_module(function, target)
    if module is None:
        module = generate(function, target)
        keep_module(module)
    return module


def cached_module(function: Function, target: str) -> Generated | None:
    """Return the module in the cache; None where there is none, it is damaged or not the user's."""
    with stated_depth(function.name):
        name = _file_name(digest(function, target))
    try:
        path = _folder() / name
        if untrusted(path.parent) or untrusted(path):
            return None
        checksum, _, text = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None
    if checksum != _checksum(text):  # as after a crash of the machine
        return None
    fields = json.loads(text)
    return Generated(**{**fields, "support": tuple(fields["support"])})


def keep_module(module: Generated) -> None:
    """Write a module to the cache, where there is one that the user can write to."""
    text = json.dumps(vars(module))
    with suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        write_if_different(folder, {_file_name(module.digest): f"{_checksum(text)}\n{text}"})


def _folder() -> Path:
    """Return the folder of generated modules; raises what `user_cache` raises."""
    return Path(user_cache()) / "generated"


def _file_name(module_digest: str) -> str:
    """Name the file of a module. Formulas can differ between versions of SymPy."""
    return f"{module_digest}-sympy-{sympy.__version__}"


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
