"""The operators of PyTorch for one generated module: its value, VJP, JVP and HVP."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from keyword import iskeyword
from threading import RLock
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.library import custom_op

from derivatrix.runtime.adapters.second import second_of
from derivatrix.runtime.adapters.stacks import require_same
from derivatrix.runtime.adapters.torch_kernel import Kernel
from derivatrix.runtime.adapters.torch_operator import Dispatched, Operator, TupleOperator
from derivatrix.runtime.adapters.torch_rules import Rules
from derivatrix.runtime.errors import LoadError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface, interface_of
from derivatrix.runtime.load import load

Location = tuple[str, str, str]
"""Name, file and DIGEST of a module."""

_LOCK = RLock()
_FAMILIES: dict[tuple[ModuleType, ModuleType | None], Family] = {}
_NAMES: Counter[str] = Counter()
"""Uses of each operator name: PyTorch wants distinct ones."""


class Family:
    """The operators of a module by kind, and the family of its batched module, if there is one."""

    def __init__(self, module: ModuleType, batched: Family | None) -> None:
        self.interface = interface_of(module)
        self.batched = batched
        if batched is not None:
            require_same(self.interface, batched.interface)
        self._calls: dict[str, Callable[..., Any]] = {}
        self.rules = Rules(self.interface, self._calls, lambda: self.second.rules)
        name = re.sub(r"\W", "_", f"{self.interface.name}_{module.DIGEST}", flags=re.ASCII)
        _NAMES[name] += 1
        name = name if _NAMES[name] == 1 else f"{name}_{_NAMES[name]}"
        self.operators: dict[str, Dispatched] = {}
        for kind in ("vjp", "jvp", "hvp"):
            if kind in self.interface.kinds:
                kernel = Kernel(self.interface, kind)
                parameters = [f"argument_{i}" for i in range(len(kernel.parameters))]
                self._add(Dispatched(f"{name}_{kind}", kernel, parameters, self))
        parameters = [_schema_name(i, entry.name) for i, entry in enumerate(self.interface.inputs)]
        kernel = Kernel(self.interface, "value")
        operator_type = TupleOperator if self.interface.output_names else Operator
        self.value = operator_type(name, kernel, parameters, self)
        self._add(self.value)
        self._fill = _fill_operator(f"{name}_out", kernel, parameters)

    @cached_property
    def second(self) -> Family:
        """The operators of the module with the second derivatives of an array-valued function."""
        second = second_of(self.interface).module
        batched = None if self.batched is None else second_of(self.batched.interface).module
        with _LOCK:
            return _family(second, batched)

    def _add(self, operator: Dispatched) -> None:
        self.operators[operator.kernel.kind] = operator
        self._calls[operator.kernel.kind] = operator.overload

    def fill(self, inputs: Sequence[Tensor], named: Mapping[str, Tensor], out: Any) -> Any:
        """Write the value to `out`, a tensor or a tuple with one for each output. Raises
        UnsupportedError if a gradient would be lost."""
        results = out if isinstance(out, tuple) else (out,)
        tensors = (*inputs, *named.values(), *results)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise UnsupportedError(
                f"{self.interface.name}: has no derivatives with out=, and an argument requires "
                "them; call it without out=, or under torch.no_grad()"
            )
        outputs = zip(_out_names(self.interface), results, strict=True)
        self._fill(*inputs, **named, **dict(outputs))
        return out

    def reduced(self) -> tuple[Callable[..., Operator], tuple[Any, ...]]:
        """Return the function and arguments from which pickle restores the operator."""
        batched = self.batched and _location(self.batched.interface)
        return restored, (_location(self.interface), batched)


def operator_of(module: ModuleType, batched: ModuleType | None) -> Operator:
    """Return the operator of a module, which is made at the first call."""
    with _LOCK:
        return _family(module, batched).value


def _family(module: ModuleType, batched: ModuleType | None) -> Family:
    if (module, batched) not in _FAMILIES:
        batched_family = None if batched is None else _family(batched, None)
        _FAMILIES[module, batched] = Family(module, batched_family)
    return _FAMILIES[module, batched]


def restored(location: Location, batched: Location | None) -> Operator:
    """Return the operator of modules at these locations. Raises LoadError if other modules, or
    none, are there."""
    return operator_of(_load(*location), batched and _load(*batched))


def _location(interface: ModuleInterface) -> Location:
    module = interface.module
    return module.__name__, str(module.__file__), module.DIGEST


def _load(name: str, file: str, digest: str) -> ModuleType:
    """Import a module by name, or without such a module load it from the file."""
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


def _schema_name(position: int, name: str) -> str:
    """Name a parameter of an operator like the input, if schemas of PyTorch allow its name."""
    is_allowed = name.isascii() and not iskeyword(name) and not re.match("out(_|$)", name)
    return name if is_allowed else f"argument_{position}"


def _out_names(interface: ModuleInterface) -> list[str]:
    """Name the parameters of the operator that writes the value: out_mean and so on for several
    outputs."""
    return ["_".join(filter(None, ("out", name))) for name in interface.output_names or ("",)]


def _fill_operator(name: str, kernel: Kernel, parameters: list[str]) -> CustomOpDef:
    """Make the operator that writes the value to its last arguments."""
    results = _out_names(kernel.interface)
    arguments = [f"Tensor {parameter}" for parameter in parameters]
    arguments += [f"Tensor(a{i}!) {result}" for i, result in enumerate(results)]
    operator = custom_op(
        f"derivatrix::{name}",
        kernel.fill,
        mutates_args=results,
        schema=f"({', '.join(arguments)}) -> ()",
    )
    operator.register_fake(lambda *tensors: None)
    return operator
