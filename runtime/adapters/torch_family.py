"""The operators of a generated module: its value and the derivatives of that."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from threading import RLock
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.library import custom_op

from derivatrix.runtime.adapters.stacks import require_same
from derivatrix.runtime.adapters.torch_kernel import Kernel
from derivatrix.runtime.adapters.torch_operator import Dispatched, Operator
from derivatrix.runtime.adapters.torch_rules import Rules
from derivatrix.runtime.errors import LoadError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.load import load

Place = tuple[str, str, str]
"""Name, file and digest of a module."""

_LOCK = RLock()
_FAMILIES: dict[tuple[ModuleType, ModuleType | None], Family] = {}
_NAMES: Counter[str] = Counter()


class Family:
    """The operators of a module by kind, and the family of the batched module, if there is one."""

    def __init__(self, module: ModuleType, batched: Family | None) -> None:
        self.interface = ModuleInterface(module)
        self.batched = batched
        if batched is not None:
            require_same(self.interface, batched.interface)
        self._calls: dict[str, Callable[..., Any]] = {}
        self.rules = Rules(self.interface, self._calls)
        self.name = _new_name(f"{self.interface.name}_{module.DIGEST}")
        self.operators: dict[str, Dispatched] = {}
        for kind in ("vjp", "jvp", "hvp"):
            if kind in self.interface.kinds:
                self._add(self._derivative(kind))
        names = [_schema_name(place, e.name) for place, e in enumerate(self.interface.inputs)]
        kernel = Kernel(self.interface, "value")
        self.value = Operator(self.name, kernel, names, self)
        self._add(self.value)
        self._fill = _filling(f"{self.name}_out", kernel, names)

    def _add(self, operator: Dispatched) -> None:
        self.operators[operator.kernel.kind] = operator
        self._calls[operator.kernel.kind] = operator.overload

    def _derivative(self, kind: str) -> Dispatched:
        kernel = Kernel(self.interface, kind)
        names = [f"argument_{place}" for place in range(len(kernel.parameters))]
        return Dispatched(f"{self.name}_{kind}", kernel, names, self)

    def fill(self, inputs: Sequence[Tensor], named: Mapping[str, Tensor], out: Tensor) -> Tensor:
        """`out`, with the value in it. Raises UnsupportedError where a gradient would be lost."""
        tensors = (*inputs, *named.values(), out)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise UnsupportedError(
                f"{self.interface.name}: has no derivatives with out=, and an argument requires "
                "them; leave out= out, or call it under torch.no_grad()"
            )
        self._fill(*inputs, **named, out=out)
        return out

    def reduced(self) -> tuple[Callable[..., Operator], tuple[Any, ...]]:
        """What pickle makes the operator of: where its modules are."""
        batched = self.batched and _place(self.batched.interface)
        return restored, (_place(self.interface), batched)


def operator_of(module: ModuleType, batched: ModuleType | None) -> Operator:
    """The operator of a module, made once."""
    with _LOCK:
        return _family(module, batched).value


def _family(module: ModuleType, batched: ModuleType | None) -> Family:
    if (module, batched) not in _FAMILIES:
        stack = None if batched is None else _family(batched, None)
        _FAMILIES[module, batched] = Family(module, stack)
    return _FAMILIES[module, batched]


def restored(place: Place, batched: Place | None) -> Operator:
    """The operator of modules at these places. Raises LoadError where there are others or none."""
    return operator_of(_found(*place), batched and _found(*batched))


def _place(interface: ModuleInterface) -> Place:
    module = interface.module
    return module.__name__, str(module.__file__), module.DIGEST


def _found(name: str, file: str, digest: str) -> ModuleType:
    """The module of a name; if it cannot be imported by that, of a file."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        module = load(file)
    if getattr(module, "DIGEST", None) != digest:
        raise LoadError(
            f"{module.__name__}: is of another build than the operator that was pickled; build the "
            "same functions with the same derivatrix, or make the operator again"
        )
    return module


def _new_name(text: str) -> str:
    """The text as a name that no other operator has."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    _NAMES[name] += 1
    return name if _NAMES[name] == 1 else f"{name}_{_NAMES[name]}"


def _schema_name(place: int, name: str) -> str:
    plain = name.isascii() and not iskeyword(name) and name != "out"
    return name if plain else f"argument_{place}"


def _filling(name: str, kernel: Kernel, names: list[str]) -> CustomOpDef:
    """The operator that writes the value to its last argument."""

    def fill(*tensors: Tensor) -> None:
        kernel.fill(tensors[-1], *tensors[:-1])

    arguments = ", ".join([*(f"Tensor {each}" for each in names), "Tensor(a!) out"])
    made = custom_op(
        f"derivatrix::{name}", fill, mutates_args={"out"}, schema=f"({arguments}) -> ()"
    )
    made.register_fake(lambda *tensors: None)
    return made
