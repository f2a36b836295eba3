"""The choice between two numbers without a branch, for code that has many."""

# mypy: allow-untyped-defs

from numba.extending import intrinsic


@intrinsic
def where(context, condition, chosen, otherwise):
    """chosen if condition else otherwise; both are computed. Numba takes a time to compile branches
    that grows with the square of their number."""

    def generate(context, builder, signature, values):
        return builder.select(*values)

    return chosen(condition, chosen, otherwise), generate
