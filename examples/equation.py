"""What if my function is the solution of an equation, as X in A X + X B = C?

Differentiate the equation, not the solver: A dX + dX B = dC - dA X - X dB is the same equation
with another right-hand side. Its adjoint gives the backward pass: solve Aᵀ Λ + Λ Bᵀ = X̄ once, and
C̄ = Λ, Ā = -Λ Xᵀ, B̄ = -Xᵀ Λ. For K u = f it is λ = K⁻ᵀ ū, f̄ = λ, K̄ = -λ uᵀ.

The inputs: the temperature of a heated plate, whose discretised Poisson equation is a Sylvester
equation, and the displacements of a chain of springs that hangs from the ceiling.

Run: python examples/equation.py
"""

import numpy as np

import derivatrix as dx

n, m = dx.dims("n m")
A = dx.matrix("A", n, n)
B = dx.matrix("B", m, m)
C = dx.matrix("C", n, m)
sylvester = dx.function("sylvester", [A, B, C], dx.solve_sylvester(A, B, C))

K = dx.matrix("K", n, n, "invertible")
f = dx.vector("f", n)
displacement = dx.function("displacement", [K, f], dx.solve(K, f))


def second_difference(count: int) -> np.ndarray:
    """-d²/dx² on `count` points inside (0, 1), with zeros at both ends; shape (count, count)."""
    band = 2 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
    return band * (count + 1) ** 2


def hanging_chain(springs: np.ndarray) -> np.ndarray:
    """The stiffness matrix of springs in a row, the first of which hangs from the ceiling."""
    below = np.append(springs[1:], 0.0)
    return np.diag(springs + below) - np.diag(springs[1:], 1) - np.diag(springs[1:], -1)


def main() -> None:
    for name in ("A", "B", "C"):
        print(f"Sylvester, backward by {name}:", sylvester.formula("vjp", name))
    plate = dx.compile(sylvester)
    rows, columns = second_difference(9), second_difference(15)
    source = np.zeros((9, 15))
    source[2, 3] = 1000.0  # a burner under one point of the plate
    temperature = plate.value(rows, columns, source)
    residual = np.abs(rows @ temperature + temperature @ columns - source).max()
    print(f"temperature in the middle: {temperature[4, 7]:.4f}, residual {residual:.1e}")
    middle = np.zeros((9, 15))
    middle[4, 7] = 1.0
    backward = plate.vjp(rows, columns, source, middle)
    best = np.unravel_index(backward.C.argmax(), backward.C.shape)
    print("heat warms the middle most at", tuple(map(int, best)))
    print(f"the middle again, from the adjoint: {(backward.C * source).sum():.4f}")

    for name in ("K", "f"):
        print(f"solve, backward by {name}:", displacement.formula("vjp", name))
    chain = dx.compile(displacement)
    stiffness = hanging_chain(np.array([300.0, 200.0, 100.0]))  # newtons per metre
    weights = 9.81 * np.array([1.0, 2.0, 1.0])
    print("displacements in metres:", chain.value(stiffness, weights).round(4))
    lowest = chain.vjp(stiffness, weights, np.array([0.0, 0.0, 1.0]))
    print("how far the lowest end sinks for a newton more at each mass:", lowest.f.round(5))


if __name__ == "__main__":
    main()
