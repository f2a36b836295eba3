"""The command line: `derivatrix build | verify | check | explain | playground`.

The compiler is imported inside the commands that need it, so `verify` works without SymPy.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from derivatrix import __version__
from derivatrix.runtime.atomic_output import abandon
from derivatrix.runtime.errors import (
    DerivatrixError,
    LongModuleWarning,
    MissingPackageError,
    UnsupportedError,
)
from derivatrix.runtime.workers import Workers, end_workers

if TYPE_CHECKING:
    from derivatrix.compiler.driver.build import BuildResult
    from derivatrix.compiler.frontends.function import Function
    from derivatrix.runtime import Report

_show_python_warning = warnings.showwarning
STAGES = ("declare", "lower", "differentiate", "simplify", "plan", "emit")
"""The stages of `pipeline`, which is imported late: it needs SymPy."""


class _Commands(click.Group):
    """A group of commands that prints derivatrix's errors as text, with exit status 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of their use

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # for formulas on any terminal
        try:
            with _clean_up_at_signals(), warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except DerivatrixError as error:
            _print_error(str(error))
            ctx.exit(1)
        except KeyboardInterrupt as error:
            _print_error(", ".join(["interrupted", *getattr(error, "__notes__", [])]))
            ctx.exit(128 + signal.SIGINT)


