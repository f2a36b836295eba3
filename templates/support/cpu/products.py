"""The product of each row, and of all of its entries but one."""

# mypy: allow-untyped-defs

from ..internals.functions import compiled


@compiled()
def row_products(x, out):
    """out[s] = the product of x[s, :]."""
    stack, n = x.shape
    for s in range(stack):
        total = out.dtype.type(1)
        for i in range(n):
            total *= x[s, i]
        out[s] = total


@compiled()
def products_of_others(x, out):
    """out[s, i] = the product of x[s, :] without x[s, i]: that of the entries before it times that
    of the entries after it, since division fails for zeros."""
    stack, n = x.shape
    for s in range(stack):
        before = out.dtype.type(1)
        for i in range(n):
            out[s, i] = before
            before *= x[s, i]
        after = out.dtype.type(1)
        for i in range(n - 1, -1, -1):
            out[s, i] *= after
            after *= x[s, i]
