"""Messages about Newton's iteration where it did not converge."""

# mypy: allow-untyped-defs

RESIDUALS_IN_MESSAGE = 3
"""Number of last residuals that the message lists."""


def _convergence(steps, is_singular, initial, *latest):
    """Describe the course of the residual's largest entry.

    initial: before the first step; latest: after each of the last RESIDUALS_IN_MESSAGE steps, of
    which only the last `steps` are set; is_singular: whether a singular Jacobian ended the
    iteration."""
    count = int(steps)
    residuals = [f"{size:.3g}" for size in latest[-min(count, RESIDUALS_IN_MESSAGE) :] if count]
    gap = ["..."] * (count > RESIDUALS_IN_MESSAGE)
    course = ", ".join([f"{initial:.3g}", *gap, *residuals])
    reason = ", where the Jacobian is singular" if is_singular else ""
    return f": in {count} steps the largest entry of the residual was {course}{reason}"