@contextmanager
def _clean_up_at_signals() -> Iterator[None]:
    """During a block, let signals that end the process first kill its workers and remove its
    temporary directories, unless the signals have handlers already or are ignored.

    The handlers end the process at once: Numba's compiler calls back into Python at points where
    an exception, such as KeyboardInterrupt, is printed and lost.
    """
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    handlers = {number: signal.getsignal(number) for number in numbers if number is not None}
    replaced = {number: handler for number, handler in handlers.items() if handler in defaults}
    if threading.current_thread() is not threading.main_thread():
        replaced = {}  # only the main thread may handle signals
    for number in replaced:
        signal.signal(number, _end_by_signal)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a terminal sends it to each process of a command
    end_workers()
    abandon()
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""  # progress bars hide it
    with suppress(OSError):
        os.write(2, show_cursor + b"\nderivatrix: interrupted\n")
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of derivatrix as text, others as Python does."""
    if issubclass(category, LongModuleWarning):
        _console(stderr=True).print(Text("derivatrix: ", "bold yellow") + Text(str(message)))
    else:
        _show_python_warning(message, category, filename, lineno, file, line)


def _print_error(text: str) -> None:
    _console(stderr=True).print(Text("derivatrix: ", "bold red") + Text(text))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="derivatrix")
def main() -> None:
    """Closed-form derivatives of matrix functions, as self-contained packages of Numba modules.

    A function file is a Python file that declares functions at its top level:

    \b
        import derivatrix as dx
        n = dx.dims("n")
        X = dx.matrix("X", n, n)
        square = dx.function("square", [X], X @ X)

    \b
    Start with
        derivatrix explain functions.py
        derivatrix build functions.py -o generated

    Exit status: 0 when all is well, 1 when something failed, 2 for a wrong command line.
    """


def _known_targets(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    from derivatrix.compiler.emit.targets import find_target

    try:
        for target in [value] if isinstance(value, str) else value:
            find_target(target)
    except UnsupportedError as error:
        raise click.BadParameter(str(error)) from error
    return value


class _Style(click.ParamType):
    """The name of a style of formulas."""

    name = "style"

    def get_metavar(self, *_: Any, **__: Any) -> str:
        from derivatrix.compiler.formulas import STYLES

        return f"[{'|'.join(STYLES)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from derivatrix.compiler.formulas import STYLES

        return click.Choice(list(STYLES)).convert(value, param, ctx)


_file = click.argument("file", metavar="FILE")
_files = click.argument("files", metavar="[FILE]...", nargs=-1)
_directory = click.option(
    "-o",
    "--output",
    "directory",
    metavar="DIR",
    help="The directory of the generated package.",
)
_targets = click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="[cpu|cuda]",
    callback=_known_targets,
    help="What to generate code for.  [default: cpu]",
)
_kinds = click.option(
    "--kinds",
    multiple=True,
    metavar="KIND,KIND",
    help="The kinds of functions declared without kinds=, such as value,vjp.  [default: all]",
)
_second = click.option(
    "--second",
    is_flag=True,
    help="Write modules with second derivatives of array-valued functions, too, for adapters.",
)
_dims = click.option("--dims", help='The inputs of a text: "A: p m, S: n n spd, s:".')
_wrt = click.option(
    "--wrt", multiple=True, metavar="NAME", help="Differentiate a text by this input."
)
_jobs = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of processes that work at a time.  [default: the number of cores]",
)


@main.command(short_help="Write verified modules for the functions in files.")
@_files
@_directory
@_targets
@_kinds
@_second
@click.option("--text", help="Build the function of this text, with --dims and --name, instead.")
@_dims
@_wrt
@click.option("--name", help="The name of the function of the text.")
@click.option("--no-verify", is_flag=True, help="Write the modules without checking them.")
@click.option("--warm", is_flag=True, help="Compile all kernels ahead of their first call.")
@_jobs
def build(
    files: Sequence[str],
    directory: str | None,
    targets: Sequence[str],
    kinds: Sequence[str],
    second: bool,
    text: str | None,
    dims: str | None,
    wrt: Sequence[str],
    name: str | None,
    no_verify: bool,
    warm: bool,
    jobs: int | None,
) -> None:
    """Derive, generate and verify the functions in each FILE, and write them as the package DIR.
    Without FILE and DIR, those in the table [tool.derivatrix] of ./pyproject.toml are used.

    Nothing is written unless every module passes verification. Its results are written as
    certificate.md, certificate.json and, with plots, certificate.html. Modules that the certificate
    in DIR already vouches for are not verified again. Modules in DIR from other function files, and
    files that derivatrix did not write, are left alone. FILE may name one function, as in
    functions.py:square; then DIR has no other function of that file.

    Kernels that verification compiles are kept in your cache directory, for programs on this
    machine that import DIR as a package. With --warm all kernels are compiled for them.

    \b
    Example:
        derivatrix build functions.py -o generated
        derivatrix build model.py losses.py -o generated
        derivatrix build --text "tr(A*X)" --dims "A: n m, X: m n" --name f -o generated
        python -c "from generated import square; help(square)"
    """
    from derivatrix.compiler.driver.build import build as write

    if text is None:
        if dims is not None or wrt or name is not None:
            raise click.UsageError("--dims, --wrt and --name go with --text")
        arguments = _arguments(files, directory, targets, kinds, second)
        functions, directory, targets, kinds, second = arguments
    else:
        functions = [_text_function(files, directory, text, dims, wrt, name)]
    assert directory is not None
    with _progress() as report:

        def advance(text: str, finished: int, total: int) -> None:
            hint = ": --no-verify leaves that out" if text.endswith("verifying") else ""
            report(f"{text}{hint}", finished, total)

        result = write(
            functions,
            directory,
            targets or ("cpu",),
            not no_verify,
            advance,
            warm,
            jobs,
            _names(kinds) or None,
            second,
        )
    verified = [report for report in result.reports if report.function in result.verified]
    if verified:
        _print_table(verified)
    count = _count(len(result.modules))
    changed = _file_list(result.written) or "nothing new"
    click.echo(f"{directory}: {count}, {_verdict(result)}; wrote {changed}")
    if result.removed:
        click.echo(f"{directory}: removed {_file_list(result.removed)}, of an earlier build")
    if result.outdated:
        click.echo(
            f"{directory}: {', '.join(result.outdated)}: of another version of derivatrix; build "
            "their function files, too, before these are imported"
        )


def _arguments(
    files: Sequence[str],
    directory: str | None,
    targets: Sequence[str],
    kinds: Sequence[str],
    second: bool,
) -> tuple[Sequence[Function], str, Sequence[str], Sequence[str], bool]:
    """Return the functions, directory, targets, kinds and `second` of a command line, or else those
    of the project in the working directory."""
    from derivatrix.compiler.driver.project import TABLE, find_project
    from derivatrix.compiler.frontends.function_file import load_files

    if files and directory is not None:
        return load_files(files), directory, targets, kinds, second
    if files or directory is not None:
        raise click.UsageError(
            "FILE and -o DIR go together" + ("" if files else "; FILE is missing")
        )
    project = find_project()
    if project is None:
        raise click.UsageError(
            f"name a FILE and -o DIR, or write a table {TABLE} in pyproject.toml"
        )
    return (
        project.load(),
        project.output,
        targets or project.targets,
        kinds or project.kinds,
        second or project.second,
    )


def _text_function(
    files: Sequence[str],
    directory: str | None,
    text: str,
    dims: str | None,
    wrt: Sequence[str],
    name: str | None,
) -> Function:
    from derivatrix.compiler.frontends.notation.declaration import text_function

    if files:
        raise click.UsageError("--text stands in the place of FILE")
    required = {"--dims": dims, "--name": name, "-o": directory}
    missing = ", ".join(option for option, value in required.items() if value is None)
    if missing:
        raise click.UsageError(f"--text needs {missing}, too")
    return text_function(text, str(dims), _names(wrt), str(name))


def _names(options: Sequence[str]) -> list[str]:
    return [name.strip() for option in options for name in option.split(",")]


def _file_list(names: Sequence[str]) -> str:
    """List the files of a package; of those in folders only their number."""
    top_level = [name for name in names if "/" not in name]
    counts = Counter(name.partition("/")[0] for name in names if "/" in name)
    folders = [f"{folder} ({n} file{'s' * (n != 1)})" for folder, n in sorted(counts.items())]
    return ", ".join([*top_level, *folders])


def _verdict(result: BuildResult) -> str:
    """Count the modules that were verified now, and before."""
    verified, unchanged = len(result.verified), len(result.reports) - len(result.verified)
    if not result.reports:
        return "not verified"
    if not unchanged:
        return "verified"
    return f"{verified} verified, {unchanged} unchanged"


@main.command(short_help="Check the modules of a package again, without the compiler.")
@click.argument("directory", metavar="DIR")
@click.option("-v", "--verbose", is_flag=True, help="Show every check, not only those that fail.")
@click.option("--thorough", is_flag=True, help="Compare at many points with 50 digits, too.")
@click.option("--write", is_flag=True, help="Renew the certificate in DIR.")
@_jobs
def verify(directory: str, verbose: bool, thorough: bool, write: bool, jobs: int | None) -> None:
    """Check every module in DIR against its own declaration. Nothing in DIR is changed, unless
    --write says so.

    Needs NumPy, SciPy and Numba, not the compiler. Exit status 1 if a module fails.

    \b
    Example:
        derivatrix verify generated
    """
    from derivatrix.runtime.load import package_files
    from derivatrix.runtime.parallel import verify_files

    files = package_files(directory)
    with _progress() as advance, Workers(jobs) as workers:
        reports = verify_files(files, workers, partial(advance, total=len(files)), thorough)
    _print_table(reports)
    for report in reports:
        if verbose or not report.passed:
            click.echo(f"\n{report}")
    if write:
        _certify(directory, reports)
    failed = sum(not report.passed for report in reports)
    if failed:
        click.echo(f"{directory}: {failed} of {_count(len(reports))} failed")
        sys.exit(1)
    click.echo(f"{directory}: {_count(len(reports))}, verified")


@main.command(short_help="Check that a package is up to date with its function files.")
@_files
@_directory
@_targets
@_kinds
@_second
def check(
    files: Sequence[str],
    directory: str | None,
    targets: Sequence[str],
    kinds: Sequence[str],
    second: bool,
) -> None:
    """Compare DIR with the files that `build` would write there; exit status 1 if they differ.
    Without FILE and DIR, those in the table [tool.derivatrix] of ./pyproject.toml are used.

    Nothing is written. The comparison is byte for byte, and generated text is the same on every
    machine, so CI can check with it that generated modules in a repository are up to date. A
    certificate must be complete and vouch for the modules as they are. The folders with their
    support and formulas must hold no file that derivatrix did not write. Modules in DIR from other
    function files are ignored.

    \b
    Example:
        derivatrix check functions.py -o generated
    """
    from derivatrix.compiler.driver.build import check as compare

    functions, output, all_targets, all_kinds, has_second = _arguments(
        files, directory, targets, kinds, second
    )
    differences = compare(
        functions, output, all_targets or ("cpu",), _names(all_kinds) or None, has_second
    )
    for difference in differences:
        click.echo(f"{output}: {difference.file} is {difference.state}")
    if any(difference.state == "foreign" for difference in differences):
        click.echo("remove foreign files: derivatrix did not write them", err=True)
    if any(difference.state != "foreign" for difference in differences):
        words = ["derivatrix", "build", *files, *(["-o", output] if files else [])]
        words += [word for target in targets for word in ("--target", target)]
        words += [word for kind in kinds for word in ("--kinds", kind)]
        words += ["--second"] * second
        click.echo(f"run: {shlex.join(words)}", err=True)
    if differences:
        sys.exit(1)
    has_certificate = (Path(output) / "certificate.json").is_file()
    hint = "; there is no certificate: `derivatrix verify --write` makes one"
    click.echo(f"{output}: up to date{'' if has_certificate else hint}")


@main.command(short_help="Show the formulas, plan and kernels of functions.")
@_file
@click.option("--stage", type=click.Choice(STAGES), help="Show only the result of this stage.")
@click.option(
    "--style", type=_Style(), default="unicode", show_default=True, help="The style of formulas."
)
@click.option(
    "--target",
    metavar="[cpu|cuda]",
    callback=_known_targets,
    default="cpu",
    show_default=True,
    help="The target of plan and kernels.",
)
@click.option(
    "--architecture",
    metavar="NUMBER",
    default="9.0",
    show_default=True,
    help="The compute capability of the devices for which kernels are compiled.",
)
@_dims
@_wrt
@click.option("--steps", is_flag=True, help="Show the derivation of each gradient or VJP by line.")
@click.option("--all", is_flag=True, help="Show the plan and the module, too.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write everything to this file instead, as a page for browsers.",
)
@click.pass_context
def explain(
    ctx: click.Context,
    file: str,
    stage: str | None,
    style: str,
    target: str,
    architecture: str,
    dims: str | None,
    wrt: Sequence[str],
    steps: bool,
    all: bool,
    html: Path | None,
) -> None:
    """Show the functions in FILE: declaration and formulas; with --all, plan and generated module,
    too.

    With --target cuda a table of the kernels follows, with the result of each and the resources
    that it takes on a device. This needs the CUDA toolkit (the extra `cuda`), but no device.

    FILE may name one function, as in functions.py:square. For several functions only the shapes,
    the value and the gradient or VJP are shown, unless --all is given. With --dims it is an
    expression in the text notation instead.

    With --html everything about the functions, in all styles, is written as one page for browsers
    and printers, which loads no other file. Needs the extra `html`.

    \b
    Example:
        derivatrix explain functions.py:square
        derivatrix explain functions.py:square --all
        derivatrix explain functions.py:square --stage plan
        derivatrix explain functions.py:square --target cuda
        derivatrix explain functions.py:square --html square.html
        derivatrix explain "tr(A*X*B)" --dims "A: p m, X: m n, B: n p" --wrt X
        derivatrix explain "tr(A*inv(X))" --dims "A: n n, X: n n" --wrt X --steps
    """
    from derivatrix.compiler.driver.pipeline import dump
    from derivatrix.compiler.emit.targets import find_target

    functions = _load_functions(file, dims, wrt)
    if html is not None:
        for name in ("stage", "style", "steps", "all"):
            if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--html shows everything; leave out --{name}")
        _write_report(functions, html, target)
        return
    if len(functions) > 1 and not (steps or stage or all):
        _print_index(file, functions, style)
        return
    for function in functions:
        if steps:
            _print_steps(function, style)
            continue
        if stage is not None:
            click.echo(dump(function, stage, target))
            continue
        _heading(function.name)
        click.echo(dump(function, "declare", target))
        _print_formulas(function, style)
        for name in ("plan", "emit") if all else ():
            _heading(f"{function.name}: {name}")
            click.echo(dump(function, name, target))
        if find_target(target).kernel_table:
            _print_kernels(function, target, architecture)


@main.command(short_help="Serve a page that derives functions typed on it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve at.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8642, show_default=True, help="The port."
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Another host name by which the page may be requested.",
)
def playground(host: str, port: int, allow_host: Sequence[str]) -> None:
    """Serve a page for browsers on this machine. It shows a function in the text notation, its
    derivatives and their derivation, and its module, verified and measured. Needs the extra
    `playground`.

    \b
    Example:
        derivatrix playground --port 8000
    """
    with _extra("playground", "playground"):
        import latex2mathml  # noqa: F401  worker processes import it

        from derivatrix.compiler.playground.server import serve
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        _print_error(f"{host}, port {port}: {reason}; --port chooses another")
        sys.exit(1)
    name = f"[{host}]" if ":" in host else host
    click.echo(f"http://{name}:{port}/ (Ctrl+C ends it)")
    serve(server, (name, *allow_host))


@contextmanager
def _extra(command: str, extra: str) -> Iterator[None]:
    """Raise MissingPackageError if an import of the packages of `extra`, which a command needs,
    fails in the block."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"derivatrix {command} needs packages that cannot be imported ({error}); install them "
            f"with `pip install 'derivatrix[{extra}]'`"
        ) from error


