"""What is the derivative of an elementwise product a * b?

A Jacobian: d(a*b)[i] / d(a)[j] is b[i] where i = j and 0 elsewhere, which is diag(b). The backward
pass never needs that matrix: its product with a cotangent is the elementwise product b * Ȳ.

The input is an invoice: prices times quantities.

Run: python examples/elementwise_product.py
"""

import numpy as np

import derivatrix as dx

n = dx.dims("n")
a = dx.vector("a", n)
b = dx.vector("b", n)
product = dx.function("product", [a, b], a * b)

PRICES = np.array([2.50, 0.80, 12.00])
QUANTITIES = np.array([4.0, 10.0, 1.0])


def main() -> None:
    print("Jacobian by a, entry [i, j]:", product.formula("jacobian", "a", "index"))
    print("backward by a:", product.formula("vjp", "a"))

    module = dx.compile(product)
    print("lines of the invoice:", module.value(PRICES, QUANTITIES))
    jacobian = module.jacobian(PRICES, QUANTITIES)
    print("d lines / d prices = diag(quantities):", jacobian.a, sep="\n")
    backward = module.vjp(PRICES, QUANTITIES, np.ones(3))
    print("d total / d prices:", backward.a)
    print("d total / d quantities:", backward.b)


if __name__ == "__main__":
    main()
