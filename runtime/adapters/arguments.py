"""Arguments by position or name, in the order of a module's function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from numbers import Real
from typing import Any

import numpy as np

from derivatrix.runtime.errors import UnsupportedError


def signature_of(names: Iterable[str]) -> Signature:
    """Make the signature of a function with these parameters."""
    return Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])


def in_order(
    owner: str, names: Iterable[str], arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments in the order of `names`. Raises UnsupportedError, which names `owner`
    and the parameters, for a missing or superfluous one."""
    signature = signature_of(names)
    try:
        return signature.bind(*arguments, **named).args
    except TypeError as error:
        parameters = ", ".join(signature.parameters)
        raise UnsupportedError(f"{owner}: {error}; it takes {parameters}") from error


def number(value: Any) -> Any:
    """Convert a number to float64, as functions of modules do, unless it is a float32; return
    anything else as it is."""
    if not isinstance(value, Real) or isinstance(value, np.float32):
        return value
    return np.float64(value)
