"""The public functions of a generated module for CUDA devices, made of what the module says of
them."""

# mypy: allow-untyped-defs

from ..common.function_parts import _Parts, define_function
from ..common.module import _Module
from ..common.returned import _Returned
from ..common.signature import _Signature, indented, tuple_text
from .arguments import _Call

_SCOPE = {"_Call": _Call, "_named": tuple.__new__}
"""What the texts of public functions refer to."""


class Module(_Module):
    """A generated module. The texts that functions are made of come from the compiler alone."""

    def function(self, name, signature, launch, returns="", failures=(), **named):
        """A public function that has `launch` fill arrays for its results.

        signature: what it takes and fills (see `_Signature`, as for `named`); launch: the host
        function, which takes the run and these; returns: see `_Returned`; failures: what is wrong
        where a check of the kernels fails, in order."""
        found = _Signature(signature, **named)
        parts = _Parts(found, _Returned(returns, found.outputs))
        inputs, filled = tuple_text(parts.parameters), tuple_text(parts.outputs)
        wrong = parts.mismatch(self.requirements)
        lines = [
            f"{inputs} = _run.take()",
            *parts.all_size_lines,
            *([f"if {wrong}:", "    _run.refuse()"] if wrong else []),
            f"{filled} = _run.results({parts.out_parameter}, {tuple_text(parts.output_shapes)})",
            f"_launch(_run, {parts.kernel_arguments})",
            f"{filled} = _run.delivered({filled})",
            f"return {parts.returned.delivered}",
        ]
        heading = (
            f"def {name}({', '.join([*parts.parameters, '*', f'{parts.out_parameter}=None'])}):"
        )
        run = f"    with _Call(_owner, _expected, {inputs}, _failures) as _run:"
        lines = [heading, run, *indented(indented(lines))]
        scope = _SCOPE | {"_failures": failures, "_launch": launch}
        return define_function(self, name, lines, parts, scope)
