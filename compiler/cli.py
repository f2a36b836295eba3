"""The command line: `derivatrix build | verify | check | explain`.

The compiler is imported inside the commands that need it, so `verify` works without SymPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from derivatrix import __version__
from derivatrix.runtime.errors import DerivatrixError

if TYPE_CHECKING:
    from derivatrix.compiler.function import Function
    from derivatrix.runtime import Report

TARGETS = ("cpu", "cuda")
STAGES = ("declare", "lower", "differentiate", "simplify", "plan", "emit")
STYLES = ("unicode", "latex", "numpy", "index")


class _Commands(click.Group):
    """Prints errors that derivatrix raises on purpose as text, with exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # formulas, on any terminal
        try:
            return super().invoke(ctx)
        except DerivatrixError as error:
            _console(stderr=True).print(Text("derivatrix: ", "bold red") + Text(str(error)))
            ctx.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="derivatrix")
def main() -> None:
    """Closed-form derivatives of matrix functions, as self-contained Numba modules.

    A function file is a Python file that declares functions at its top level:

    \b
        import derivatrix as dx
        n = dx.dims("n")
        X = dx.matrix("X", n, n)
        square = dx.function("square", [X], X @ X)

    Exit status: 0 when all is well, 1 when something failed, 2 for a wrong command line.
    """


_file = click.argument("file", metavar="FILE")
_directory = click.option(
    "-o", "--output", "directory", required=True, metavar="DIR", help="The generated package."
)
_targets = click.option(
    "--target",
    "targets",
    multiple=True,
    type=click.Choice(TARGETS),
    default=("cpu",),
    show_default=True,
    help="What to generate code for; may be given more than once.",
)


@main.command()
@_file
@_directory
@_targets
@click.option("--no-verify", is_flag=True, help="Write the modules without checking them.")
def build(file: str, directory: str, targets: Sequence[str], no_verify: bool) -> None:
    """Derive, generate and verify the functions in FILE, and write them as the package DIR.

    Nothing is written unless every module passes verification; what it found is kept as
    certificate.md and certificate.json. FILE may name one function, as in functions.py:square.

    \b
    Example:
        derivatrix build functions.py -o generated
        python -c "from generated import square; help(square)"
    """
    from derivatrix.compiler.build import build as write
    from derivatrix.compiler.functionfile import load_functions

    functions = load_functions(file)
    with _progress() as advance:
        result = write(functions, directory, targets, not no_verify, advance)
    if result.reports:
        _print_table(result.reports)
    count = f"{len(result.modules)} module{'s' * (len(result.modules) != 1)}"
    proof = "verified" if result.reports else "not verified"
    changed = ", ".join(result.written) or "nothing new"
    click.echo(f"{directory}: {count}, {proof}; wrote {changed}")
    if result.removed:
        click.echo(f"{directory}: removed {', '.join(result.removed)}, which FILE has no more")


@main.command()
@click.argument("directory", metavar="DIR")
@click.option("-v", "--verbose", is_flag=True, help="Show every check, not only those that fail.")
def verify(directory: str, verbose: bool) -> None:
    """Check every module in DIR against its own declaration, and renew the certificate there.

    Needs NumPy, SciPy and Numba, not the compiler. Exit status 1 if a module fails.

    \b
    Example:
        derivatrix verify generated
    """
    from derivatrix.runtime import load_package
    from derivatrix.runtime import verify as check_module

    modules = load_package(directory)
    reports = []
    with _progress() as advance:
        for done, (name, module) in enumerate(modules.items()):
            announce = partial(advance, done=done, total=len(modules))
            announce(f"{name}: verifying")
            reports.append(check_module(module, progress=announce))
    _print_table(reports)
    for report in reports:
        if verbose or not report.passed:
            click.echo(f"\n{report}")
    _certify(directory, reports)
    if not all(report.passed for report in reports):
        sys.exit(1)


