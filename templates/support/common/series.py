"""Coefficients of series."""

BERNOULLI = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
)
"""B(2 j) / (2 j)! for j = 1, 2, ..., with Bernoulli's numbers B."""