def _write_report(functions: Sequence[Function], path: Path, target: str) -> None:
    with _extra("explain --html", "html"):
        from derivatrix.compiler.report.page import write_report
    write_report(functions, path, target)
    click.echo(f"wrote {path}")


def _print_kernels(function: Function, target: str, architecture: str) -> None:
    """Print the result of each kernel for devices, and the resources that it takes."""
    from derivatrix.compiler.driver.build import compile as load_compiled
    from derivatrix.compiler.emit.cuda.resources import kernels

    _heading(f"{function.name}: kernels")
    table = _table("kernel", "registers", "shared", "stack", "spilled", "computes")
    for kernel in kernels(load_compiled(function, target)):
        used = kernel.resources(architecture)
        spilled = used.spill_stores + used.spill_loads
        numbers = map(str, (used.registers, used.shared, used.stack, spilled))
        table.add_row(kernel.name, *numbers, Text(kernel.summary))
    _console().print(table)
    click.echo(
        f"Compiled for compute capability {architecture}, float64. registers: of a thread, 32 bits "
        "each; shared: bytes of a block; stack, spilled: bytes of a thread in global memory."
    )


def _print_steps(function: Function, style: str) -> None:
    for single in function.by_output:
        for name in single.wrt:
            _heading(f"{single.name}: derivation by {name}")
            click.echo(single.steps(name, style))


