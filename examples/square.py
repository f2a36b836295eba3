"""What is the backward of X -> X @ X, and why is it Ȳ Xᵀ + Xᵀ Ȳ and not 2 X Ȳ?

X @ X moves by dX X + X dX, since matrices do not commute. What the cotangent Ȳ sees of that is
<Ȳ, dX X + X dX> = <Ȳ Xᵀ + Xᵀ Ȳ, dX>, so the backward pass has one term for each place where X
stands. 2 X Ȳ is what the scalar rule would give if everything commuted.

The input here is the weather of the Land of Oz (Kemeny, Snell and Thompson, 1957): P[i, j] is the
chance that weather j follows weather i, so P @ P holds the chances for the day after tomorrow.

Run: python examples/square.py, or derivatrix build examples/square.py -o generated
"""

import numpy as np

import derivatrix as dx

n = dx.dims("n")
X = dx.matrix("X", n, n)
square = dx.function("square", [X], X @ X)
energy = dx.function("energy", [X], dx.trace((X @ X).T @ (X @ X)))

WEATHER = ("rain", "nice", "snow")
OZ = np.array([[0.50, 0.25, 0.25], [0.50, 0.00, 0.50], [0.25, 0.25, 0.50]])


def main() -> None:
    print("X̄ =", square.formula("vjp"))
    print("gradient of tr((XX)ᵀ(XX)) =", energy.formula("gradient"))

    module = dx.compile(square)
    later = module.value(OZ)
    print("chance of snow two days after rain:", later[0, 2])

    cotangent = np.zeros((3, 3))
    cotangent[0, 2] = 1.0  # how that one entry of P @ P depends on each entry of P
    backward = module.vjp(OZ, cotangent)
    print("its derivative by each chance of today's table:")
    for name, row in zip(WEATHER, backward, strict=True):
        print(f"  after {name}: {row}")
    print("2 X Ȳ, wrong:", (2 * OZ @ cotangent).tolist())

    moved = OZ.copy()
    moved[0, 1] += 1e-6
    slope = (module.value(moved)[0, 2] - later[0, 2]) / 1e-6
    print(f"by differences, nice after rain: {slope:.6f}")
    print("energy and its gradient:", *dx.compile(energy).value_and_gradient(OZ), sep="\n")


if __name__ == "__main__":
    main()
