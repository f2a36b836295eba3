"""Common parts of all generated modules: templates, second files, reserved names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import jinja2
import numpy as np

from derivatrix.compiler.emit.description import ModuleDescription
from derivatrix.compiler.emit.imports import Imports, support_digest, support_files
from derivatrix.compiler.emit.signatures import operand_names
from derivatrix.compiler.emit.texts import literal, quoted
from derivatrix.compiler.plan.steps import Plan
from derivatrix.compiler.plan.visit import all_names
from derivatrix.runtime.errors import DeclarationError
from derivatrix.version import VERSION

HELPERS = (
    *("_Expected", "_LinAlgError", "_coerce", "_cotangents", "_deliver", "_destinations"),
    *("_empty", "_named", "_ndarray", "_raise_shape_error", "_real"),
)
"""Names of `common.arguments` that the public functions of every target refer to."""
HEADING = ("SUPPORT", "DIGEST", "built_with", "generated")
"""The names that the heading of every module defines or imports."""


@cache
def environment(autoescape: bool = False) -> jinja2.Environment:
    """Return the environment of the templates; autoescape: escape values for HTML."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("derivatrix.templates", ""),
        # a misspelt name in a template is an error; by default it would print nothing
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=autoescape,
    )


def rendered(
    template: str,
    module: ModuleDescription,
    imports: Imports,
    constants: Mapping[str, np.ndarray],
    **parts: object,
) -> str:
    """Render a module: the heading of every module, and the `parts` of its template."""
    return (
        environment()
        .get_template(template)
        .render(
            docstring=quoted(module.docstring),
            packages=imports.package_lines(),
            support_digest=support_digest(),
            support=imports.support_lines(),
            digest=literal(module.facts["DIGEST"]),
            constants=[(name, literal(a.tolist())) for name, a in sorted(constants.items())],
            definitions=imports.texts.values(),
            owner=module.name,
            **parts,
        )
    )


def check_names(
    module: ModuleDescription, imports: Imports, plans: Iterable[Plan], names: Iterable[str]
) -> None:
    """Raise DeclarationError if an array, scalar or size of a kernel has a name that the module
    itself needs. names: the module's kernels."""
    aliases = {alias for _, _, alias in imports.packages}
    module_names = {*HEADING, *aliases, *imports.names, *names}
    for plan in plans:
        parameters = {*operand_names(plan), *(size.local for size in plan.sizes)}
        constants = {name for name, _ in plan.constants}
        hidden = (parameters | {*all_names(plan.steps)}) & {*module_names, f"check_{plan.name}"}
        for name in sorted(hidden | parameters & constants):
            raise DeclarationError(
                f"{module.name}: no input or size can be called {name}; the generated module needs "
                "this name"
            )


def data_text(
    module: ModuleDescription,
    imports: Imports,
    facts: Mapping[str, object],
    lines: Sequence[str],
    helpers: Iterable[str] = (),
) -> tuple[str, tuple[str, ...]]:
    """Render the second file of a module: its public constants, in capitals, `facts` for its
    support, and `lines`, the public functions; list the support files that it and the module need.
    imports: those of the module. helpers: functions of the support, "target.file.function", that
    the lines refer to besides `HELPERS`."""
    inner = Imports()
    inner.require("collections", "namedtuple")
    inner.require("math")
    for path in (*(f"common.arguments.{name}" for name in HELPERS), *helpers):
        inner.add(path)
    support = support_files([*imports.support.values(), *inner.support.values()])
    constants = {**module.facts, "FORMULAS": module.formulas, **facts, "support": support}
    template = environment().get_template("data.py.jinja")
    text = template.render(
        version=VERSION,
        name=module.name,
        digest=literal(module.facts["DIGEST"]),
        imports=[*inner.package_lines(), *inner.support_lines(level=2)],
        constants=[(name, literal(value)) for name, value in constants.items()],
        lines=lines,
    )
    return text, support