def _load_functions(file: str, dims: str | None, wrt: Sequence[str]) -> Sequence[Function]:
    """Load the functions in a file, or declare that of a text."""
    from derivatrix.compiler.frontends.function_file import load_functions
    from derivatrix.compiler.frontends.notation.declaration import input_names, text_function

    if dims is not None:
        return [text_function(file, dims, _names(wrt))]
    inputs = [] if ".py" in file or os.path.exists(file) else input_names(file)
    if inputs and not file.isidentifier():
        raise click.UsageError(
            f"there is no file {file!r}; for a text give the sizes of {', '.join(inputs)}, too, as "
            f"in --dims {shlex.quote(', '.join(f'{name}: n n' for name in inputs))}"
        )
    if wrt:
        raise click.UsageError("--wrt goes with a text and its --dims; a file says wrt itself")
    return load_functions(file)


def _print_index(file: str, functions: Sequence[Function], style: str) -> None:
    """Print the shapes, the value and the gradient or VJP of each function, and the command that
    shows more of one."""
    from derivatrix.compiler.ir.dimensions import shape_text

    for function in functions:
        inputs = (f"{leaf.name} {shape_text(leaf.shape)}" for leaf in function.inputs)
        _heading(f"{function.name}({', '.join(inputs)}) -> {function.result_text}")
        _print_formula(function, "value", style)
        _print_formula(function, "gradient" if function.is_scalar else "vjp", style)
    command = shlex.join(["derivatrix", "explain", f"{file}:{functions[0].name}"])
    click.echo(f"\n{len(functions)} functions; for more about one of them: {command}")


