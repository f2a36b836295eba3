"""Extension of the adapters in `derivatrix.runtime.adapters` from generated modules to declared
functions, which are compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.function import Function

P = ParamSpec("P")
R = TypeVar("R")


def compiling(
    adapter: Callable[Concatenate[ModuleType, P], R],
) -> Callable[Concatenate[ModuleType | Function, P], R]:
    """Let the first argument of an adapter be a `dx.Function`, too."""

    @wraps(adapter)
    def adapted(module: ModuleType | Function, /, *arguments: P.args, **options: P.kwargs) -> R:
        return adapter(module_of(module), *arguments, **options)

    return adapted


def module_of(subject: Any) -> ModuleType:
    """Return a generated module as it is; compile a `dx.Function` for the CPU."""
    if isinstance(subject, ModuleType):
        return subject
    from derivatrix.compiler.driver.build import compile

    return compile(subject)
