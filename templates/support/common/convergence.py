"""How Newton's iteration went where it found no root, as a text."""

# mypy: allow-untyped-defs

LAST = 3
"""How many of the last residuals are told."""


def _convergence(steps, singular, first, *last):
    """How the residual went: its largest entry at the start, and after each of the last steps, of
    which there may be fewer than are given in `last`; singular: whether that ended it."""
    count = int(steps)
    shown = [f"{size:.3g}" for size in last[-min(count, LAST) :]] if count else []
    told = ", ".join([f"{first:.3g}", *["..."] * (count > LAST), *shown])
    reason = ", where the Jacobian is singular" if singular else ""
    return f": in {count} steps the largest entry of the residual was {told}{reason}"
