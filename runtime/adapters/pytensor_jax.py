"""PyTensor's `Op`s of generated modules in graphs that JAX compiles."""

from __future__ import annotations

from typing import Any

from pytensor.compile import optdb
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter

from derivatrix.runtime.adapters.packages import require_package
from derivatrix.runtime.adapters.pytensor_operator import GeneratedOp


@node_rewriter([GeneratedOp])
def call_by_jax(fgraph: Any, node: Any) -> Any:
    """Replace an Op by PyTensor's `JAXOp` of the module's function in JAX. Modules for CUDA devices
    have none."""
    if node.op.interface.target != "cpu":
        return None
    require_package("jax", "0.5")
    import jax
    from pytensor.link.jax.ops import JAXOp

    from derivatrix.runtime.adapters.jax_calls import Calls

    kind, calls = node.op.kind, Calls(node.op.interface, None, native=True)
    declared = node.inputs[0].dtype

    def call(*arguments: Any) -> tuple[Any, ...]:
        # float32 if PyTensor has disabled float64 in JAX
        real = jax.dtypes.canonicalize_dtype(declared)
        return tuple(calls(kind, *(jax.numpy.asarray(argument, real) for argument in arguments)))

    types = [[variable.type for variable in part] for part in (node.inputs, node.outputs)]
    return JAXOp(*types, call, name=str(node.op))(*node.inputs, return_list=True)


optdb.register("derivatrix_call_by_jax", dfs_rewriter(call_by_jax), "jax", position=100)
