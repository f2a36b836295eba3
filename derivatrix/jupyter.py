"""The cell magic `%%derivatrix`, which declares a function in the text notation.

    %load_ext derivatrix

    %%derivatrix quad --dims "x: n, A: n n" --wrt x
    x'*A*x

assigns the function to `quad` and shows its derivatives. Functions are shown as the page that
`derivatrix explain --html` writes, where the extra `html` is installed.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.runtime.errors import DeclarationError

__all__ = ["register"]


def register(shell: Any) -> None:
    """Register the magic, and the view of functions, with an IPython shell."""

    def declare(line: str, cell: str) -> Derivatives:
        function = cell_function(line, cell)
        shell.user_ns[function.name] = function
        return function.derivatives

    shell.register_magic_function(declare, magic_kind="cell", magic_name="derivatrix")
    shell.display_formatter.formatters["text/html"].for_type(Function, view)


def view(function: Function) -> str | None:
    """Return the page of a function as HTML; None, for the plain formula, without the extra."""
    try:
        from derivatrix.compiler.report.page import embedded
    except ModuleNotFoundError as error:
        if str(error.name).startswith("derivatrix"):  # not of the extra: a fault
            raise
        return None
    return embedded(function)


def cell_function(line: str, cell: str) -> Function:
    """Declare the function of a cell, with the options of the line `%%derivatrix`. Raises
    DeclarationError for wrong options, and the errors of `text_function`."""
    try:
        name, dims, wrt = _options.main(shlex.split(line), standalone_mode=False)
    except (click.ClickException, ValueError) as error:
        reason = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise DeclarationError(
            f'%%derivatrix: {reason} Expected: %%derivatrix NAME --dims "x: n, A: n n" [--wrt x]'
        ) from error
    names = [name.strip() for option in wrt for name in option.split(",")]
    return text_function(" ".join(cell.split()), dims, names, name)


@click.command("%%derivatrix", add_help_option=False)
@click.argument("name")
@click.option("--dims", required=True)
@click.option("--wrt", multiple=True)
def _options(name: str, dims: str, wrt: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    return name, dims, wrt
