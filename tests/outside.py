"""Stores that no check of an index sees."""

# mypy: allow-untyped-defs

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def written_at(context, array, place):
    """array[place] = 1 for an array of one axis, wherever in memory that is."""

    def generate(context, builder, signature, values):
        kind = signature.args[0]
        data = cgutils.create_struct_proxy(kind)(context, builder, values[0]).data
        item = context.get_constant(kind.dtype, 1)
        builder.store(item, builder.gep(data, [values[1]]))
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
