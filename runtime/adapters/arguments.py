"""Arguments in the order of a module's function, given by place or by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from numbers import Real
from typing import Any

import numpy as np

from derivatrix.runtime.errors import UnsupportedError


def signature_of(names: Iterable[str]) -> Signature:
    """The signature of a function of these parameters."""
    return Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])


def in_order(
    owner: str, names: Iterable[str], arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments in the order of `names`. Raises UnsupportedError, which names `owner` and the
    parameters, where one is missing, or too much."""
    signature = signature_of(names)
    try:
        return signature.bind(*arguments, **named).args
    except TypeError as error:
        parameters = ", ".join(signature.parameters)
        raise UnsupportedError(f"{owner}: {error}; it takes {parameters}") from error


def number(value: Any) -> Any:
    """A number of Python or NumPy as one of NumPy's floats, of the type that functions of modules
    take it for; anything else as it is."""
    if not isinstance(value, Real) or isinstance(value, np.float32):
        return value
    return np.float64(value)
