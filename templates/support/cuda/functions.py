"""Public functions of generated modules for CUDA devices."""

# mypy: allow-untyped-defs

from ..common.arguments import _cotangents
from ..common.function_parts import _Parts, define_function
from ..common.module import _Module
from ..common.signature import _Signature, indented, tuple_text
from .arguments import _Call

_SCOPE = {
    "_Call": _Call,
    "_cotangents": _cotangents,
    "_len": lambda array: array.shape[0],  # arrays of other libraries may have no len
    "_named": tuple.__new__,
}
"""Names that the texts of public functions refer to."""


class Module(_Module):
    """A generated module. All texts that it compiles come from the compiler."""

    def kernel_names(self, functions):
        return ["KERNELS"]

    def function(self, name, launch, returns, failures=(), **signature):
        """Define the public function `name`, whose results the host function `launch` computes.

        launch: takes the run, the inputs and the outputs; returns: see `returned`; failures: the
        error text of each check of the kernels, in order; signature: see `_Signature`."""
        parameters = _Signature(**signature)
        returned = self.returned(returns, parameters.outputs)
        parts = _Parts(parameters, returned, self.has_batch, self.cotangents(name))
        inputs, outputs = tuple_text(parts.variables), tuple_text(parts.outputs)
        lines = [
            f"_axes, {inputs} = _run.take()",
            *parameters.size_lines(),
            *parts.shape_check(self.requirements, "_run.refuse()"),
            f"_results = _run.results({parts.out}, {tuple_text(parts.result_shapes)})",
            f"{outputs} = {parts.kernel_results}",
            f"_launch(_run, {parts.kernel_arguments})",
            f"{outputs} = _run.delivered(_results)",
            f"return {parts.returned.delivered}",
        ]
        run = f"    with _Call(_owner, _expected, {inputs}, _failures) as _run:"
        lines = [*parts.heading(name), run, *indented(indented(lines))]
        scope = _SCOPE | {"_failures": failures, "_launch": launch}
        return define_function(self, name, lines, parts, scope, bool(failures))