@main.command()
@_file
@_directory
@_targets
def check(file: str, directory: str, targets: Sequence[str]) -> None:
    """Compare DIR with what `build` would write there now; exit status 1 if they differ.

    Nothing is written. The comparison is byte for byte, and generated text is the same on every
    machine, so this tells in CI whether generated modules that are kept in a repository are fresh.

    \b
    Example:
        derivatrix check functions.py -o generated
    """
    from derivatrix.compiler.build import check as compare
    from derivatrix.compiler.functionfile import load_functions

    differences = compare(load_functions(file), directory, targets)
    for difference in differences:
        click.echo(f"{directory}: {difference.file} is {difference.state}")
    if differences:
        options = "".join(f" --target {target}" for target in targets if len(targets) > 1)
        click.echo(f"run: derivatrix build {file} -o {directory}{options}", err=True)
        sys.exit(1)
    click.echo(f"{directory}: up to date")


@main.command()
@_file
@click.option("--stage", type=click.Choice(STAGES), help="Dump what this stage makes, only.")
@click.option(
    "--style",
    type=click.Choice(STYLES),
    default="unicode",
    show_default=True,
    help="How to write formulas.",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="cpu",
    show_default=True,
    help="Whose plan and kernels to show.",
)
def explain(file: str, stage: str | None, style: str, target: str) -> None:
    """Show the functions in FILE: declaration, formulas, plan and generated module.

    FILE may name one function, as in functions.py:square.

    \b
    Example:
        derivatrix explain functions.py:square
        derivatrix explain functions.py:square --stage plan
    """
    from derivatrix.compiler.functionfile import load_functions
    from derivatrix.compiler.pipeline import dump

    for function in load_functions(file):
        if stage is not None:
            click.echo(dump(function, stage, target))
            continue
        _heading(function.name)
        click.echo(dump(function, "declare", target))
        _print_formulas(function, style)
        for name in ("plan", "emit"):
            _heading(f"{function.name}: {name}")
            click.echo(dump(function, name, target))


def _print_formulas(function: Function, style: str) -> None:
    _heading(f"{function.name}: formulas")
    for kind in function.kinds:
        if kind == "value_and_gradient":  # both are there already
            continue
        for key in function.derivatives.results(kind):
            by = f" by {', '.join(key)}" if key else ""
            click.echo(f"{kind}{by}: {function.formula(kind, key or None, style)}")


def _heading(text: str) -> None:
    _console().print(Text(f"\n{text}\n{'-' * len(text)}", "bold"))


def _print_table(reports: Sequence[Report]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("module", "checks", "points", "largest error", "allowed", "where", "result"):
        table.add_column(header, no_wrap=True)
    for report in reports:
        table.add_row(*_summary(report))
    _console().print(table)


def _summary(report: Report) -> tuple[str | Text, ...]:
    """Name, counts, the worst failure or else the worst derivative, and the result."""
    differences = [row for row in report.rows if row.check == "differences"]
    ordered = [*report.failures, *sorted(differences, key=lambda row: row.error, reverse=True)]
    points = len({row.point for row in report.rows if row.point})
    result = Text("passed", "green") if report.passed else Text("FAILED", "bold red")
    numbers: tuple[str, ...] = ("", "", "")
    if ordered:
        worst = ordered[0]
        where = " ".join(filter(None, (worst.check, worst.function, worst.input)))
        numbers = (f"{worst.error:.1e}", f"{worst.tolerance:.1e}", where)
    return (report.function, str(len(report.rows)), str(points), *numbers, result)


def _certify(directory: str, reports: Sequence[Report]) -> None:
    """Renew the certificate where that is possible: an installed package may be read-only."""
    from derivatrix.compiler.ownership import CERTIFICATE, own_files
    from derivatrix.runtime import write_certificate

    root = Path(directory)
    for name in CERTIFICATE:
        if (root / name).exists() and name not in own_files(root):
            click.echo(f"{root / name}: not derivatrix's, and left as it is", err=True)
            return
    try:
        write_certificate(directory, reports)
    except OSError as error:
        click.echo(f"{directory}: the certificate was not renewed: {error.strerror}", err=True)


@contextmanager
def _progress() -> Iterator[Callable[..., None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    console = _console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)

        def advance(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        yield advance


def _console(stderr: bool = False) -> Console:
    """Rich's console, with colours on a terminal only; elsewhere it does not wrap lines."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 160
    return console


if __name__ == "__main__":
    main()