def _print_formulas(function: Function, style: str) -> None:
    _heading(f"{function.name}: formulas")
    for kind in function.kinds:
        if kind != "value_and_gradient":  # value and gradient are printed already
            _print_formula(function, kind, style)


def _print_formula(function: Function, kind: str, style: str) -> None:
    derivatives = function.derivatives
    for key in derivatives.results(kind):
        try:
            text = derivatives.formula(kind, key or None, style)
        except UnsupportedError as error:
            text = f"({error})"
        click.echo(f"{derivatives.title(kind, key)}: {text}")


def _count(modules: int) -> str:
    return f"{modules} module{'s' * (modules != 1)}"


def _heading(text: str) -> None:
    _console().print(Text(f"\n{text}\n{'-' * len(text)}", "bold"))


def _table(*columns: str) -> Table:
    headers = (Column(column, no_wrap=True) for column in columns)
    return Table(*headers, box=None, pad_edge=False, header_style="bold")


def _print_table(reports: Sequence[Report]) -> None:
    columns = ("module", "checks", "points", "thresholds", "worst error of allowed", "where")
    table = _table(*columns, "result")
    for report in reports:
        table.add_row(*_summary(report))
    _console().print(table)
    places: dict[str, list[str]] = {}
    for report in reports:
        places.setdefault(report.place, []).append(report.function)
    for place, names in places.items():
        if place:
            click.echo(f"in {place}: {', '.join(names)}")


