"""What the texts of all generated modules have: templates, formulas, names that are kept."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import jinja2
import numpy as np

from derivatrix.compiler.emit.description import ModuleDescription
from derivatrix.compiler.emit.imports import Imports, support_digest
from derivatrix.compiler.emit.texts import literal, quoted
from derivatrix.runtime.errors import DeclarationError
from derivatrix.version import VERSION


@cache
def environment(autoescape: bool = False) -> jinja2.Environment:
    """The templates; with `autoescape` what they print is escaped for HTML."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("derivatrix.templates", ""),
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
    """A module's text: what every module begins with, and the parts that its template prints."""
    return (
        environment()
        .get_template(template)
        .render(
            docstring=quoted(module.docstring),
            packages=imports.package_lines(),
            support_digest=support_digest(),
            support=imports.support_lines(),
            facts=[(name, literal(value)) for name, value in module.facts.items()],
            constants=[(name, literal(a.tolist())) for name, a in sorted(constants.items())],
            definitions=imports.texts.values(),
            owner=module.name,
            **parts,
        )
    )


def check_names(
    module: ModuleDescription, text: str, helpers: Iterable[str], taken: Iterable[str] = ()
) -> None:
    """Raise DeclarationError where a name of the declaration hides what a function of the text
    calls so. Helpers, which are not looked at, are read by kernels. taken: what kernels take under
    the module's own name for it."""
    public = {function.name for function in module.everything}
    body = [each for each in ast.parse(text).body if getattr(each, "name", "") not in helpers]
    imports = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
    made = {name for each in body if each not in imports for name in _bound(each)}
    made -= {*module.facts, *public, *taken, *helpers}
    read = {*made, *helpers, *(name for each in imports for name in _bound(each))}
    for function in body:
        if not isinstance(function, ast.FunctionDef):
            continue
        parameters = {each.arg for each in function.args.args}
        names = [each for each in ast.walk(function) if isinstance(each, ast.Name)]
        assigned = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        hidden = (parameters | assigned) & {*read, f"check_{function.name}"} | parameters & assigned
        for name in sorted(hidden):
            raise DeclarationError(
                f"{module.name}: no input or size can be called {name}; the generated module needs "
                "this name"
            )


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level of a module gives something."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)
    elif isinstance(statement, ast.Assign):
        yield from (each.id for each in statement.targets if isinstance(each, ast.Name))


def formulas_text(name: str, formulas: Mapping[str, object]) -> str:
    """The text of the file with a module's formulas."""
    template = environment().get_template("formulas.py.jinja")
    return template.render(version=VERSION, name=name, formulas=literal(formulas))
