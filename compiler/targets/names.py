"""The names that the support of generated modules takes."""

from __future__ import annotations

from importlib import resources
from symtable import symtable

from derivatrix.templates import support

FOLDERS = ("common", "cpu")


def helper_names() -> set[str]:
    """Collect the names that helper kernels for the CPU define or import at the top level: a local
    variable of a kernel with such a name would hide the helper. The files are parsed, not imported,
    since Numba takes long to import."""
    return {
        symbol.get_name()
        for folder in FOLDERS
        for file in resources.files(f"{support.__name__}.{folder}").iterdir()
        if file.name.endswith(".py")
        for symbol in symtable(file.read_text(encoding="utf-8"), file.name, "exec").get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