def _summary(report: Report) -> tuple[str | Text, ...]:
    """Return the cells of a module: name, counts of checks, points and thresholds, the worst row
    and its error, and the result."""
    from derivatrix.runtime.report import ratio_text

    points = len({row.point for row in report.rows if row.point})
    result = Text("passed", "green") if report.passed else Text("FAILED", "bold red")
    worst = next(iter(report.failures), report.worst)
    where = " ".join(filter(None, (worst.check, worst.function, worst.input))) if worst else ""
    reach = report.reach
    thresholds = f"{reach.reached} of {reach.total}" if reach.total else ""
    counts = (str(len(report.rows)), str(points), thresholds)
    return (report.function, *counts, ratio_text(worst), where, result)


def _certify(directory: str, reports: Sequence[Report]) -> None:
    """Renew the certificate, or print why that is impossible: an installed package may be
    read-only."""
    from derivatrix.compiler.driver.ownership import CERTIFICATE, own_files
    from derivatrix.runtime import write_certificate

    root = Path(directory)
    own = own_files(root, CERTIFICATE)
    for name in CERTIFICATE:
        if (root / name).exists() and name not in own:
            click.echo(f"{root / name}: derivatrix did not write it, and leaves it", err=True)
            return
    try:
        write_certificate(directory, reports)
    except OSError as error:
        click.echo(f"{directory}: the certificate was not renewed: {error.strerror}", err=True)


@contextmanager
def _progress() -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal, elsewhere a line on standard error for each step."""
    console = _console(stderr=True)
    if not console.is_terminal:
        yield _ProgressLines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
    with Progress(*columns, *times, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(text: str, finished: int, total: int) -> None:
            bar.update(task, description=text, completed=finished, total=total)

        yield advance


class _ProgressLines:
    """Progress in lines: the step that begins, and the remaining time if all steps take equally
    long."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.text = ""

    def __call__(self, text: str, finished: int, total: int) -> None:
        if text == self.text or finished == total:
            return
        self.text = text
        remaining = ""
        if 0 < finished < total:
            seconds = (time.monotonic() - self.start) / finished * (total - finished)
            remaining = f", about {seconds:.0f} s left" if seconds >= 1 else ""
        click.echo(f"[{min(finished + 1, total)}/{total}] {text}{remaining}", err=True)


def _console(stderr: bool = False) -> Console:
    """Make a console that does not wrap lines, and has colours on a terminal only."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not (stderr and console.is_terminal):  # a progress bar must fit the terminal
        console.width = 1000
    return console


if __name__ == "__main__":
    main()
